"""What the front page says of costs: steps, draws that follow the scores, proposals. No Keras."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from softbench.bench.report_choices import REFERENCE, sampler_name
from softbench.bench.report_page import Page
from softbench.bench.report_tables import Table, number

KERNELS = ("quadratic", "rff", "sorf", "maclaurin", "positive")
_EXACT = "exp"
_STEPS = """\
A whole step, forward, backward and update; the methods of a row of this table took turns in one
process. `full` / fastest tells what sampling saves, the last ratio what updating only the touched
rows saves on the same sampled softmax."""
_DRAWS = """\
The forward loss with draws from the softmax itself, and with draws from a kernel's sums over blocks
of classes. Above 1 in the last ratio, the sums pay."""
_PROPOSALS = """\
The proposal of each kind that is nearest to the softmax of a trained head. An effective sample size
of 10 % says that 10 draws do the work of one from the softmax."""


class Section(NamedTuple):
    """A part of the decision table.

    Attributes:
        answer: one sentence that its rows bear out; empty without rows.
        words: what the table shows, and by which rule.
        table: with the page that each row comes from in the last column.
    """

    answer: str
    words: str
    table: Table


def link(page: Page) -> str:
    """Returns a link from the front page to a page."""
    return f"[{page.name}]({page.name}/README.md)"


def steps(pages: Iterable[Page]) -> Section:
    """The fastest step for each backend, device and n, against the full softmax.

    The last ratio is of rows that differ in the optimizer alone: `keras_x` over `rows_x`.
    """
    rows, ratios, links = [], {}, {}
    for page in pages:
        for record in sorted(page.ok("step_time"), key=_place):
            times = {name: step["step_ms"]["median"] for name, step in record["steps"].items()}
            own = {k: time for k, time in times.items() if time and not k.startswith("peer_")}
            if REFERENCE not in own or len(own) < 2:
                continue
            best = min(own, key=own.get)
            twins = {k: f"rows_{k.removeprefix('keras_')}" for k in own if k.startswith("keras_")}
            pairs = [own[name] / own[twin] for name, twin in twins.items() if twin in own]
            ratio = own[REFERENCE] / own[best]
            ratios.setdefault(record["num_classes"], []).append(ratio)
            links[link(page)] = None
            row = [*_where(record), number(own[REFERENCE]), f"`{best}`", number(own[best])]
            row += [number(ratio), number(max(pairs)) if pairs else "-", link(page)]
            rows.append(row)
    header = ["backend", "n", f"`{REFERENCE}`, ms", "fastest", "ms", f"`{REFERENCE}` / fastest"]
    header += ["Keras' optimizer / row optimizer", "page"]
    what = f"a step of the fastest row is {{}} times shorter than one of `{REFERENCE}`"
    answer = _from(ratios, what, links)
    return Section(answer, _STEPS, Table("The cost of a training step", header, rows))


def draws(pages: Iterable[Page]) -> Section:
    """The loss with draws by a kernel's sums against that with exact draws, at each n."""
    rows, ratios, links = [], {}, {}
    for page in pages:
        for record in sorted(page.ok("wall_time"), key=_place):
            times = {k: v["loss"]["step_ms"]["median"] for k, v in record["wall_time"].items()}
            methods, exact = record["config"]["methods"], times.get(_EXACT)
            kernels = {
                name: time
                for name, time in times.items()
                if time and sampler_name(methods[name]) in KERNELS
            }
            if not kernels or not exact:
                continue
            least, most = (choose(kernels, key=kernels.get) for choose in (min, max))
            low, high = exact / kernels[most], exact / kernels[least]
            ratios.setdefault(record["num_classes"], []).extend([low, high])
            links[link(page)] = None
            row = [*_where(record), record["config"]["model"]["label"], number(exact)]
            row += [f"`{least}` {number(kernels[least])}", f"`{most}` {number(kernels[most])}"]
            rows.append([*row, f"{number(low)} to {number(high)}", link(page)])
    header = ["backend", "n", "batch, m", "exact draws, ms", "least of the kernels, ms"]
    header += ["most, ms", "exact / kernel", "page"]
    what = "the loss with any of the kernels is {} times cheaper than with exact draws"
    answer = _from(ratios, what, links)
    return Section(answer, _DRAWS, Table("Draws that follow the scores", header, rows))


def _from(ratios: Mapping[int, list[float]], what: str, links: Iterable[str]) -> str:
    """From which n on all ratios are above 1, and their range there."""
    if not ratios:
        return ""
    below = [n for n, values in ratios.items() if min(values) <= 1]
    above = [n for n in sorted(ratios) if n > max(below, default=0)]
    place = ", ".join(links)
    if not above:
        return f"At no n that was measured is every ratio above 1 ({place})."
    values = [value for n in above for value in ratios[n]]
    span = f"{number(min(values))} to {number(max(values))}"
    return f"From n = {above[0]:,} on, {what.format(span)} ({place})."


def proposals(pages: Iterable[Page]) -> Section:
    """The proposal with the largest effective sample size of each kind, on each trained head."""
    rows, answers = [], []
    for page in pages:
        heads: dict[tuple, dict[str, tuple]] = {}
        for record in page.ok("gradient_bias"):
            head = (record["config"]["dataset"]["name"], *_where(record))
            head += (number(record["mutual_information"]), number(record["valid_perplexity"]))
            for name, found in record["samplers"].items():
                kind = _kind(record["config"]["methods"][name].get("kwargs", {}))
                if kind and found["ess"] is not None:
                    heads.setdefault(head, {})[name] = (kind, found["ess"], found["kl"])
        for head, samplers in sorted(heads.items()):
            best = max(samplers, key=lambda name: samplers[name][1])
            share = f"{100 * samplers[best][1]:.1f} %"
            answers.append(f"on {head[0]} `{best}` with {share} ({link(page)})")
            for kind in ("needs no scores", "kernel", "kernel times class counts"):
                own = {name: value for name, value in samplers.items() if value[0] == kind}
                if own:
                    best = max(own, key=lambda name: own[name][1])
                    _, ess, kl = own[best]
                    row = [*head, kind, f"`{best}`", f"{100 * ess:.1f} %"]
                    rows.append([*row, "inf" if kl is None else number(kl), link(page)])
    header = ["data", "backend", "n", "I, nats", "perplexity", "kind", "nearest"]
    header += ["effective sample size", "KL(p, q), nats", "page"]
    answer = f"Largest effective sample size: {'; '.join(answers)}." if answers else ""
    return Section(answer, _PROPOSALS, Table("How near proposals are", header, rows))


def _kind(kwargs: Mapping) -> str | None:
    name = sampler_name(kwargs)
    if name in KERNELS:
        options = kwargs["sampler"]["config"] if isinstance(kwargs["sampler"], Mapping) else {}
        return "kernel times class counts" if "prior" in options else "kernel"
    return "needs no scores" if name in ("uniform", "log_uniform", "unigram") else None


def _place(record: Mapping) -> tuple:
    return record["config"]["backend"], record["num_classes"], record["cell"]


def _where(record: Mapping) -> list[str]:
    return [record["config"]["backend"], f"{record['num_classes']:,}"]
