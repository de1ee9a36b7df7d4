"""Tables of the task "gradient_bias". Needs no Keras."""

import json
from collections.abc import Iterator, Mapping

from softbench.bench.records import sampler_kinds
from softbench.report import frame
from softbench.report.markdown import code, literal
from softbench.report.page import Page
from softbench.report.tables import Section, Table, in_order, or_infinite, percent, section, table

_KINDS = ("needs no scores", "kernel", "kernel times class counts")
_KEYS = ["head", "method", "num_sampled"]
_ONE_HEAD = ["valid_perplexity", "mutual_information", "batch", "contexts"]
_HEAD = {
    "head": "head",
    "validation perplexity": "valid_perplexity",
    "mutual information, nats": "mutual_information",
    "contexts": ("{}", "batch"),
}
_PROPOSALS = {
    "sampler": "method",
    "KL(p, q), nats": (or_infinite, "kl"),
    "ESS": (percent, "ess"),
    "p/q min": (or_infinite, "ratio_min"),
    "p/q median": (or_infinite, "ratio_median"),
    "p/q max": (or_infinite, "ratio_max"),
    "negative": (percent, "negative_share"),
}
_BIAS = {
    "sampler": "method",
    "worst bias": (or_infinite, "worst"),
    "standard error": ("{:.1e}", "error"),
    "LB": (or_infinite, "lower"),
    "UB": (or_infinite, "upper"),
    "contexts inside": ("{} of {}", "inside", "contexts"),
}


def _rows(record: Mapping) -> Iterator[dict]:
    """A row for each sampler, and for each m in its `bias`."""
    config, kinds = record["config"], sampler_kinds(record)
    same = {key: value for key, value in config.items() if key != "methods"}
    common = {"head": json.dumps([same, record["valid_perplexity"]], sort_keys=True)}
    common |= {key: record[key] for key in _ONE_HEAD}
    for name, quality in record["samplers"].items():
        row = common | {"method": name, "kind": _kind(config["methods"][name], kinds[name])}
        row |= {key: quality[key] for key in ("kl", "ess", "negative_share")}
        row |= {f"ratio_{end}": value for end, value in quality["ratio"].items()}
        for size, bias in quality["bias"].items():
            yield row | {"num_sampled": int(size), **bias}


def _kind(method: Mapping, kind: str | None) -> str | None:
    sampler = method.get("kwargs", {}).get("sampler")
    if kind == "kernel" and isinstance(sampler, Mapping) and "prior" in sampler["config"]:
        return _KINDS[2]
    return {"static": _KINDS[0], "kernel": _KINDS[1]}.get(kind)


def tables(plan: Mapping, records: list[dict]) -> list[Table]:
    """Returns the tables of each trained head."""
    result = []
    for _, rows in frame.once(records, _rows, _KEYS).groupby("head", sort=False):
        rows = in_order(plan, rows.assign(head="full"))
        first = rows.head(1)
        where = f"{first['dataset'].item()}, n = {first['num_classes'].item():,}"
        where += f", {first['backend'].item()}"
        proposals = rows.drop_duplicates("method")
        result.append(table(f"The trained head: {where}", first, _HEAD))
        result.append(table(f"Proposals against the softmax: {where}", proposals, _PROPOSALS))
        result += [
            table(f"Theorem 1 with m = {size:,}: {where}", bias, _BIAS)
            for size, bias in rows.groupby("num_sampled")
        ]
    return result


_WORDS = """\
The proposal of each kind that is nearest to the softmax of a trained head. An effective sample size
of 10 % says that 10 draws do the work of one from the softmax, in an estimate of the partition with
the head as it is. Neither it nor KL alone ranks methods by what they train to: see
[what_ranks](what_ranks/README.md)."""


def front(pages: list[Page]) -> Section:
    """The proposal with the largest effective sample size of each kind, on each trained head."""
    rows, answers = [], []
    for page in pages:
        samplers = frame.once(page.tasks["gradient_bias"], _rows, _KEYS)
        samplers = samplers[samplers["kind"].notna() & samplers["ess"].notna()]
        for _, group in samplers.groupby("head"):
            nearest = group.sort_values("ess", ascending=False, kind="stable").set_index("kind")
            first = nearest.iloc[0]
            share = f"{100 * first['ess']:.1f} %"
            answers.append(
                f"on {literal(first['dataset'])} {code(first['method'])} with {share} ({page.link})"
            )
            nearest = nearest[~nearest.index.duplicated()].filter(_KINDS, axis="index")
            rows += [
                {
                    "data": row.dataset,
                    "backend": row.backend,
                    "n": f"{row.num_classes:,}",
                    "I, nats": row.mutual_information,
                    "perplexity": row.valid_perplexity,
                    "kind": row.Index,
                    "nearest": code(row.method),
                    "effective sample size": f"{100 * row.ess:.1f} %",
                    "KL(p, q), nats": or_infinite(row.kl),
                    "page": page.link,
                }
                for row in nearest.itertuples()
            ]
    words = "Nearest to the softmax of a trained head, which does not rank what methods train to"
    answer = f"{words}: {'; '.join(answers)}." if answers else ""
    return section("How near proposals are", _WORDS, rows, answer)
