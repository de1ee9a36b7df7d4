"""Tables of the task "gradient_bias", from records. Needs no Keras."""

import json
from collections.abc import Iterable, Mapping

from softbench.report.choices import sampler_name
from softbench.report.costs import KERNELS, Section, link, where
from softbench.report.page import Page
from softbench.report.tables import Table, number, ordered


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each trained head.

    Args:
        plan: the content of `experiment.json`.
        records: records of the task that ended well.
    """
    return [table for record in _joined(records) for table in _bias_tables(plan, record)]


def _joined(records: list[dict]) -> list[dict]:
    """Returns one record for each configuration and head, with the samplers of all its runs."""
    groups: dict[str, dict] = {}
    for record in sorted(records, key=lambda item: item["cell"]):
        config = {key: value for key, value in record["config"].items() if key != "methods"}
        key = json.dumps([config, record["valid_perplexity"]], sort_keys=True)
        before = groups.get(key, {"samplers": {}})["samplers"]
        groups[key] = {**record, "samplers": {**record["samplers"], **before}}
    return list(groups.values())


def _text(value: float | None) -> str:
    return "inf" if value is None else number(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _bias_tables(plan: Mapping, record: Mapping) -> list[Table]:
    samplers, where = record["samplers"], record["config"]["dataset"]["name"]
    head = f"{where}, n = {record['num_classes']:,}, {record['config']['backend']}"
    order = ordered(plan, samplers)
    rows = []
    for name in order:
        found = samplers[name]
        ratio = [_text(found["ratio"][key]) for key in ("min", "median", "max")]
        row = [name, _text(found["kl"]), _percent(found["ess"]), *ratio]
        rows.append([*row, _percent(found["negative_share"])])
    model = [number(record["valid_perplexity"]), number(record["mutual_information"])]
    tables = [
        Table(
            f"The trained head: {head}",
            ["head", "validation perplexity", "mutual information, nats", "contexts"],
            [["full", *model, str(record["batch"])]],
        )
    ]
    header = ["sampler", "KL(p, q), nats", "ESS", "p/q min", "p/q median", "p/q max", "negative"]
    tables.append(Table(f"Proposals against the softmax: {head}", header, rows))
    for size in sorted(samplers[order[0]]["bias"], key=int):
        title = f"Theorem 1 with m = {int(size):,}: {head}"
        lines = [
            _bias_row(name, samplers[name]["bias"][size], record["contexts"]) for name in order
        ]
        header = ["sampler", "worst bias", "standard error", "LB", "UB", "contexts inside"]
        tables.append(Table(title, header, lines))
    return tables


def _bias_row(name: str, found: Mapping, contexts: int) -> list[str]:
    error = f"{found['error']:.1e}"
    numbers = [_text(found["worst"]), error, _text(found["lower"]), _text(found["upper"])]
    return [name, *numbers, f"{found['inside']} of {contexts}"]


_PROPOSALS = """\
The proposal of each kind that is nearest to the softmax of a trained head. An effective sample size
of 10 % says that 10 draws do the work of one from the softmax."""


def front(pages: Iterable[Page]) -> Section:
    """The proposal with the largest effective sample size of each kind, on each trained head."""
    rows, answers = [], []
    for page in pages:
        heads: dict[tuple, dict[str, tuple]] = {}
        for record in page.ok("gradient_bias"):
            head = (record["config"]["dataset"]["name"], *where(record))
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
