"""Encoder of dense features: a Dense layer, or nothing."""

import keras
from keras import layers

from softbench.common import check_positive


def linear_encoder(
    num_features: int, dim: int | None = None, activation: str | None = None
) -> keras.Model:
    """Functional model of dense features `(B, num_features)`: a Dense layer, or the identity.

    Args:
        num_features: width of the input.
        dim: width of the output; None passes the features on as they are.
        activation: of the Dense layer.
    """
    check_positive(num_features=num_features, **({} if dim is None else {"dim": dim}))
    features = keras.Input((num_features,), name="features")
    layer = layers.Identity() if dim is None else layers.Dense(dim, activation=activation)
    return keras.Model(features, layer(features), name="linear_encoder")
