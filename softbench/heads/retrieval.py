"""The best classes among candidates that an index names.

Shape letters: B batch, d features, n classes, M candidates.
"""

from typing import Any

from keras import ops

from softbench import partition
from softbench.common import Tensor, check_positive

NUM_CANDIDATES = 1024


def top_k(
    head: Any, hidden: Tensor, k: int, approximate: Any, num_candidates: int, side: dict
) -> tuple[Tensor, Tensor]:
    """The k best (scores, ids), each (B, k), of a codebook's candidates for hidden (B, d).

    Args:
        head: a `Head`.
        approximate: True for the codebook of its sampler, or a `softbench.serving.Index`.
        side: arrays (B, ...), by name, that its `prediction_scores` takes.
    """
    check_positive(num_candidates=num_candidates)
    if num_candidates < k:
        raise ValueError(
            "`num_candidates` must be at least k, of which they are to hold the best. "
            f"Received: num_candidates={num_candidates}, k={k}"
        )
    index = _index(head, approximate)
    head.check_inner_products()
    size = min(num_candidates, head.units)
    ids, known = index.candidates(head.table, ops.stop_gradient(hidden), size, k)

    def scores(example: tuple) -> Tensor:
        own = {name: x[None] for name, x in zip(side, example[2:], strict=True)}
        return head.prediction_scores(example[0][None], example[1][None], **own)[0]

    # One example after another: the rows (M, d) of one stay in the cache, (B, M, d) would not.
    found = ops.map(scores, (hidden, ids, *side.values()))
    return partition.largest(ops.where(known, found, -float("inf")), ids, k)


def _index(head: Any, approximate: Any) -> Any:
    """What names the candidates."""
    if approximate is True:
        sampler = getattr(head, "sampler", None)
        index = None if sampler is None else sampler.index()
        received = f"sampler={type(sampler).__name__}"
    else:
        index, received = approximate, f"approximate={approximate!r}"
    fits = hasattr(head, "table") and getattr(index, "units", None) == head.units
    if not fits or not hasattr(index, "candidates"):
        raise ValueError(
            "`approximate` must be True for a head whose sampler has a codebook ('codebook', "
            "'top_and_tail'), or an index of this head, one with a class table: "
            "`approximate=softbench.serving.Index(head)`. "
            f"Received: {type(head).__name__} with {received}"
        )
    return index


def queries(table: Any, hidden: Tensor, with_one: bool) -> Tensor:
    """[h / temperature], h of norm 1 where the table normalises, and 1 at the end if so."""
    found = table.normalized(ops.convert_to_tensor(hidden)) / table.temperature
    if not with_one:
        return found
    return ops.concatenate([found, ops.ones_like(found[..., :1])], axis=-1)
