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
