"""How a kernel sampler cuts its classes into blocks: sizes chosen by what a draw costs."""

from softbench.samplers.kernel.features import FeatureMap

# Draws of one example for which a product with all classes costs less than a descent.
DENSE_CLASSES_PER_DRAW = 128
DENSE_LEAVES_PER_DRAW = {False: 128, True: 16}  # by share_draws; the same for leaf blocks
TOP_NODES_PER_DRAW = {False: 256, True: 32}  # by share_draws
FEWEST_TOP_NODES = 1024
# Nodes joined by one above: of short feature vectors many, as each level costs; of long
# ones few, as a draw reads all children of the nodes on its path.
BRANCHING, LONG_BRANCHING = 16, 4
LONG_FEATURES = 512
LONG_TOP_NODES_PER_DRAW = {False: 0, True: 8}  # by share_draws
# Numbers that the leaf sums may hold, by whether phi is exact, unless the table is larger still.
# The random features of a block's classes are dear, so these sums may fill half a GB: with n =
# 41,000 and 1,024 Fourier features a block is one class then, and a step takes a quarter as long.
FREE_SUMS = {False: 2**27, True: 2**25}
# Fewest classes in a block whose shares are those of the softmax. Of 16 to 512 the cheapest at n =
# 325,000 and 500,000 with 1,000 features; of one class there would be no share to speak of.
EXACT_BLOCK = 32


def default_block_size(
    units: int, width: int, features: FeatureMap, share_draws: bool, num_sampled: int, exact: bool
) -> int:
    """Classes in a leaf block, b.

    Args:
        units: n.
        width: d.
        features: the map, built.
        share_draws: whether the batch shares its draws.
        num_sampled: m.
        exact: whether shares within a block are those of the scores.
    """
    if features.exact and not share_draws and units <= DENSE_CLASSES_PER_DRAW * num_sampled:
        return units
    numbers = max((1 if features.exact else 4) * units * width, FREE_SUMS[features.exact])
    size = EXACT_BLOCK if exact else 1
    while units // size * features.dim > numbers:
        size *= 2
    return size


def shape_of_levels(leaves: int, dim: int, share_draws: bool, num_sampled: int) -> tuple[int, int]:
    """The most nodes that the top level may have, and how many nodes one above joins.

    Args:
        leaves: number of leaf blocks.
        dim: length of a feature vector.
        share_draws, num_sampled: as above.
    """
    short = dim <= LONG_FEATURES
    per_draw = (TOP_NODES_PER_DRAW if short else LONG_TOP_NODES_PER_DRAW)[share_draws]
    top = max(FEWEST_TOP_NODES, per_draw * num_sampled)
    if short:
        return top, BRANCHING
    few = leaves <= DENSE_LEAVES_PER_DRAW[share_draws] * num_sampled
    return (leaves if few else top), LONG_BRANCHING
