"""What the samplers with random features of an exponential kernel share.

Shape letters: B batch, N rows, d features of a row, D random features, K rows compared.
"""

from typing import Any

import keras
from keras import ops

from softbench.common import Tensor, check_number, check_positive
from softbench.ops import assign_when
from softbench.samplers.kernel.features import FeatureMap
from softbench.samplers.kernel.sampler import KernelSampler
from softbench.state import Arguments

LARGEST_DEFAULT_NU = 4.0
# Exponents of class features stop here: float32 sums of a million of them stay finite.
LARGEST_EXPONENT = 40.0


class ExponentialMap(FeatureMap):
    """Base class of the random maps: E[phi(h).phi(c)] = exp(nu <h, c>).

    Args:
        num_features: D, the number of random directions.
        nu: 1 / (temperature of the kernel).
        seed: of the first directions, which are drawn with NumPy and saved; None for any.
    """

    def __init__(self, num_features: int, nu: float, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_features = num_features
        self.nu = nu
        self.seed = seed

    def noise(self, seed: keras.random.SeedGenerator) -> Tensor:
        """The random numbers of one set of directions, for `fresh`."""
        return keras.random.normal(self.drawn.shape, seed=seed)

    def fresh(self, noise: Tensor) -> Tensor:
        """Another value of the variable `drawn`, independent of the present one."""
        raise NotImplementedError

    @property
    def drawn(self) -> keras.Variable:
        """The random directions."""
        return self.directions

    def _half_square(self, x: Tensor) -> Tensor:
        return 0.5 * self.nu * ops.sum(ops.square(x), axis=-1, keepdims=True)


class ExponentialKernelSampler(KernelSampler):
    """A `KernelSampler` whose map estimates K(h, c) = exp(nu <h, c>) with random features.

    Args:
        num_features: D, the number of random directions.
        nu: of the kernel; the paper's best is 4 for 1 / temperature = 11.1. None takes the
            smaller of that and 1 / temperature: the kernel of the softmax where its estimate is
            good enough.
        redraw: draw new directions at each refresh. Directions that stay let training find the
            classes and inputs whose kernel they underestimate: these are seldom drawn, so nothing
            pushes their scores down, and the proposal gets worse as the model learns. Needs an
            ordinary optimizer, under which a refresh computes all features anyway.

    Raises:
        ValueError: when built with `redraw` for a table that has a row optimizer.
    """

    arguments: Arguments = ("num_features", "nu", "redraw")
    feature_map: type[ExponentialMap]

    def __init__(
        self, num_features: int = 1024, nu: float | None = None, redraw: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_positive(num_features=num_features)
        if nu is not None:
            check_number(0, exclusive=True, nu=nu)
        self.num_features = int(num_features)
        self.nu = nu
        self.redraw = redraw

    def build(self, table_shape: tuple, num_sampled: int | None = None, table: Any = None) -> None:
        if self.redraw and table is not None and table.row_optimizer is not None:
            raise ValueError(
                "`redraw` must be False for a table with a `row_optimizer`, whose sums follow the "
                "touched rows and are not computed afresh. Received: redraw=True"
            )
        super().build(table_shape, num_sampled, table)

    def _before_refresh(self, due: Tensor) -> None:
        if self.redraw:
            # drawn at every step: a generator cannot be asked inside a branch on JAX
            noise = self.features.noise(self.seed_generator)
            assign_when(due, [self.features.drawn], lambda: [self.features.fresh(noise)])

    def make_features(self, temperature: float, **options: Any) -> FeatureMap:
        nu = min(LARGEST_DEFAULT_NU, 1.0 / temperature) if self.nu is None else self.nu
        return self.feature_map(self.num_features, nu, seed=self.seed, **options)
