"""The papers' tables and figures, and the experiment that stands for each."""

from typing import NamedTuple

from softbench.report.page import Page
from softbench.report.tables import Table, group_name


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


def index(pages: list[Page]) -> dict[str, Table]:
    """Returns {paper: table}: the page of each of its tables and figures, or how to run it."""
    known = {page.name: page for page in pages}
    header = ["in the paper", "what", "page", "state", "command"]
    return {
        paper: Table(paper, header, [_row(item, known.get(item.experiment)) for item in items])
        for paper, items in PAPERS.items()
    }


def _row(item: Item, page: Page | None) -> list[str]:
    command = f"`softbench --config=configs/{item.experiment}.py{item.flags}`"
    name = f"`{item.experiment}`"
    if page is None:
        return [item.name, item.what, name, "not run", command]
    place = f"[{page.name}]({page.name}/README.md)"
    return [item.name, item.what, place, _state(item, page), command]


def _state(item: Item, page: Page) -> str:
    """`3 of 5 rows, 2 of them shorter runs`; `run` where no rows are listed; or `not run`."""
    rows: dict[str, list[dict]] = {}
    for record in page.records:
        name = record["config"]["dataset"].get("name", "").rsplit("/", 1)[-1]
        if record["status"] == "ok" and name in (item.datasets or (name,)):
            for method in record["config"]["methods"]:
                key = method if item.methods else f"{group_name(record['config'])}-{method}"
                rows.setdefault(key, []).append(record)
    if item.datasets and not rows:
        return "not run on the paper's data"
    paper = page.plan["paper"]
    wanted = item.methods or tuple(paper)
    if not wanted:
        return "run" if rows else "not run"
    have = [name for name in wanted if name in rows]
    epochs = {name: paper.get(name, {}).get("epochs", 0) for name in have}
    short = [name for name in have if all(_shorter(r, epochs[name]) for r in rows[name])]
    state = f"{len(have)} of {len(wanted)} rows" if have else "not run"
    return f"{state}, {len(short)} of them shorter runs" if short else state


def _shorter(record: dict, epochs: int) -> bool:
    config = record["config"]
    return bool(config.get("steps_per_epoch")) or config.get("epochs", 0) < epochs
