"""Every measured number of README.md is in the committed records."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
TEXT = (ROOT / "README.md").read_text()
WORDS = " ".join(TEXT.split())


def records(experiment, **fields):
    """The records of an experiment whose config has these fields."""
    paths = sorted((RESULTS / experiment / "runs").glob("*.json"))
    found = [json.loads(path.read_text()) for path in paths]
    found = [r for r in found if all(r["config"][k] == v for k, v in fields.items())]
    assert found
    return found


def curve(experiment, dataset, method, key):
    """The record of one training run, and its {seconds: value}."""
    (record,) = [
        r
        for r in records(experiment)
        if method in r["config"]["methods"] and r["cell"].startswith(dataset)
    ]
    values = [point[key] for point in record["curve"]]
    return record, dict(zip([round(p["seconds"]) for p in record["curve"]], values, strict=True))


def test_tables_are_those_of_the_quickstart():
    tables = re.findall(r"\| method \|.*?\n\n", TEXT, flags=re.S)
    assert len(tables) == 2
    for table, name in zip(tables, ("language-lstm", "xmc-bag"), strict=True):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")]
        rows = [row for row in rows[2:] if len(row) > 1]
        page = (RESULTS / "quickstart" / "README.md").read_text()
        lines = page.split(f"## {name}\n\n")[1].split("\n\n")[0].splitlines()
        known = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
        assert rows == [[row[0], *row[2:]] for row in known]


def test_step_times_are_those_of_scaling():
    (record,) = [
        r for r in records("scaling", backend="tensorflow") if r["num_classes"] == 1_000_000
    ]
    ms = {name: step["step_ms"]["median"] for name, step in record["steps"].items()}
    fast, slow = ms["rows_log_uniform_shared"], ms["keras_log_uniform_shared"]
    assert f"takes {fast:.1f} ms when the head updates its own rows, {slow:,.0f} ms" in WORDS
    assert f"and {ms['full']:,.0f} ms with the full softmax" in WORDS
    assert f"kernel written around it takes {ms['peer_tf']:.1f} ms" in WORDS


def test_perplexities_are_those_of_penn_treebank():
    key, data = "valid_perplexity", "ptb-lstm_small"
    values = {
        name: list(curve("ptb_nce", data, name, key)[1].values())
        for name in ("full", "exp", "binary_800")
    }
    assert f"validation perplexity of {values['full'][-1]:.1f} (Ma & Collins: 116.8)" in WORDS
    better = {name: 100 * (1 - rows[4] / values["full"][4]) for name, rows in values.items()}
    expected = f"are {better['exp']:.1f} % better than it, and binary NCE with 800 draws "
    assert f"{expected}{better['binary_800']:.1f} %" in WORDS


def test_perplexities_are_those_of_the_large_vocabulary():
    key, data = "valid_perplexity", "eltec-hun"
    record, full = curve("large_vocabulary", data, "full", key)
    steps, last = record["curve"][-1]["step"], list(full.values())[-1]
    assert f"{record['num_classes']:,} words" in WORDS
    assert f"makes {steps:,} steps and ends at a validation perplexity of {last:,.0f}." in WORDS
    parts = {
        name: list(curve("large_vocabulary", data, name, key)[1].values())
        for name in ("unigram", "nce_binary", "in_batch")
    }
    first = {name: f"{values[0]:,.0f}" for name, values in parts.items()}
    best = {name: f"{min(values):,.0f}" for name, values in parts.items()}
    assert (
        f"`unigram` has {first['unigram']} after four minutes and {best['unigram']} at best, "
        f"`nce_binary` {first['nce_binary']} and {best['nce_binary']};"
    ) in WORDS
    assert parts["in_batch"][0] == min(parts["in_batch"])
    assert f"is at its best, {best['in_batch']}, after four minutes." in WORDS
    assert all(values[-1] > values[1] for values in parts.values())


def test_accuracies_are_those_of_the_adversarial_tree():
    record, tree = curve("adversarial", "hierarchy", "adversarial", "valid_accuracy")
    uniform, other = (
        curve("adversarial", "hierarchy", name, "valid_accuracy")[1]
        for name in ("uniform", "uniform_r1000")
    )
    fitted = record["tree"]["fit_seconds"]
    assert (
        f"after 60 s, {fitted:.0f} of which fitted the tree, an accuracy of {tree[60]:.3f};"
        in WORDS
    )
    assert f"end after 300 s with {uniform[300]:.3f}, or {other[300]:.3f} with a rate" in WORDS
    assert tree[60] > max(*uniform.values(), *other.values())
    frequency = curve("adversarial", "hierarchy", "frequency", "valid_accuracy")[1]
    assert (
        f"have {frequency[60]:.3f} after 60 s; after 300 s they have {frequency[300]:.3f}" in WORDS
    )
    assert f"and the tree {tree[300]:.3f}." in WORDS


def test_losses_are_those_of_wall_time():
    found = {}
    for record in records("wall_time", backend="jax"):
        if record["num_classes"] == 500_000:
            label = record["config"]["model"]["label"]
            for name, parts in record["wall_time"].items():
                found.setdefault((label, name), parts["loss"]["step_ms"]["median"])
    small, large = (
        [found[label, name] for name in names]
        for label, names in (
            ("b10_m10", ("exp", "rff_50", "rff_1000", "rff_1000_exact32")),
            ("b256_m100", ("exp", "rff_1000_shared")),
        )
    )
    exact, few, many, blocks = (f"{ms:.1f} ms" for ms in small)
    assert f"the loss takes {exact} with draws from the softmax itself, {few} with" in WORDS
    assert f"Fourier features, {many} with 1,000, and {blocks} with 1,000 and the softmax" in WORDS
    exact, shared = large
    assert (
        f"it is {exact:,.0f} ms with 100 exact draws for each example and {shared:.1f} ms" in WORDS
    )


def test_proposals_are_those_of_gradient_bias():
    found = {}
    for record in records("gradient_bias"):
        found |= record["samplers"]
    start = WORDS.index("How near a proposal q is")
    part = WORDS[start : WORDS.index("Install and run the benchmark")]
    for name in (
        "uniform",
        "quadratic",
        "rff_D1024_nu4",
        "unigram",
        "positive_prior_D512_nu4",
        "positive_prior_D512_nu4_exact16",
    ):
        values = f"{100 * found[name]['ess']:.1f} %, {found[name]['kl']:.2f}"
        assert values in part, name
        part = part[part.index(values) + len(values) :]
