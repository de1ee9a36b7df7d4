"""Heads on an `ItemTower` of random features, and the products of such a tower alone."""

import keras
import numpy as np
from keras import ops

from softbench import ItemTower
from softbench.common import Tensor
from softbench.ops import gather_rows


def item_tower(tower: dict, num_items: int, dim: int, seed: int) -> ItemTower:
    """A tower of one hidden layer.

    Args:
        tower: {"features": numbers known of an item, "hidden": units of the layer}.
        num_items: n.
        dim: d, of the rows.
        seed: of the features and of the weights.
    """
    seeds = keras.random.SeedGenerator(seed)
    uniform = keras.initializers.GlorotUniform
    layers = [
        keras.layers.Dense(tower["hidden"], "relu", kernel_initializer=uniform(seeds)),
        keras.layers.Dense(dim, kernel_initializer=uniform(seeds)),
    ]
    generator = np.random.default_rng(seed)
    features = generator.standard_normal((num_items, tower["features"]), "float32")
    return ItemTower(keras.Sequential(layers), features)


@keras.saving.register_keras_serializable("softbench_experiments")
class Products(keras.layers.Layer):
    """The rows of B + m distinct items by a tower, the sum of whose squares is the loss.

    A gradient of ones would let a compiler replace the last layer's products by sums. With the
    backward pass and the optimizer's update these are the products of a step of B labels and m
    draws that no two of share an item, and nothing else.
    """

    def __init__(self, tower: ItemTower, num_sampled: int) -> None:
        super().__init__()
        self.tower, self.num_sampled = tower, num_sampled

    def call(self, hidden: Tensor, labels: Tensor) -> Tensor:
        count = labels.shape[0] + self.num_sampled
        spread = ops.arange(count, dtype="int32") * (self.tower.units // count)
        ids = (labels[0] + spread) % self.tower.units
        rows = self.tower.model(gather_rows(self.tower.features, ids), training=True)
        self.add_loss(ops.sum(ops.square(rows)) + 0.0 * ops.sum(hidden))
        return rows
