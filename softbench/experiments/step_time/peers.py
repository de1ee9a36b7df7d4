"""What users have without softbench: TensorFlow's sampled softmax with a sparse update."""

from collections.abc import Callable

import keras

_EPSILON = 1e-7
_INITIAL_ACCUMULATOR = 0.1


def tf_sampled_softmax(
    encoder: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    num_classes: int,
    method: dict,
    learning_rate: float,
) -> Callable:
    """Returns step(x, y) -> loss: `tf.nn.sampled_softmax_loss`, then Adagrad on the touched rows.

    Args:
        encoder: inputs (B, d) -> hidden (B, d); trained by `optimizer`.
        optimizer: Keras optimizer of the encoder.
        num_classes: n.
        method: {"num_sampled": m, "deduplicate": whether gradients of equal ids are added up
            first, as every correct optimizer does}.
        learning_rate: of the rows.
    """
    import tensorflow as tf

    width = encoder.output.shape[-1]
    kernel = tf.Variable(keras.initializers.GlorotUniform(seed=0)((num_classes, width)))
    bias = tf.Variable(tf.zeros((num_classes,)))
    slots = [tf.Variable(tf.fill(v.shape, _INITIAL_ACCUMULATOR)) for v in (kernel, bias)]
    optimizer.build(encoder.trainable_variables)

    def apply(variable: tf.Variable, slot: tf.Variable, gradient: tf.IndexedSlices) -> None:
        ids, values = gradient.indices, gradient.values
        if method["deduplicate"]:
            ids, position = tf.unique(ids)
            values = tf.math.unsorted_segment_sum(values, position, tf.shape(ids)[0])
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=variable.handle,
            accum=slot.handle,
            lr=learning_rate,
            epsilon=_EPSILON,
            grad=values,
            indices=ids,
        )

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        weights = [variable.value for variable in encoder.trainable_variables]
        with tf.GradientTape() as tape:
            losses = tf.nn.sampled_softmax_loss(
                kernel,
                bias,
                tf.cast(y, tf.int64)[:, None],
                encoder(x, training=True),
                num_sampled=method["num_sampled"],
                num_classes=num_classes,
            )
            loss = tf.reduce_mean(losses)
        of_kernel, of_bias, *of_encoder = tape.gradient(loss, [kernel, bias, *weights])
        optimizer.apply(of_encoder, encoder.trainable_variables)
        apply(kernel, slots[0], of_kernel)
        apply(bias, slots[1], of_bias)
        return loss

    return step
