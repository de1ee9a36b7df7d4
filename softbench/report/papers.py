"""The papers' tables and figures, and the experiment that reproduces each."""

import collections
from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from softbench.report.markdown import Markdown, code
from softbench.report.page import Page
from softbench.report.tables import Table


class Item(NamedTuple):
    """A table, figure or theorem of a paper.

    Attributes:
        name: as the paper calls it.
        what: in a few words.
        experiment: name of the results folder and of the config.
        flags: what the config needs to run it, after `--config=configs/<experiment>.py`.
        methods: the rows that it consists of; empty: every row of the paper in the experiment's
            plan, or all there is.
        datasets: the paper's data sets; empty: any.
        available: whether the data were where the experiments ran.
    """

    name: str
    what: str
    experiment: str
    flags: str = ""
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    available: bool = True


NOT_HERE = "the paper's data are not available here"
XMC = ("amazoncat-13k", "delicious-200k", "wikilshtc-325k")
EXTREME = ("wikipedia-500k", "amazon-670k")
PAPER_SIZES = " --config.preset=paper"
NUS = ("rff_nu1", "rff_nu2", "rff", "rff_nu8", "rff_nu11")
DIMENSIONS = ("rff_d256", "rff", "rff_d4096")

PAPERS: dict[str, tuple[Item, ...]] = {
    "Rawat et al. 2019, Sampled softmax with random Fourier features": (
        Item("Table 1", "error of feature maps", "kernel_mse"),
        Item("Table 2", "wall time of the sampled softmax loss", "wall_time"),
        Item(
            "Table 3",
            "extreme classification",
            "xmc",
            ":" + ",".join(XMC),
            datasets=XMC,
            available=False,
        ),
        Item("Figure 1", "Penn Treebank, T", "ptb_rff", f" --config.methods={','.join(NUS)}", NUS),
        Item(
            "Figure 2",
            "Penn Treebank, D",
            "ptb_rff",
            f" --config.methods={','.join(DIMENSIONS)}",
            DIMENSIONS,
        ),
        Item(
            "Figure 3",
            "Penn Treebank, methods",
            "ptb_rff",
            methods=("full", "exp", "uniform", "quadratic", "rff"),
        ),
        Item("Figure 4", "BNEWS, methods", "bnews", available=False),
        Item("Theorems 1 and 2", "bias of the gradient", "gradient_bias"),
    ),
    "Ma & Collins 2018, Noise contrastive estimation for conditional models": (
        Item("Figure 1", "the two objectives: `NoiseContrastive`", "quickstart"),
        Item("Table 1", "Penn Treebank, test perplexity", "ptb_nce"),
        Item("Table 2", "Penn Treebank, validation perplexity", "ptb_nce"),
        Item("Figure 2, section 5.1", "KL divergence in simulations", "nce_simulation"),
        Item("Figure 3", "KL divergence in simulations", "nce_simulation"),
        Item("Section 4.3", "counterexample to binary NCE", "nce_efficiency"),
        Item("Section 4.4", "statistical efficiency", "nce_efficiency"),
    ),
    "Bamler & Mandt 2020, Extreme classification via adversarial softmax approximation": (
        *(
            Item(name, what, "adversarial", PAPER_SIZES, datasets=EXTREME, available=False)
            for name, what in (
                ("Table 1", "data sets and learning rates"),
                ("Figure 1", "learning curves"),
            )
        ),
        Item("Theorem 2", "signal-to-noise ratio", "signal_to_noise"),
        Item("Section 3", "fitting the tree, before training", "adversarial"),
    ),
    "Stratos, Noise contrastive estimation": (
        Item("Section 1.1", "InfoNCE bounds mutual information", "mutual_information"),
        Item("Section 2.1", "local NCE's optimum, Jensen-Shannon", "mutual_information"),
    ),
}


def index(pages: list[Page]) -> list[Table]:
    """Returns a table for each paper: the page of each table and figure, or how to run it."""
    by_name = {page.name: page for page in pages}
    header = ["in the paper", "what", "page", "state", "command"]
    return [
        Table(
            paper,
            pd.DataFrame(
                [_row(item, by_name.get(item.experiment)) for item in items],
                columns=header,
                dtype=object,
            ),
        )
        for paper, items in PAPERS.items()
    ]


def _row(item: Item, page: Page | None) -> list[str]:
    command = code(f"softbench --config=configs/{item.experiment}.py{item.flags}")
    what = Markdown(item.what)
    if page is None:
        return [item.name, what, code(item.experiment), _not_run(item), command]
    return [item.name, what, page.link, _state(item, page), command]


def _not_run(item: Item) -> str:
    if not item.available:
        return f"not run: {NOT_HERE}"
    return "not run on the paper's data" if item.datasets else "not run"


def _state(item: Item, page: Page) -> str:
    """`3 of 5 rows: 13 of 13 epochs (1), 5 of 13 epochs (2); single seed`, or whether it ran."""
    runs = page.cells[page.cells["status"] == "ok"]
    if item.datasets:
        runs = runs[runs["corpus"].isin(item.datasets)]
    paper = page.plan["paper"]
    wanted = item.methods or tuple(paper)
    names = runs["method"] if item.methods else runs["group"] + "-" + runs["method"]
    runs = runs.assign(name=names)
    if wanted:
        runs = runs[runs["name"].isin(wanted)]
    if runs.empty:
        return _not_run(item)
    if item.methods:
        runs = _as_long(runs)
    rows = [_row_state(page, row_runs, paper) for _, row_runs in runs.groupby("name", sort=False)]
    state = f"{len(rows)} of {len(wanted)} rows" if wanted else "run"
    lengths = collections.Counter(length for length, _ in rows if length and wanted)
    shown = [f"{length} ({n})" if len(lengths) > 1 else length for length, n in lengths.items()]
    state += f": {', '.join(shown)}" if shown else ""
    least, most = min(seeds for _, seeds in rows), max(seeds for _, seeds in rows)
    if most == 1:
        return f"{state}; single seed" if shown else state
    return f"{state}; {least if least == most else f'{least} to {most}'} seeds"


def _as_long(runs: pd.DataFrame) -> pd.DataFrame:
    """Those of the group with most rows, of these of one with whole epochs."""
    groups = [group for _, group in runs.groupby("group", sort=False)]
    return max(groups, key=lambda group: (group["name"].nunique(), not group["cut"].all()))


def _row_state(page: Page, runs: pd.DataFrame, paper: Mapping) -> tuple[str, int]:
    """How long the longest runs of a row of training are, "" of other tasks; and their seeds."""
    train = runs[runs["task"] == "train"]
    if train.empty:
        return "", runs["seed"].nunique()
    lengths = []
    for position in train["record"]:
        config = page.records[position]["config"]
        steps = config.get("steps_per_epoch") or 0
        lengths.append((not steps, config["epochs"] * max(1, steps)))
    whole, count = longest = max(lengths)
    seeds = train["seed"][[length == longest for length in lengths]].nunique()
    if not whole:
        return f"{count:,} steps", seeds
    epochs = paper.get(runs["name"].iloc[0], {}).get("epochs")
    return (f"{count} of {epochs} epochs" if epochs else _epochs(count)), seeds


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' * (count != 1)}"
