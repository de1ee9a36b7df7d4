"""How the line of a method looks: the same on all pages. Needs no Keras.

Twelve looks, each a colour with a marker of its own, so that no two lines of a picture share
either. The colours are those of Okabe and Ito and of Tol that the colour-blind tell apart.
"""

import zlib
from collections.abc import Iterable, Mapping

LOOKS = (
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "^"),
    ("#cc79a7", "D"),
    ("#e69f00", "v"),
    ("#56b4e9", "P"),
    ("#767680", "X"),
    ("#882255", "<"),
    ("#332288", "p"),
    ("#999933", ">"),
    ("#000000", "*"),
    ("#117733", "d"),
)
# {method: index of its look}, of methods that are drawn together different ones. A name that begins
# with a method's, and is drawn without that, has its look too.
_LOOK_OF = {
    name: index
    for index, names in enumerate(
        (
            "full softbench mle",
            "nce_binary nce binary bce keras keras_log_uniform codebook_unigram rff_exact "
            "rff_shared_prior",
            "rff gbce in_batch_unigram",
            "codebook positive_shared_prior",
            "unigram popularity frequency log_uniform",
            "in_batch sce sorf nce_binary_partition codebook_K128_exact",
            "uniform products hinge",
            "exp exact optimal data top_and_tail negative_sampling uniform_per_example midx",
            "nce_ranking ranking quadratic augment_reduce peer popularity_1024 rff_shared",
            "one_vs_each mixed midx_popularity maclaurin",
            "adversarial",
            "codebook_own positive",
        )
    )
    for name in names.split()
}


def preferred(name: str) -> int:
    """Returns the index of the look that a line has where no other one has it."""
    name = name.removeprefix("rows_")
    bases = [base for base in _LOOK_OF if name == base or name.startswith(f"{base}_")]
    if bases:
        return _LOOK_OF[max(bases, key=len)]
    return zlib.crc32(name.encode()) % len(LOOKS)


def styles(lines: Iterable[str], of: Mapping[str, str] | None = None) -> dict[str, dict]:
    """Returns {line: Matplotlib's arguments}, no two with one colour or one marker.

    Args:
        lines: names of at most as many lines as there are `LOOKS`.
        of: {line: method} of names that are no methods'.
    """
    names = {line: (of or {}).get(line, line.partition(",")[0]) for line in lines}
    free, chosen = list(range(len(LOOKS))), {}
    # Methods that the table names have their look before rows that only begin like them.
    for line in sorted(names, key=lambda line: names[line].removeprefix("rows_") not in _LOOK_OF):
        wanted = preferred(names[line])
        chosen[line] = wanted if wanted in free else free[0]
        free.remove(chosen[line])
    return {line: _style(*LOOKS[chosen[line]]) for line in names}


def _style(colour: str, marker: str) -> dict:
    return {"color": colour, "marker": marker, "linestyle": "-", "linewidth": 1.4}
