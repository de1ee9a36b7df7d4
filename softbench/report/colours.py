"""How the line of a method looks: the same on all pages. Needs no Keras.

A family of methods has one colour (Okabe and Ito 2008, which the colour-blind tell apart), each
method in it another marker. Filled markers go with solid lines, open ones with dashed lines.
"""

import itertools
import re
import zlib
from collections.abc import Iterable, Mapping

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito
GREY = "#767680"
SHAPES = "osD^vPX<>p"
_DASHED = (0, (5, 1.5))
# {family: (colour, methods in the order of their markers)}. A name that begins with a method's has
# the colour of its family too.
_FAMILIES = {
    "exact": ("#0072b2", "full exp exact optimal product exp_product exp_shared"),
    "uniform": (GREY, "uniform uniform_r1000 uniform_256"),
    "class frequencies": (
        "#e69f00",
        "unigram popularity frequency log_uniform unigram_shared unigram_shared_unique",
    ),
    "labels of the batch, and mixtures": ("#56b4e9", "in_batch mixed mixed_shared"),
    "kernels": (
        "#009e73",
        "rff sorf quadratic positive maclaurin positive_shared positive_shared_prior rff_shared "
        "rff_shared_prior rff_1000 rff_500 rff_200 rff_50",
    ),
    "structure of the table or the data": ("#cc79a7", "codebook top_and_tail adversarial sce"),
    "noise-contrastive, logistic and other losses": (
        "#d55e00",
        "nce_binary nce_ranking nce binary ranking negative_sampling gbce bce one_vs_each hinge "
        "augment_reduce peer keras",
    ),
}
_FIXED = {
    name: (colour, marker)
    for colour, names in _FAMILIES.values()
    for marker, name in enumerate(names.split())
}
_NUM_MARKERS = 2 * len(SHAPES)


def styles(labels: Iterable[str], of: Mapping[str, str] | None = None) -> dict[str, dict]:
    """Returns {label: Matplotlib's arguments of its line}; no two have both colour and marker.

    Args:
        labels: of the lines of one plot: names of methods, perhaps with ", ..." or " *" behind, or
            others, which take the colours in turn.
        of: {label: method} of those that do not begin with it.
    """
    labels = list(labels)
    names = {label: (of or {}).get(label, re.split(r"[, ]", label)[0]) for label in labels}
    taken: set[tuple[str, int]] = set()
    chosen = {}
    # Methods that the table names come first, then rows of them that say more, then all others.
    order = sorted(labels, key=lambda label: (names[label] not in _FIXED, label != names[label]))
    for label in order:
        wanted = _wanted(names[label], len(chosen))
        markers = [(wanted[1] + step) % _NUM_MARKERS for step in range(_NUM_MARKERS)]
        # A family with more lines than there are markers borrows the others' colours.
        tries = itertools.product((wanted[0], *COLOURS), markers)
        chosen[label] = next((pair for pair in tries if pair not in taken), wanted)
        taken.add(chosen[label])
    return {label: style(*chosen[label]) for label in labels}


def _wanted(name: str, index: int) -> tuple[str, int]:
    """Colour and marker of a method, or of a line that is none, by its index."""
    if name in _FIXED:
        return _FIXED[name]
    family = colour(name)
    if family is None:
        return COLOURS[index % len(COLOURS)], index % len(SHAPES)
    return family, zlib.crc32(name.encode()) % _NUM_MARKERS


def colour(name: str) -> str | None:
    """Returns the colour of a method's family; None of a name that is no method's."""
    name = name.removeprefix("rows_")
    bases = [base for base in _FIXED if name == base or name.startswith(f"{base}_")]
    return _FIXED[max(bases, key=len)][0] if bases else None


def style(colour: str, marker: int) -> dict:
    """Returns Matplotlib's arguments of a line; `marker` counts filled `SHAPES`, then open ones."""
    is_open, shape = divmod(marker, len(SHAPES))
    return {
        "color": colour,
        "marker": SHAPES[shape],
        "markerfacecolor": "none" if is_open else colour,
        "linestyle": _DASHED if is_open else "-",
        "linewidth": 1.4,
    }
