"""Keras callbacks."""

from typing import Any

import keras

from softbench.common import check_positive


class RefitTree(keras.callbacks.Callback):
    """Fits a head's `AdversarialTree` again, to the hidden states of an encoder that trains.

    At the start of every `every`-th epoch but the first: `head.sampler.fit(encoder.predict(x), y)`.
    The variables keep their shapes, so nothing is traced again. Fit the tree once before the head
    is built. The tree does not change after the last epoch: a head whose scores are corrected by
    log p_n is used with the tree that it was trained against.

    Args:
        head: a sampled head with a tree over `hidden` as its sampler.
        encoder: Keras model, x -> hidden (N, d).
        x: what `encoder.predict` takes.
        labels: int (N,).
        every: epochs between two fits.

    Raises:
        ValueError: if the head's sampler is not a tree, or `every` < 1.
    """

    def __init__(self, head: Any, encoder: Any, x: Any, labels: Any, every: int = 1) -> None:
        super().__init__()
        from softbench.samplers import AdversarialTree  # the callback alone needs no backend

        check_positive(every=every)
        sampler = getattr(head, "sampler", None)
        if not isinstance(sampler, AdversarialTree):
            raise ValueError(
                "`head` must have an AdversarialTree as its sampler. "
                f"Received: sampler={type(sampler).__name__}"
            )
        self.head, self.encoder, self.x, self.labels = head, encoder, x, labels
        self.every = every

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if epoch == 0 or epoch % self.every:
            return
        hidden = self.encoder.predict(self.x, verbose=0)
        self.head.sampler.fit(hidden, self.labels, self.head.units, verbose=0)


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
