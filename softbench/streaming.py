"""How a loss over all classes is computed without holding more than some of the scores (B, n).

`Table.class_losses` uses it. The work is done in `softbench/ops/streaming_*.py`, in blocks of C
classes: products with a block's rows, and what is made of them while it is in the caches.

Shape letters: B batch, n classes, R rows of a tile, C classes of a block.
"""

from typing import NamedTuple

from softbench.ops import on_cpu


class Sizes(NamedTuple):
    """Sizes that suit a kind of device.

    Attributes:
        kept: scores (R, n) that a tile may keep, float32.
        rows: R at most. More rows pass over the table's gradient less often.
        fewest: R at least: below, passing over the table takes longer than a second computation
            of the scores.
        block: C at most.
    """

    kept: int
    rows: int
    fewest: int
    block: int


# Two cores, B = 512, n = 65,536, d = 512, float32, of the three products alone: 1.07 with R = 256,
# 1.22 with 128, 1.28 without tiles. Blocks of 1,024 classes stay in the caches: 1.11 to 1.14 where
# 4,096 take 1.23 (B = d = 256). An accelerator wants larger products; its sizes are not measured.
CPU = Sizes(2**25, 256, 96, 1024)
ACCELERATOR = Sizes(2**28, 4096, 512, 16_384)


def tile(
    batch: int | None, units: int, class_chunk: int | None, keep: bool = True
) -> tuple[int, int]:
    """R and C for B examples, None if not known, and n classes; R = 0: no tile keeps its scores.

    Args:
        batch, units: B and n.
        class_chunk: as in `FullSoftmax`: at most B times as many scores are held.
        keep: whether tiles may keep their scores.
    """
    sizes = CPU if on_cpu() else ACCELERATOR
    block = min(units, sizes.block, class_chunk or units)
    if not keep or batch is None:
        return 0, block
    kept = sizes.kept if class_chunk is None else batch * class_chunk
    rows = min(kept // units, sizes.rows, batch)
    return (rows if rows >= min(sizes.fewest, batch) else 0), block
