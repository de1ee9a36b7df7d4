"""Heads that train on the true class and m sampled ones."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from softbench import samplers
from softbench.common import Tensor, check_positive
from softbench.heads import components, inputs, positives, retrieval
from softbench.heads.components import Compared
from softbench.heads.negatives import NAMES, Negatives, check_shapes, flat, with_negatives
from softbench.heads.row_losses import row_losses
from softbench.heads.table_head import TableHead
from softbench.labels import check_values
from softbench.ops import share_backward
from softbench.samplers import Sampler, Samples
from softbench.state import Arguments
from softbench.table import Table
from softbench.targets import (
    PADDING,
    Targets,
    from_present,
    one_label,
    reduced,
    spread_present,
    without_absent_nan,
)


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

    It also takes `negatives` (..., k), integers padded with -1: classes, hard negatives say, that
    each example is compared with in training in addition to its draws. They are a certain
    component, as the certain classes of `top_and_tail` are: with a log E[count] of 0 each counts
    once, and a draw that is one of them does not count for that example. So a sum over all classes
    that the draws estimate without bias is so still, however the negatives were chosen, as long as
    the sampler can draw all the others. `negatives_log_count` (..., k), finite, replaces these 0:
    smaller makes them count for more. A class that is there twice counts once, as in its first
    slot; one that is a label of its example is an accidental hit. Ids out of range are treated as
    labels out of range are. What prediction corrects for (`NegativeSampling`), estimates of Z for a
    regulariser, and the exact likelihood do not depend on them.

    And it takes `excluded` (..., E), integers padded with -1: classes that an example is not
    compared with in training, what a user has had already, say, which is never recommended again. A
    draw, or one of `negatives`, that is one does not count for that example, so that sums are
    estimated over all other classes; nothing is looked up for them. A label among them stays the
    label. Ids out of range are treated as those of `negatives`.

    Args:
        sampler: name, config dict, or `Sampler`.
        num_sampled: m, the draws that an example is compared with.
        remove_accidental_hits: mask draws that equal the label, or one of several labels.
        **kwargs: of `TableHead`.
    """

    exclude_labels = True
    needs_counts = False  # whether the objective uses the labels' own expected counts
    takes_several_labels = True
    takes_negatives = True
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
        self.seed_generator: Any = None
        if self.multi_label:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, hidden_shape: tuple) -> None:
        super().build(hidden_shape)
        if not self.sampler.built:
            self.sampler.build((self.units, hidden_shape[-1]), self.num_sampled, self.table)
        if self.sampler.tracks_rows:
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

    def __call__(self, hidden: Tensor, labels: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """As `Head.__call__`; negatives in an array or a list are checked as labels are."""
        for name in ("negatives", "excluded"):
            if isinstance(kwargs.get(name), np.ndarray | list | tuple):
                kwargs[name] = np.asarray(kwargs[name])
                weight = kwargs.get("sample_weight", args[0] if args else None)
                self.check_own(name, kwargs[name], weight)
        return super().__call__(hidden, labels, *args, **kwargs)

    def check_own(self, name: str, ids: Any, sample_weight: Any = None) -> None:
        """Raise a ValueError unless ids (..., k) are -1, or in [0, n), where seen.

        Those of examples of weight 0 (...) may be anything.
        """
        check_values(name, ids, self.units, sample_weight, first=PADDING)

    def call(
        self,
        hidden: Tensor,
        labels: Tensor | None = None,
        sample_weight: Tensor | None = None,
        sampler_inputs: Tensor | None = None,
        training: bool | None = None,
        hidden_mask: Tensor | None = None,
        labels_mask: Tensor | None = None,
        negatives: Tensor | None = None,
        negatives_log_count: Tensor | None = None,
        excluded: Tensor | None = None,
    ) -> Tensor:
        """As `Head.call`; `sampler_inputs` (..., v) replaces `hidden` as the sampler's input.

        `negatives` (..., k) padded with -1 join the draws in training, and `excluded` (..., E) do
        not count, see the class.
        """
        side = self._features(hidden, sampler_inputs)
        if labels is None:
            return self.score(hidden, **side)
        targets = self.targets(hidden, labels, sample_weight, hidden_mask, labels_mask)
        own = negatives, negatives_log_count, excluded
        targets, more = self._negatives(hidden, targets, training, *own)
        return self.compare(hidden, targets, training, **side, **more)

    def _negatives(
        self, hidden: Tensor, targets: Targets, training: bool | None, *own: Any
    ) -> tuple[Targets, dict[str, Negatives]]:
        """The targets, and the side input `negatives` of a training step that has any.

        `own` has the values of `negatives.NAMES`, or None.
        """
        check_shapes(hidden, *own)
        received = {name: x for name, x in zip(NAMES, own, strict=True) if x is not None}
        if not received or not training:
            return targets, {}
        if self.table.tie is not None:
            name, x = next(iter(received.items()))
            raise ValueError(
                f"`{name}` must be left out for a head with a `row_optimizer` and a "
                "`TiedEmbedding`; with `row_optimizer=None` it may be given. "
                f"Received shape: {tuple(x.shape)}"
            )
        negatives, targets = flat(hidden, targets, self.units, *own)
        return targets, {"negatives": negatives}

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
        check_shapes(hidden, *map(kwargs.get, NAMES))
        return super().compute_output_spec(hidden, labels, *args, **kwargs)

    def draw(
        self,
        features: Tensor,
        single: Targets,
        targets: Targets | None = None,
        negatives: Negatives | None = None,
    ) -> list[list[Samples]]:
        """The sets of classes that this step's objective compares the label with.

        Each set is a list of its components. Examples of weight 0 get the draws of one that counts.

        Args:
            features: (B, v), the sampler's input.
            single: one label for each example.
            targets: all labels, where examples have several.
            negatives: what joins the first set, which competes with the label, or is not in it.
        """
        exclude = true = None
        if self.exclude_labels and self.sampler.excludes_labels:
            exclude = single.labels
        elif self.needs_counts:
            true = ops.expand_dims(single.labels, -1) if targets is None else targets.labels
        proposal = self.sampler.propose(self.table, features, exclude, single)
        seed = self.sampler.seed_generator
        sets = [proposal.samples(size, seed, true) for size in self.set_sizes]
        if true is not None and targets is None:
            sets = [[components.with_flat_count(part) for part in parts] for parts in sets]
        weight = single.counts
        if weight is not None:
            sets = [[components.of_present(x, features, weight) for x in parts] for parts in sets]
        if negatives is not None:
            labels = single.labels if targets is None else targets.labels
            sets[0] = with_negatives(sets[0], negatives, labels)
        return sets

    def objective(self, true_logit: Tensor, sampled: list[Tensor], draws: list[Compared]) -> Tensor:
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
        targets: Targets,
        features: Tensor | None = None,
        negatives: Negatives | None = None,
        **side: Tensor,
    ) -> Tensor:
        """As `Head.training_loss`.

        `features` (B, v) is the sampler's input instead of hidden, `negatives` join its draws.
        """
        if negatives is not None:
            kept = lambda x: None if x is None else from_present(x, targets.counts)  # noqa: E731
            negatives = Negatives(*map(kept, negatives))
        features = hidden if features is None else without_absent_nan(features, targets.counts)
        features = ops.stop_gradient(features)
        order = self.sampler.arrange(features)
        if order is not None:
            arrays = hidden, targets, features, negatives, side
            hidden, targets, features, negatives, side = components.in_order(arrays, order)
        several = targets.label_weight is not None
        single = one_label(targets, self.seed_generator) if several else targets
        learns = self.table.trainable and self.sampler.trainable
        if learns:
            self.sampler.observe(self.table, single)
        drawn = self.draw(features, single, targets if several else None, negatives)
        if learns:
            self.sampler.remember(single)
        ids = [targets.labels, *(part.ids for parts in drawn for part in parts)]
        own = None if negatives is None else negatives.ids
        num_negatives = 0 if own is None else own.shape[-1]
        draws = [components.joined(drawn[0], hidden, num_negatives)]
        draws += [components.joined(parts, hidden) for parts in drawn[1:]]

        def losses(rows: list[list[Tensor]]) -> tuple[Tensor, Any]:
            rest = iter(rows[1:])
            sets = [[next(rest) for _ in parts] for parts in drawn]
            return self._losses_and_state(hidden, targets, draws, rows[0], sets, **side)

        result, state = row_losses(self.table, ids, losses, targets.counts)
        self._store(state, **side)
        return result if order is None else ops.take(result, ops.argsort(order), axis=0)

    def _losses_and_state(
        self,
        hidden: Tensor,
        targets: Targets,
        draws: list[Compared],
        true_rows: list[Tensor],
        sets: list[list[list[Tensor]]],
    ) -> tuple[Tensor, Any]:
        """Losses (B,) from the gathered rows, and what `_store` gets: nothing, by default.

        `sets` are the rows of each set of draws: a list of its components.
        """
        true_logit, sampled = self._logits(hidden, targets, true_rows, sets)
        if targets.label_weight is not None:
            sampled = self._masked(sampled, draws, targets)
            losses = positives.each(self.objective, true_logit, sampled, draws)
            return reduced(losses, targets.label_weight, self.multi_label), ()

        def objective(true: Tensor, *others: Tensor) -> Tensor:
            return self.objective(true, self._masked(others, draws, targets), draws)

        # The gradient of the rows and that of hidden both pass through the objective.
        return share_backward(objective)(true_logit, *sampled), ()

    def _store(self, state: Any, **side: Any) -> None:
        """Keep what `_losses_and_state` returned; outside of the differentiated function."""

    def _logits(
        self,
        hidden: Tensor,
        targets: Targets,
        true_rows: list[Tensor],
        sets: list[list[list[Tensor]]],
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits of the labels (B,) or (B, P), and of each set of draws (B, m), from their rows."""
        several = targets.label_weight is not None
        score = self.table.logits if several else self.table.paired_logits
        true_logit = score(hidden, *true_rows)
        sampled = [
            components.side_by_side([self.table.logits(hidden, *x) for x in parts])
            for parts in sets
        ]
        return self.shift(true_logit, sampled)

    def _masked(self, sampled: Sequence[Tensor], draws: list[Compared], targets: Targets) -> list:
        """The sampled logits, with -inf where the first set, which competes with the label, is it.

        Other sets estimate sums over all classes.
        """
        if not self.remove_accidental_hits:
            return list(sampled)
        ids = draws[0].ids
        if targets.label_weight is None:
            hits = ops.equal(ids, targets.labels[:, None])
        else:
            hits = positives.hits(ids, targets.labels)
        return [ops.where(hits, -float("inf"), sampled[0]), *sampled[1:]]

    def _without_absent(
        self, hidden: Tensor, weight: Tensor, side: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """As `Head._without_absent`: what examples share is of those that count."""
        if self.sampler.per_example or "input" not in self.sampler.depends_on:
            return side
        features = side.get("features", hidden)
        return {**side, "features": spread_present(features, weight)}

    def get_config(self) -> dict:
        return {**super().get_config(), "sampler": samplers.serialize(self.sampler)}
