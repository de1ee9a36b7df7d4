"""Scalable cross-entropy: softmax over the classes and examples that fall into the same buckets."""

from typing import Any

import keras
from keras import ops

from softbench import partition
from softbench.common import PACKAGE, Tensor, check_positive
from softbench.heads.row_losses import row_losses
from softbench.heads.table_head import TableHead
from softbench.ops import by_shards
from softbench.state import Arguments
from softbench.table import Table
from softbench.targets import Targets


@keras.saving.register_keras_serializable(PACKAGE)
class BucketedSoftmax(TableHead):
    """Scalable cross-entropy, SCE (Mezentsev et al. 2024): hard negatives by inner products.

    Each of `num_buckets` directions, random mixtures of the batch's hidden vectors, takes the
    `bucket_examples` examples and the `bucket_classes` classes with the largest scores in it. The
    loss of an example in a bucket is
    -o_y + log(exp(o_y) + sum_i exp(o_i)) over the bucket's classes i != y; an example in several
    buckets has the largest of its losses, one in none has 0. Losses are scaled so that their mean
    is that of the examples in buckets.

    Nothing is corrected: the classes are the best ones, not a sample, and the loss is below the
    full softmax's. The other classes are pushed down less than they should be: scores are to rank,
    and their softmax, of which the exact likelihood is, is no estimate of p(y|x) that a correction
    could mend. The paper takes 2 sqrt(B) for the first two sizes. A step holds
    num_buckets * bucket_examples * bucket_classes scores, and for the search num_buckets * n.

    Args:
        units: n, the number of classes; None with `table`.
        table, use_bias, normalize, temperature, row_optimizer: as in `SampledSoftmax`.
        num_buckets, bucket_examples, bucket_classes: as above; at most B and n of them count.
        ignore_index, max_valid: as in every head, see `softbench.heads.base.Head`.
        seed: of the directions.
        **kwargs: of `keras.layers.Layer`: name, dtype, trainable.

    Raises:
        ValueError: for a size below 1.

    Example:
        >>> head = softbench.BucketedSoftmax(1000, num_buckets=8, bucket_examples=4)
        >>> tuple(head(np.ones((6, 16), "float32"), np.arange(6), training=True).shape)
        (6,)
        >>> tuple(head(np.ones((6, 16), "float32")).shape)
        (6, 1000)
    """

    arguments: Arguments = ("num_buckets", "bucket_examples", "bucket_classes", "seed")

    def __init__(
        self,
        units: int | None = None,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        row_optimizer: Any = None,
        num_buckets: int = 64,
        bucket_examples: int = 64,
        bucket_classes: int = 256,
        ignore_index: int | None = None,
        max_valid: int | float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            table=table,
            use_bias=use_bias,
            normalize=normalize,
            temperature=temperature,
            row_optimizer=row_optimizer,
            seed=seed,
            ignore_index=ignore_index,
            max_valid=max_valid,
            **kwargs,
        )
        check_positive(num_buckets=num_buckets, bucket_examples=bucket_examples)
        check_positive(bucket_classes=bucket_classes)
        self.num_buckets, self.seed = int(num_buckets), seed
        self.bucket_examples, self.bucket_classes = int(bucket_examples), int(bucket_classes)
        self.seed_generator = keras.random.SeedGenerator(seed)

    def training_loss(self, hidden: Tensor, targets: Targets) -> Tensor:
        labels, weight = targets.labels, targets.counts
        examples, classes = self._buckets(ops.stop_gradient(hidden), weight)
        own_labels = ops.take(labels, examples, axis=0)
        hits = ops.equal(own_labels[:, :, None], classes[:, None, :])
        hits = ops.reshape(hits, (-1, classes.shape[1]))
        places = ops.reshape(examples, (-1,))

        def losses(rows: list[list[Tensor]]) -> tuple[Tensor, tuple]:
            true = self.table.paired_logits(hidden, *rows[0])
            others = self.table.logits(ops.take(hidden, places, axis=0), *rows[1])
            others = ops.where(hits, -float("inf"), others)
            own = ops.take(true, places)[:, None]
            found = ops.logsumexp(ops.concatenate([own, others], axis=-1), axis=-1) - own[:, 0]
            return _largest(found, places, true, weight), ()

        return row_losses(self.table, [labels, classes], losses, weight)[0]

    def _buckets(self, hidden: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """The examples (N, X) and the classes (N, Y) of the N buckets."""
        batch = hidden.shape[0] or ops.shape(hidden)[0]
        hidden = ops.cast(hidden, "float32")
        mixture = keras.random.normal((self.num_buckets, batch), seed=self.seed_generator)
        directions = ops.matmul(mixture, hidden)
        scores = ops.matmul(directions, ops.transpose(hidden))
        if weight is not None:
            scores = ops.where(ops.not_equal(weight, 0), scores, -float("inf"))
        size = self.bucket_examples
        size = min(size, batch) if isinstance(batch, int) else ops.minimum(size, batch)
        examples = ops.cast(ops.top_k(scores, size)[1], "int32")
        most = min(self.bucket_classes, self.units)

        def part(first: Tensor, count: int, directions: Tensor) -> tuple[Tensor, Tensor]:
            scorer = lambda ids: self.table.scores(directions, ids[None])  # noqa: E731
            return partition.top_k(scorer, directions, count, most, first)

        join = lambda found: partition.best_of(found, most)  # noqa: E731
        own = self.class_variables
        classes = by_shards(part, join, self.units, own, [], directions)[1]
        return examples, ops.stop_gradient(ops.cast(classes, "int32"))


def _largest(found: Tensor, places: Tensor, true: Tensor, weight: Tensor | None) -> Tensor:
    """The largest loss of each example (B,), 0 for one that has none, times B / (those with one).

    Args:
        found: losses of examples in buckets (N,).
        places: which examples these are (N,).
        true: (B,), of all examples.
        weight: (B,), 0 where an example is not there; or None.
    """
    present = (
        ops.ones_like(true) if weight is None else ops.cast(ops.not_equal(weight, 0), "float32")
    )
    batch = true.shape[0] or ops.shape(true)[0]
    inside = ops.take(present, places)  # a bucket larger than the batch has absent ones too
    kept = ops.where(inside > 0, ops.stop_gradient(found), -float("inf"))
    best = ops.segment_max(kept, places, batch)
    is_best = inside * ops.cast(ops.equal(kept, ops.take(best, places)), "float32")
    ties = ops.segment_sum(is_best, places, batch)
    total = ops.segment_sum(ops.where(is_best > 0, found, 0.0), places, batch)
    covered = ops.cast(ties > 0, "float32")
    scale = ops.sum(present) / ops.maximum(ops.sum(covered), 1.0)
    return scale * total / ops.maximum(ties, 1.0)
