"""Every sampler of the registry in its variants, and the distribution that each must draw from.

A new sampler gets an entry in `CASES` and, if its distribution is new, one in `distribution`.
"""

import numpy as np
import reference
import small
from conftest import TOP_SIZE, to_numpy
from small import spec

from softbench import samplers

B, D = 3, 4
STATIC = {"per_example": {}, "shared": {"share_draws": True}, "unique": {"unique": True}}


def kernel_variants(block_size, shared_block_size, **config):
    """Few features, and blocks so small that 33 and 100 classes have two levels or three."""
    shared = {**config, "block_size": shared_block_size, "share_draws": True}
    return {"per_example": {**config, "block_size": block_size}, "shared": shared}


KERNELS = {
    "quadratic": kernel_variants(4, 1, alpha=3.0),
    "rff": kernel_variants(4, 2, num_features=32, nu=1.0),
    "sorf": kernel_variants(1, 8, num_features=12),
    "maclaurin": kernel_variants(3, 4, num_features=32, nu=0.5),
    "positive": kernel_variants(2, 4, num_features=32),
}
RFF = spec("rff", num_features=32, nu=1.0, block_size=4)
MIXED = {"first": "uniform", "second": "exp"}
NESTED = {"first": "exp", "second": spec("mixed", first="uniform", second=RFF), "weight": 0.4}
# registry name -> variant -> arguments
CASES = {
    "adversarial": {
        "per_example": {"num_components": 3},
        "shared": {"num_components": 3, "share_draws": True},
    },
    "codebook": {
        "per_example": {"num_codewords": 20},
        "shared": {"num_codewords": 4, "share_draws": True},
        "exact_per_example": {"num_codewords": 3, "within_cell": "exact", "window": 4},
        "exact_shared": {"within_cell": "exact", "window": 8, "share_draws": True},
    },
    "uniform": STATIC,
    "log_uniform": STATIC,
    "unigram": STATIC,
    "exp": {"per_example": {}, "shared": {"share_draws": True}},
    "in_batch": {"counts": {}, "streaming": {}, "memory": {"memory": 5}},
    # Draws of several shapes, and sums of counts that are not one: tests/test_top_and_tail.py.
    "top_and_tail": {
        "groups": {"num_top": 3, "share_draws": 2},
        "batch": {"num_top": 2, "share_draws": True},
    },
    "mixed": {
        "per_example": MIXED,
        "shared": {**MIXED, "weight": 0.3, "share_draws": True},
        "nested_per_example": NESTED,
    },
    **KERNELS,
}
EVERY = [f"{name}-{variant}" for name, variants in CASES.items() for variant in variants]


NAN = float("nan")
BAD_COUNTS = [
    {"counts": bad}
    for bad in ([1, 2], [1, 2, 3, 4], [0, 0, 0], [1, -1, 2], [1, NAN, 1], [[1, 2, 3]], [])
]
TWO = {"first": "uniform", "second": "exp"}
UNIQUE = {"first": spec("unigram", counts=[3, 2, 1], unique=True)}
COUNTED = {"counts": [3, 2, 1], "num_top": 1}
# registry name -> arguments that it refuses for three classes and two draws; the first is at fault
REFUSED = {
    "uniform": [{"share_draws": groups} for groups in (0, -2, 1.5, "16")],
    "unigram": BAD_COUNTS,
    "exp": [{"share_draws": 4}],
    "in_batch": [
        *BAD_COUNTS,
        *({"memory": bad} for bad in (-1, 2.5, None, "9")),
        *({"share_draws": bad} for bad in (False, 4)),
        {"smoothing": 0},
    ],
    "rff": [
        *({"block_size": bad} for bad in (0, 2.5)),
        *({"floor": bad} for bad in (-0.1, NAN)),
        {"num_features": 0},
        {"nu": 0.0},
        {"prior": [1.0, -1.0]},
        {"prior": [1.0, 2.0], "num_features": 2},
        {"refresh_every": 0},
        {"share_draws": 4},
        {"within_block": "softmax"},
    ],
    "quadratic": [{"alpha": 0}, {"share_draws": 4}],
    "codebook": [
        *({"counts": bad} for bad in ("train", [1.0, -1.0], [1.0, 2.0])),
        *({"num_codewords": bad} for bad in (0, 1.5)),
        {"prior": [1.0, 2.0]},
        {"quantizer": "vector"},
        {"refresh_every": 0},
        {"share_draws": 6},
        {"share_draws": 4, "within_cell": "exact"},
        {"window": 0},
        {"within_cell": "features"},
    ],
    "mixed": [
        *({"num_sampled": bad, **TWO} for bad in ((3,), (0, 2), 5, (1, 2, 3))),
        {"share_draws": 4, **TWO},
        {"share_draws": True, **UNIQUE, "second": spec("exp", share_draws=False)},
        {"weight": 1.0, **TWO},
    ],
    "top_and_tail": [
        {"counts": [1.0, NAN, 1.0]},
        {"num_candidates": 1, **COUNTED},
        {"num_top": 0, "counts": [3, 2, 1]},
        *({"share_draws": bad, **COUNTED} for bad in (3, 0, 6)),
        {"share_draws": 4, "tail": "exp", **COUNTED},
        *({"top": bad, **COUNTED} for bad in ("unigram", spec("codebook", within_cell="exact"))),
    ],
}


def class_counts(n):
    """Frequencies (n,), unsorted, one of them 0 where there are three classes or more."""
    counts = np.random.default_rng(n).permutation(1000 // np.arange(1, n + 1) + 1).astype(float)
    if n >= 3:
        counts[n // 2] = 0
    return counts


def tree_points(n):
    """Features (N, D) and labels (N,), some classes without a point."""
    rng = np.random.default_rng(n)
    centres = rng.normal(0, 1, (n, D))
    labels = rng.integers(n, size=3 * n)
    return centres[labels] + rng.normal(0, 0.5, (3 * n, D)), labels


def make(case, n, seed=11):
    """The sampler of a case "<name>-<variant>" for n classes."""
    name, variant = case.split("-")
    config = dict(CASES[name][variant], seed=seed)
    if name == "adversarial":
        return small.make_sampler(name, **config).fit(*tree_points(n), n, verbose=0)
    if name == "unigram":
        config.update(counts=class_counts(n).tolist(), power=0.75)
    if name == "codebook":
        config.update(prior=class_counts(n).tolist(), prior_power=0.5, counts="equal")
    if name == "top_and_tail":
        config.update(counts=class_counts(n).tolist(), top=spec("codebook", num_codewords=4))
    if case == "in_batch-counts":
        config.update(counts=(class_counts(n) + 1).tolist())
    return small.make_sampler(name, **config)


def make_table(n):
    table = small.make_table(n, D, seed=n, temperature=0.7)
    table.bias.assign(0.5 * to_numpy(table.bias))
    return table


def batch(n):
    hidden = np.random.default_rng(n + 1).normal(0, 0.7, (B, D)).astype("float32")
    return hidden, np.array([0, n // 2, n - 1], "int32")


def reference_features(features, x, query=False):
    """phi (N, D) in float64 of x by the saved directions of a map, as a query if so."""
    saved = {v.name: to_numpy(v).astype(float) for v in features.weights}
    name = type(features).__name__
    if name == "Quadratic":
        return reference.quadratic_features(x, features.alpha)
    nu, size = features.nu, features.num_features
    if name == "RandomMaclaurin":
        return reference.maclaurin_features(x, saved["directions"], features.counts, size, nu)
    if name == "PositiveRandom":
        phi = reference.positive_features(x, saved["directions"], nu)
        return phi / phi.max(-1, keepdims=True) if query else phi
    if name == "StructuredFourier":
        directions = reference.structured_directions(saved["signs"], nu, x.shape[1], size)
    else:
        directions = saved["directions"]
    return reference.fourier_features(x, directions, nu, *([0.0] if query else []))


def kernel_reference(sampler, table, hidden, labels=None):
    """q (B, n) in float64 of a kernel sampler that was built under `small_top`."""
    config = sampler.get_config()
    rows, hidden = to_numpy(table.kernel).astype(float), np.asarray(hidden, float)
    bias = np.zeros(len(rows)) if table.bias is None else to_numpy(table.bias).astype(float)
    if table.normalize:
        norms = np.linalg.norm(rows, axis=-1, keepdims=True)
        rows = rows / np.where(norms > 0, norms, 1.0)
        hidden = hidden / np.linalg.norm(hidden, axis=-1, keepdims=True)
    counts = np.ones(len(rows)) if config["prior"] is None else np.array(config["prior"])
    prior = np.where(counts > 0, (counts / counts.max()) ** config["prior_power"], 0.0)
    floor = config["floor"]
    if floor is None:
        positive = type(sampler.features).__name__ in ("Quadratic", "PositiveRandom")
        floor = 0.0 if positive else 0.1
    scores = None
    if config["within_block"] == "exact":
        scores = reference.scores(hidden, rows, bias, False, table.temperature, table.absolute)
    return reference.kernel_distribution(
        reference_features(sampler.features, hidden, query=True),
        reference_features(sampler.features, rows),
        prior * np.exp(bias),
        prior,
        config["block_size"],
        TOP_SIZE,
        floor,
        None if sampler.share_draws else labels,
        scores,
        sampler.share_draws,
        16 if sampler.blocks is None else sampler.blocks.branching,
    )


def codebook_reference(sampler, table, hidden, labels=None):
    """q (B, n) in float64 of a codebook sampler, from its codewords and the classes' cells."""
    config, cells = sampler.get_config(), sampler.cells
    hidden, rows = np.asarray(hidden, float), to_numpy(table.kernel).astype(float)
    bias = np.zeros(len(rows)) if table.bias is None else to_numpy(table.bias).astype(float)
    counts = np.ones(len(rows)) if config["prior"] is None else np.array(config["prior"])
    weight = np.where(counts > 0, (counts / counts.max()) ** config["prior_power"], 0.0)
    scores = reference.scores(hidden, rows, bias, table.normalize, table.temperature)
    if table.normalize:
        norms = np.linalg.norm(hidden, axis=-1, keepdims=True)
        hidden = hidden / np.where(norms > 0, norms, 1.0)
    first, second = (to_numpy(v).astype(float) for v in sampler.codewords)
    start = first.shape[1] if config["quantizer"] == "product" else 0
    parts = hidden[:, : first.shape[1]], hidden[:, start:]
    cell = np.stack(np.divmod(to_numpy(cells.cell), len(second)), axis=1)
    return reference.codebook_distribution(
        parts[0] @ first.T / table.temperature,
        parts[1] @ second.T / table.temperature,
        cell,
        weight * np.exp(bias),
        to_numpy(cells.order),
        config["window"] if config["within_cell"] == "exact" else None,
        None if sampler.share_draws else labels,
        scores,
        sampler.share_draws,
    )


FOLLOWING = {**dict.fromkeys(KERNELS, kernel_reference), "codebook": codebook_reference}
STATIC_WEIGHTS = {
    "uniform": lambda n, config: reference.uniform_distribution(n),
    "log_uniform": lambda n, config: reference.log_uniform_distribution(n),
    "unigram": lambda n, config: reference.unigram_distribution(config["counts"], config["power"]),
}


def distribution(sampler, table, hidden, labels=None):
    """q (B, n) or (1, n) in NumPy of a sampler that is built for the table.

    Without the labels if they are given and the sampler draws for each example; of draws without
    replacement it is the inclusion probabilities.
    """
    name, config = samplers.serialize(sampler)["class_name"], sampler.get_config()
    labels = labels if sampler.per_example else None
    if name == "mixed":
        sizes = sampler.sizes(sampler.num_sampled)
        parts = zip(sizes, (sampler.first, sampler.second), strict=True)
        return sum(m * distribution(part, table, hidden, labels) for m, part in parts) / sum(sizes)
    if name in FOLLOWING:
        return FOLLOWING[name](sampler, table, hidden, labels)
    if name == "adversarial":
        arrays = [sampler.kept(key) for key in ("mean", "components", "nodes", "leaf_of_label")]
        return reference.tree_distribution(hidden, *arrays, labels, sampler.share_draws)
    if name == "exp":
        arrays = to_numpy(table.kernel), to_numpy(table.bias)
        q = reference.softmax(reference.scores(hidden, *arrays, temperature=table.temperature))
        q = q.mean(0, keepdims=True) if sampler.share_draws else q
    else:
        q = STATIC_WEIGHTS[name](table.units, config)[None]
        if sampler.unique:
            return reference.inclusion_probabilities(q[0], sampler.num_sampled)[None]
    if labels is None:
        return q
    q = np.where(np.arange(table.units) == labels[:, None], 0.0, q)
    total = q.sum(-1, keepdims=True)
    return q / np.where(total > 0, total, 1.0)
