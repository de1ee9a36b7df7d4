"""The papers' tables and figures, and the experiment that stands for each."""

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
    """

    name: str
    what: str
    experiment: str
    flags: str = ""
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()


XMC = ("amazoncat-13k", "delicious-200k", "wikilshtc-325k")
EXTREME = ("wikipedia-500k", "amazon-670k")
PAPER_SIZES = " --config.preset=paper"
NUS = ("rff_nu1", "rff_nu2", "rff", "rff_nu8", "rff_nu11")
DIMENSIONS = ("rff_d256", "rff", "rff_d4096")

PAPERS: dict[str, tuple[Item, ...]] = {
    "Rawat et al. 2019, Sampled softmax with random Fourier features": (
        Item("Table 1", "error of feature maps", "kernel_mse"),
        Item("Table 2", "wall time of the sampled softmax loss", "wall_time"),
        Item("Table 3", "extreme classification", "xmc", ":" + ",".join(XMC), datasets=XMC),
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
        Item("Figure 4", "BNEWS, methods", "bnews"),
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
        Item(
            "Table 1", "data sets and learning rates", "adversarial", PAPER_SIZES, datasets=EXTREME
        ),
        Item("Figure 1", "learning curves", "adversarial", PAPER_SIZES, datasets=EXTREME),
        Item("Theorem 2", "signal-to-noise ratio", "signal_to_noise"),
        Item("Section 3", "fitting the tree", "tree_fit"),
    ),
    "Stratos, Noise contrastive estimation": (
        Item("Section 1.1", "InfoNCE bounds mutual information", "mutual_information"),
        Item("Section 2.1", "local NCE's optimum, Jensen-Shannon", "mutual_information"),
    ),
}


def index(pages: list[Page]) -> list[Table]:
    """Returns a table for each paper: the page of each table and figure, or how to run it."""
    known = {page.name: page for page in pages}
    header = ["in the paper", "what", "page", "state", "command"]
    return [
        Table(
            paper,
            pd.DataFrame(
                [_row(item, known.get(item.experiment)) for item in items],
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
        return [item.name, what, code(item.experiment), "not run", command]
    return [item.name, what, page.link, _state(item, page), command]


def _state(item: Item, page: Page) -> str:
    """`3 of 5 rows, 2 of them shorter runs`; `run` where no rows are listed; or `not run`."""
    runs = page.cells[page.cells["status"] == "ok"]
    if item.datasets:
        runs = runs[runs["corpus"].isin(item.datasets)]
        if runs.empty:
            return "not run on the paper's data"
    paper = page.plan["paper"]
    wanted = item.methods or tuple(paper)
    if not wanted:
        return "not run" if runs.empty else "run"
    names = runs["method"] if item.methods else runs["group"] + "-" + runs["method"]
    epochs = names.map(lambda name: paper.get(name, {}).get("epochs", 0))
    shorter = (runs["cut"] | (runs["epochs"] < epochs)).groupby(names).all()
    have = [name for name in wanted if name in shorter.index]
    short = int(shorter[have].sum())
    state = f"{len(have)} of {len(wanted)} rows" if have else "not run"
    return f"{state}, {short} of them shorter runs" if short else state
