"""Heads that train on the true class and m sampled ones."""

from typing import Any

import keras
from keras import ops

from softbench import losses, samplers
from softbench.checks import check_positive
from softbench.heads.base import Head, mean_of_weighted
from softbench.ops import gradients_and_aux, share_backward
from softbench.rows import PACKAGE
from softbench.samplers import Sampler, Samples

Tensor = Any


class SampledHead(Head):
    """Base class: draws, gathers the touched rows, masks hits, and updates the rows.

    A subclass writes `objective`; `draw` too if it wants other draws than one set from the sampler.

    With a `row_optimizer`, a training call takes the gradient of the mean loss with respect to
    the gathered rows alone, sums it over duplicated ids, updates these rows in place, and tells the
    sampler. The gradient that flows back to `hidden` is that of the rows before the update.
    """

    def __init__(
        self,
        units: int,
        sampler: str | dict | Sampler,
        num_sampled: int,
        remove_accidental_hits: bool,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, **kwargs)
        check_positive(num_sampled=num_sampled)
        self.sampler = samplers.get(sampler, seed=seed)
        self.num_sampled = int(num_sampled)
        self.remove_accidental_hits = remove_accidental_hits
        self.seed = seed

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        if not self.sampler.built:
            self.sampler.build((self.units, hidden_shape[-1]), self.num_sampled, self.table)

    def call(self, hidden, labels=None, sample_weight=None, sampler_inputs=None, training=None):
        """As `Head.call`; `sampler_inputs` (..., k) replaces `hidden` as the sampler's input."""
        features = hidden if sampler_inputs is None else sampler_inputs
        features = ops.reshape(features, (-1, features.shape[-1]))

        def training_loss(hidden: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
            return self.training_loss(hidden, labels, weight, features)

        return self._call(hidden, labels, sample_weight, training, training_loss)

    def draw(self, hidden: Tensor, labels: Tensor) -> list[Samples]:
        """The sets of classes that this step's objective compares the label with."""
        raise NotImplementedError

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Samples]) -> Tensor:
        """Loss (B,) from the true logit (B,) and, for each draw, the logits (B, m).

        A function of these logits alone: what else is learned goes into `shift`.
        """
        raise NotImplementedError

    def shift(self, true_logit: Tensor, sampled: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The logits that the objective sees; a head with a learned offset subtracts it here."""
        return true_logit, sampled

    def training_loss(
        self, hidden: Tensor, labels: Tensor, weight: Tensor | None, features: Tensor | None = None
    ) -> Tensor:
        """As `Head.training_loss`; `features` (B, k) is the sampler's input in place of hidden."""
        table = self.table
        draws = self.draw(ops.stop_gradient(hidden if features is None else features), labels)
        id_sets = [labels, *(draw.ids for draw in draws)]
        rows = [table.gather(ids) for ids in id_sets]
        if table.row_optimizer is None:
            return self._row_losses(hidden, labels, draws, rows)
        rows = keras.tree.map_structure(ops.stop_gradient, rows)

        def mean_loss(*arrays: Tensor) -> tuple[Tensor, Tensor]:
            result = self._row_losses(
                hidden, labels, draws, keras.tree.pack_sequence_as(rows, arrays)
            )
            own = result if weight is None else result * ops.cast(weight, "float32")
            return mean_of_weighted(own, weight), result

        gradients, result = gradients_and_aux(mean_loss, keras.tree.flatten(rows))
        self._update_rows(id_sets, keras.tree.pack_sequence_as(rows, gradients))
        return result

    def _row_losses(
        self, hidden: Tensor, labels: Tensor, draws: list[Samples], rows: list[list[Tensor]]
    ) -> Tensor:
        """Losses (B,) from the gathered rows: of the labels, then of each draw in turn."""
        true_logit = self.table.paired_logits(hidden, *rows[0])
        sampled = [self.table.logits(hidden, *own) for own in rows[1:]]
        true_logit, sampled = self.shift(true_logit, sampled)

        def objective(true: Tensor, *others: Tensor) -> Tensor:
            # Only the first draw competes with the label; others estimate sums over all classes.
            masked = self._mask_hits(others[0], draws[0].ids, labels)
            return self.objective(true, [masked, *others[1:]], draws)

        # The gradient of the rows and that of hidden both pass through the objective.
        return share_backward(objective)(true_logit, *sampled)

    def _update_rows(self, id_sets: list[Tensor], gradients: list[list[Tensor]]) -> None:
        """One update from the gradients of all gathered rows, with respect to (N, ...) rows."""

        def joined(arrays: list[Tensor], trailing: tuple) -> Tensor:
            return ops.concatenate([ops.reshape(a, (-1, *trailing)) for a in arrays], axis=0)

        follows = type(self.sampler).rows_changed is not Sampler.rows_changed
        variables = zip(*gradients, strict=True)
        self.table.apply_row_gradients(
            joined(id_sets, ()),
            [ops.stop_gradient(joined(v, v[0].shape[1:])) for v in variables],
            on_change=self.sampler.rows_changed if follows else None,
        )

    def _mask_hits(self, logits: Tensor, ids: Tensor, labels: Tensor) -> Tensor:
        if not self.remove_accidental_hits:
            return logits
        return ops.where(ops.equal(ids, ops.expand_dims(labels, -1)), -float("inf"), logits)

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "sampler": samplers.serialize(self.sampler),
            "num_sampled": self.num_sampled,
            "remove_accidental_hits": self.remove_accidental_hits,
            "seed": self.seed,
        }


@keras.saving.register_keras_serializable(PACKAGE)
class SampledSoftmax(SampledHead):
    """Sampled softmax cross-entropy (Rawat et al. 2019, eq. 5; Jean et al. 2015).

    loss = -o_t + log(exp(o_t) + sum_j exp(o_j - log E[count_j])) over m draws from the sampler.
    With a per-example sampler the draws exclude the label. Prediction needs no correction.

    Args:
        units: n, the number of classes.
        sampler: name, config dict, or `Sampler`. The default, "rff", is meant for
            `normalize=True` with a temperature near 0.1.
        num_sampled: m.
        use_bias, normalize, temperature, absolute: of the scores, see `ClassTable`. The paper's
            tau is 1 / temperature.
        correct_true_logit: True subtracts log E[count] from the true logit too, and draws from all
            n classes: the convention of `tf.nn.sampled_softmax_loss`.
        remove_accidental_hits: mask draws that equal the label.
        row_optimizer: `RowSGD`, `RowAdagrad` or `RowAdam` to update touched rows only, or None.
        kernel_initializer, bias_initializer: Keras initializers.
        seed: of the draws.

    Raises:
        ValueError: if `num_sampled` < 1 or the sampler is unknown.
    """

    def __init__(
        self,
        units: int,
        sampler: str | dict | Sampler = "rff",
        num_sampled: int = 100,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        absolute: bool = False,
        correct_true_logit: bool = False,
        remove_accidental_hits: bool = True,
        row_optimizer: Any = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            sampler,
            num_sampled,
            remove_accidental_hits,
            seed,
            use_bias=use_bias,
            normalize=normalize,
            temperature=temperature,
            absolute=absolute,
            row_optimizer=row_optimizer,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            **kwargs,
        )
        self.correct_true_logit = correct_true_logit

    def draw(self, hidden: Tensor, labels: Tensor) -> list[Samples]:
        return [
            self.sampler.sample(
                self.table,
                hidden,
                self.num_sampled,
                labels,
                exclude_labels=not self.correct_true_logit,
            )
        ]

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Samples]) -> Tensor:
        draw = draws[0]
        true_count = draw.true_log_expected_count if self.correct_true_logit else None
        return losses.sampled_softmax(true_logit, sampled[0], true_count, draw.log_expected_count)

    def get_config(self) -> dict:
        return {**super().get_config(), "correct_true_logit": self.correct_true_logit}
