"""Keras callbacks."""

import keras


class FollowLearningRate(keras.callbacks.Callback):
    """Gives rows with `learning_rate="model"` the rate of the model's optimizer before each batch.

    For `fit` of a `keras.Model`; `Classifier` does this by itself. What a schedule,
    `LearningRateScheduler` or `ReduceLROnPlateau` makes of the optimizer's rate reaches the rows.
    With `steps_per_execution` above 1 the steps of one execution have the rate of the first. On
    JAX, Keras puts the state back into the variables before each batch, which takes about as long
    as it takes a callback to look at `self.model`.

    At the start it raises the errors that `Classifier` raises for what the model's optimizer is
    told and the rows do not do, so that it is of use for these alone too.

    Example:
        >>> rows = softbench.RowSGD({"model": 2.0})  # twice the rate of the optimizer
        >>> head = softbench.SampledSoftmax(9, "uniform", 4, row_optimizer=rows)
        >>> x, y = keras.Input((3,)), keras.Input((), dtype="int32")
        >>> model = keras.Model([x, y], head(x, y))
        >>> model.compile(keras.optimizers.SGD(0.25))
        >>> data = [np.ones((8, 3), "float32"), np.arange(8)]
        >>> callback = softbench.callbacks.FollowLearningRate()
        >>> history = model.fit(data, verbose=0, callbacks=[callback])
        >>> float(head.table.row_optimizer.learning_rate)
        0.5
    """

    def on_train_begin(self, logs: dict | None = None) -> None:
        from softbench.rates import check_optimizer

        check_optimizer(self.model)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        from softbench.rates import follow

        follow(self.model, ())
