"""Heads that train on the true class and m sampled ones."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from softbench import samplers
from softbench.common import Tensor, check_positive
from softbench.heads import inputs, positives, retrieval
from softbench.heads.draws import in_order, joined, of_all_examples, of_present
from softbench.heads.row_losses import row_losses
from softbench.heads.table_head import TableHead
from softbench.ops import share_backward
from softbench.samplers import Sampler, Samples
from softbench.state import Arguments
from softbench.table import Table


class SampledHead(TableHead):
    """Base class: draws, gathers the touched rows, masks hits, and updates the rows.

    A subclass writes `objective`. It sees one set of draws for each size in `set_sizes`, which is
    `num_sampled` alone unless the subclass adds to it, from the classes other than the label if
    `exclude_labels` and the sampler can.

    With a `row_optimizer`, a training call updates the gathered rows alone (see `row_losses`) and
    tells the sampler.

    The call takes `sampler_inputs` (..., v), which the sampler gets instead of `hidden` (..., d):
    the model's own input, say, that an `AdversarialTree` was fitted to. Methods get it flattened,
    as `features` (B, v).
    """

    exclude_labels = True
    needs_counts = False  # whether the objective uses the labels' own expected counts
    takes_several_labels = True
    arguments: Arguments = ("num_sampled", "remove_accidental_hits", "seed")

    def __init__(
        self,
        units: int | None = None,
        sampler: str | dict | Sampler = "uniform",
        num_sampled: int = 100,
        *,
        table: Table | None = None,
        use_bias: bool = True,
        normalize: bool = False,
        temperature: float = 1.0,
        row_optimizer: Any = None,
        remove_accidental_hits: bool = True,
        ignore_index: int | None = None,
        multi_label: str | None = None,
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
            multi_label=multi_label,
            max_valid=max_valid,
            **kwargs,
        )
        check_positive(num_sampled=num_sampled)
        self.sampler = samplers.get(sampler, seed=seed)
        self.num_sampled = int(num_sampled)
        self.set_sizes: tuple[int, ...] = (self.num_sampled,)
        self.remove_accidental_hits = remove_accidental_hits
        self.seed = seed
        if self.multi_label:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        if self.multi_label and self.needs_counts:
            positives.check_counts_known(self.sampler)
        if not self.sampler.built:
            self.sampler.build((self.units, hidden_shape[-1]), self.num_sampled, self.table)
        if self.sampler.follows:
            self.table.add_tracker(self.sampler)
        if self.table.tie is not None:
            self.table.tie.build_for(self, hidden_shape)

    def check_tied(self) -> None:
        for name in ("multi_label", "max_valid"):
            value = getattr(self, name)
            if value is not None:
                raise ValueError(
                    f"`{name}` must be None for a head with a `row_optimizer` and a "
                    "`TiedEmbedding`; with `row_optimizer=None` it may be given. "
                    f"Received: {name}={value!r}"
                )

    def call(
        self,
        hidden: Tensor,
        labels: Tensor | None = None,
        sample_weight: Tensor | None = None,
        sampler_inputs: Tensor | None = None,
        training: bool | None = None,
        hidden_mask: Tensor | None = None,
        labels_mask: Tensor | None = None,
    ) -> Tensor:
        """As `Head.call`; `sampler_inputs` (..., v) replaces `hidden` as the sampler's input."""
        side = self._features(hidden, sampler_inputs)
        masks = hidden_mask, labels_mask
        labels, weight, own = self._targets(hidden, labels, sample_weight, *masks)
        return self._call(hidden, labels, weight, training, **own, **side)

    def top_k(
        self,
        hidden: Tensor,
        k: int,
        sampler_inputs: Tensor | None = None,
        approximate: Any = False,
        num_candidates: int = retrieval.NUM_CANDIDATES,
    ) -> tuple[Tensor, Tensor]:
        """As `Head.top_k`; `sampler_inputs` (..., v) replaces `hidden` as the sampler's input."""
        hidden = ops.convert_to_tensor(hidden)
        if sampler_inputs is not None:
            sampler_inputs = ops.convert_to_tensor(sampler_inputs)
        side = self._features(hidden, sampler_inputs)
        return self._top_k(hidden, k, approximate, num_candidates, **side)

    def _features(self, hidden: Tensor, sampler_inputs: Tensor | None) -> dict[str, Tensor]:
        """The side input `features` (B, v), where the sampler has inputs of its own."""
        if sampler_inputs is None:
            return {}
        inputs.check_features("sampler_inputs", sampler_inputs, hidden)
        return {"features": inputs.flat_vectors(sampler_inputs)}

    def compute_output_spec(
        self, hidden: Tensor, labels: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> keras.KerasTensor:
        if kwargs.get("sampler_inputs") is not None:
            inputs.check_features("sampler_inputs", kwargs["sampler_inputs"], hidden)
        return super().compute_output_spec(hidden, labels, *args, **kwargs)

    def draw(self, features: Tensor, labels: Tensor, weight: Tensor | None = None) -> list[Samples]:
        """The sets of classes that this step's objective compares the label with.

        Examples of weight 0 get the draws of one that counts.
        """
        extra = {}
        if weight is not None and self.sampler.uses_present:
            extra["present"] = ops.not_equal(weight, 0)
        arguments = (labels, self.exclude_labels)
        draws = [
            self.sampler.sample(self.table, features, size, *arguments, **extra)
            for size in self.set_sizes
        ]
        if weight is None:
            return draws
        return [of_present(draw, weight, self.sampler.groups) for draw in draws]

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Samples]) -> Tensor:
        """Loss (B,) from the true logit (B,) and, for each draw, the logits (B, m).

        A function of these logits alone: what else is learned goes into `shift`.
        """
        raise NotImplementedError

    def shift(self, true_logit: Tensor, sampled: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The logits that the objective sees; a head with a learned offset subtracts it here."""
        return true_logit, sampled

    def training_loss(
        self,
        hidden: Tensor,
        labels: Tensor,
        weight: Tensor | None,
        features: Tensor | None = None,
        **side: Tensor,
    ) -> Tensor:
        """As `Head.training_loss`; `features` (B, v) is the sampler's input instead of hidden.

        With `label_weight` (B, P) among the side inputs, labels are (B, P).
        """
        if features is not None and weight is not None:
            features = inputs.without_absent_nan(features, weight)
        features = ops.stop_gradient(hidden if features is None else features)
        order = self.sampler.arrange(features)
        if order is not None:
            arrays = hidden, labels, weight, features, side
            hidden, labels, weight, features, side = in_order(arrays, order)
        drawn = self._drawn(features, labels, weight, side.get("label_weight"))
        blocks = [[ids for ids, _ in draw.blocks()] for draw in drawn]
        id_sets = [labels, *(ids for own in blocks for ids in own)]
        draws = [of_all_examples(draw, hidden, self.sampler.groups) for draw in drawn]

        def losses(rows: list[list[Tensor]]) -> tuple[Tensor, Any]:
            rest = iter(rows[1:])
            sets = [rows[:1], *([next(rest) for _ in own] for own in blocks)]
            return self._losses_and_state(hidden, labels, draws, sets, **side)

        result, state = row_losses(self.table, id_sets, losses, weight)
        self._store(state, **side)
        return result if order is None else ops.take(result, ops.argsort(order), axis=0)

    def _drawn(
        self, features: Tensor, labels: Tensor, weight: Tensor | None, label_weight: Tensor | None
    ) -> list[Samples]:
        """The draws; of several labels the sampler sees one, drawn by their weights."""
        if label_weight is None:
            return self.draw(features, labels, weight)
        one = positives.drawn(labels, label_weight, self.seed_generator)
        first, *others = self.draw(features, one, weight)
        true = positives.true_counts(self, features, labels, weight) if self.needs_counts else None
        return [draw._replace(true_log_expected_count=true) for draw in (first, *others)]

    def _losses_and_state(
        self,
        hidden: Tensor,
        labels: Tensor,
        draws: list[Samples],
        rows: list[list[list[Tensor]]],
        label_weight: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Losses (B,) from the gathered rows, and what `_store` gets: nothing, by default.

        `rows` are those of the labels, then of each draw: a list of the blocks that it has.
        """
        true_logit, sampled = self._logits(hidden, labels, draws, rows)
        if label_weight is not None:
            sampled = self._masked(sampled, draws, labels)
            losses = positives.each(self.objective, true_logit, sampled, draws)
            return positives.reduced(losses, label_weight, self.multi_label), ()

        def objective(true: Tensor, *others: Tensor) -> Tensor:
            return self.objective(true, self._masked(others, draws, labels), draws)

        # The gradient of the rows and that of hidden both pass through the objective.
        return share_backward(objective)(true_logit, *sampled), ()

    def _store(self, state: Any, **side: Any) -> None:
        """Keep what `_losses_and_state` returned; outside of the differentiated function."""

    def _logits(
        self, hidden: Tensor, labels: Tensor, draws: list[Samples], rows: list[list[list[Tensor]]]
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits of the labels (B,) or (B, P), and of each draw (B, m), from their rows."""
        score = self.table.paired_logits if len(labels.shape) == 1 else self.table.logits
        true_logit = score(hidden, *rows[0][0])
        sampled = [joined([self.table.logits(hidden, *x) for x in own]) for own in rows[1:]]
        return self.shift(true_logit, sampled)

    def _masked(self, sampled: Sequence[Tensor], draws: list[Samples], labels: Tensor) -> list:
        """The sampled logits, with -inf where the first draw, which competes with the label, is it.

        Other draws estimate sums over all classes.
        """
        if not self.remove_accidental_hits:
            return list(sampled)
        several = len(labels.shape) == 2
        own = draws[0].ids
        hits = positives.hits(own, labels) if several else ops.equal(own, labels[:, None])
        return [ops.where(hits, -float("inf"), sampled[0]), *sampled[1:]]

    def _without_absent(
        self, hidden: Tensor, weight: Tensor, side: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """As `Head._without_absent`: what a sampler shares is of the examples that count."""
        sampler = self.sampler
        shares = bool(sampler.share_draws) or sampler.shares_in_part
        if not shares or getattr(sampler, "kind", None) in ("static", "batch"):
            return side
        features = side.get("features", hidden)
        return {**side, "features": inputs.spread_present(features, weight)}

    def get_config(self) -> dict:
        return {**super().get_config(), "sampler": samplers.serialize(self.sampler)}
