"""Rawat et al. (2019), Table 3: extreme classification by sampled softmax methods, precision@k.

    softbench --config=configs/xmc.py --data_dir=<folder with xmc/ and wd50k/> --backend=jax
    softbench --config=configs/xmc.py:delicious,bibtex --data_dir=...
    softbench --config=configs/xmc.py:wikilshtc-325k --data_dir=<prepared root>

After the colon: any of delicious, bibtex, citeulike-t, wd50k (together the default) and the paper's
sets amazoncat-13k, delicious-200k, wikilshtc-325k, whose files a person has to download; prepare
those first (`softbench-prepare --dataset=xmc/wikilshtc-325k --data_dir=... --out=...`).

Rows are bags of features times a (v, 128) table, normalised, against normalised class vectors of
128 dims, 100 draws; one of a row's labels is the target of each visit. wd50k predicts the tail of a
triple from its head and relation. Methods are compared at equal numbers of training steps, as in
the paper. `*_rows` update the touched rows of both tables alone (Adagrad): dense updates are out of
reach at v = 1.6M. `adversarial` draws from a tree fitted to the features beforehand (ridge 1, not
tuned; 10 on wd50k, whose entities are too rare for less). `rff_exact`, whose shares within blocks
of 32 classes are the softmax's, and `rff_shared`, 1,000 draws for the batch, are rows to ask for
(`--config.methods`), as are `full_all` and `rff_all`, which train on up to 64 labels of a row at
each visit instead of one. The paper does not name optimizer, batch or epochs: Adam 5e-3 and batch
128 are ours, the same for all methods.
"""

from softbench.bench.config import ConfigError, experiment
from softbench.bench.methods import (
    HUGE_PAGES,
    NORMALISED,
    SMALL_LABELS,
    SMALL_TIMING,
    SMALL_TRIPLES,
    adagrad,
    full,
    noise,
    normalised,
    sampled,
    with_row_updates,
)

ROWS = adagrad(0.1)
HERE = "delicious,bibtex,citeulike-t,wd50k"
METHODS = ("full", "exp", "uniform", "quadratic", "rff", "sorf", "nce", "adversarial")
COLUMNS = ("test_precision_at_1", "test_precision_at_3", "test_precision_at_5")
# {set: {method: precision@1, 3, 5}}
PAPER = {
    "amazoncat-13k": {
        "exp": (0.87, 0.76, 0.62),
        "uniform": (0.83, 0.69, 0.55),
        "quadratic": (0.84, 0.74, 0.60),
        "rff": (0.87, 0.75, 0.61),
    },
    "delicious-200k": {
        "exp": (0.42, 0.38, 0.37),
        "uniform": (0.36, 0.34, 0.32),
        "quadratic": (0.40, 0.36, 0.34),
        "rff": (0.41, 0.37, 0.36),
    },
    "wikilshtc-325k": {
        "exp": (0.58, 0.37, 0.29),
        "uniform": (0.47, 0.29, 0.22),
        "quadratic": (0.57, 0.37, 0.28),
        "rff": (0.56, 0.35, 0.26),
    },
}


def method_table():
    """The methods, and all but the full softmax again with row updates."""

    rff, tree = {"num_features": 1024, "nu": 4.0}, {"num_components": 16}
    table = {
        "full": full(**NORMALISED),
        "full_all": full(**NORMALISED, multi_label="mean"),
        "exp": normalised("exp"),
        "uniform": normalised("uniform"),
        "quadratic": normalised("quadratic", absolute=True),
        "rff": normalised("rff", **rff),
        "sorf": normalised("sorf", **rff),
        "rff_exact": normalised("rff", **rff, within_block="exact"),
        "rff_shared": normalised("rff", 1000, **rff, share_draws=True),
        "rff_all": sampled("rff", 100, {**NORMALISED, "multi_label": "mean"}, **rff),
        "adversarial": normalised("adversarial", **tree, regularization=1.0),
        "adversarial_r10": normalised("adversarial", **tree, regularization=10.0),
        "nce": noise("ranking", 100, NORMALISED),
    }
    rows = {
        f"{name}_rows": with_row_updates(method, ROWS)
        for name, method in table.items()
        if not name.startswith("full")
    }
    return table | rows


def problem(name, epochs, **dataset):
    """Bags of features."""
    return {
        "dataset": {"name": f"xmc/{name}", "label": name, **dataset},
        "model": {"name": "bag", "dim": 128, "normalize": True, "batch_size": 128},
        "epochs": epochs,
        "methods": ",".join(METHODS),
    }


def paper_problem(name, max_features):
    """Bags of features whose tables take row updates."""
    result = problem(name, 5)
    result["model"] |= {"max_features": max_features, "row_optimizer": ROWS, "prefetch": 2}
    return result | {"methods": ",".join(f"{m}_rows" for m in METHODS if m != "full")}


def problems():
    """Every problem by the name that selects it."""
    triples = {
        "dataset": {"name": "wd50k"},
        "model": {"name": "pair", "dim": 128, "hidden_units": 256, "batch_size": 512},
        "epochs": 2,
        "methods": ",".join((*METHODS[:-1], "adversarial_r10")),
    }
    found = {
        "delicious": problem("delicious", 10),
        "bibtex": problem("bibtex", 20),
        "citeulike-t": problem("citeulike-t", 10, valid_fraction=0.05),
        "wd50k": triples,
        "amazoncat-13k": paper_problem("amazoncat-13k", 256),
        "delicious-200k": paper_problem("delicious-200k", 512),
        "wikilshtc-325k": paper_problem("wikilshtc-325k", 128),
    }
    table = method_table()

    def every(name):
        return ",".join(m for m in table if name != "wd50k" or "_all" not in m)  # of one label

    return {name: {**part, "on_request": every(name)} for name, part in found.items()}


def small(problem):
    """The problem on a generated set of a few examples."""
    pairs = problem["model"]["name"] == "pair"
    dataset = SMALL_TRIPLES if pairs else SMALL_LABELS
    return {**problem, "dataset": dataset, "epochs": 1, "on_request": ""}


def get_config(sets=None):
    """Returns the experiment on the comma-separated sets."""
    known = problems()

    def some(names):
        return {name: known[name] for name in names}

    chosen = [name.strip() for name in (sets or HERE).split(",") if name.strip()]
    smoke = chosen if sets else ("delicious", "wd50k", "wikilshtc-325k")
    unknown = [name for name in chosen if name not in known]
    if unknown or sets == "":
        raise ConfigError(f"After the colon: {', '.join(known)}. Received: {sets!r}")
    return experiment(
        "xmc",
        title="Extreme classification: Rawat et al. 2019, Table 3",
        problems=some(chosen),
        method_table=method_table(),
        optimizer={"name": "adam", "learning_rate": 5e-3},
        cell_timeout_s=6 * 3600.0,
        curves_against="step",
        # Huge pages: scores of all classes, and rows of all draws, are gone through once a step.
        environment=HUGE_PAGES,
        columns=(
            *COLUMNS,
            "test_ps_precision_at_1",
            "test_ndcg_at_5",
            "test_perplexity",
            "test_recall_at_5_head",
            "test_recall_at_5_torso",
            "test_recall_at_5_tail",
            "step_ms",
        ),
        presets={
            "smoke": {
                "problems": {name: small(problem) for name, problem in some(smoke).items()},
                "methods": "full,rff,rff_rows",
                "timing": SMALL_TIMING,
            },
            "paper": {} if sets else {"problems": some(PAPER)},
        },
        paper={
            f"{name}-bag-{method}_rows": dict(zip(COLUMNS, values, strict=True))
            for name, rows in PAPER.items()
            for method, values in rows.items()
        },
    )
