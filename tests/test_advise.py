"""`softbench-advise`: what it prices, what it advises, what it prints, and its mistakes."""

import json
import re

import numpy as np
import pytest
from conftest import BACKEND
from shipped import ROOT

import softbench
from softbench import advise, commands
from softbench.bench import price
from softbench.bench.training import build
from softbench.commands import ConfigError
from softbench.report import evidence, pages

WORDS = advise.KINDS["words"]


def run(*arguments):
    return advise.main(["softbench-advise", f"--backend={BACKEND}", *arguments])


def priced(monkeypatch, device="cpu", **steps):
    """Lets `price` answer without a measurement; returns the configs that it is asked for.

    Args:
        device: its kind.
        **steps: milliseconds of methods; the others fail.
    """
    configs = []

    def answer(config, workdir, data_dir=None, *, rounds):
        configs.append(config)
        base = steps[config["reference"]]
        good = {name: {"ratio": ms / base, "step_ms": ms} for name, ms in steps.items()}
        names = config["methods"].split(",") if config["methods"] else config["method_table"]
        rows = {name: good.get(name, {"error": "out of memory"}) for name in names}
        return {"reference": config["reference"], "device": {"kind": device}, "methods": rows}

    monkeypatch.setattr(price, "price", answer)
    return configs


@pytest.mark.slow
def test_a_small_problem_is_priced(monkeypatch, capsys):
    two = {n: m for n, m in advise.methods(300, 16).items() if n in ("full", "unigram")}
    monkeypatch.setattr(advise, "methods", lambda classes, batch: two)
    monkeypatch.setattr(advise, "ROUNDS", 1)
    assert run("--kind=labels", "--classes=300", "--dim=8", "--batch=16") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"labels: n = 300, d = 8, batch 16; encoder bag, {BACKEND}"
    assert [line.split()[0] for line in lines[2:4]] == ["full", "unigram"]
    assert all(float(line.split()[1]) > 0 for line in lines[2:4])
    assert float(lines[2].split()[2]) == 1.0
    assert lines[4] == "To paste (full: exact; n is small, or sampling saves little):"


@pytest.mark.parametrize("kind", advise.KINDS)
@pytest.mark.parametrize("classes", [2_000, 60_000])
def test_what_is_priced(kind, classes, monkeypatch, capsys):
    """Row updates from 50,000 classes on."""
    configs = priced(monkeypatch, unigram=2.0, codebook=1.0)
    run(f"--kind={kind}", f"--classes={classes}", "--dim=8", "--batch=60")
    config = configs[-1]
    sampled = [m["kwargs"] for m in config["method_table"].values() if "kwargs" in m]
    model, many = config["model"], classes > 50_000
    assert ["row_optimizer" in kwargs for kwargs in sampled] == 4 * [many]
    assert ("row_optimizer" in model) == (many and kind != "labels")
    assert config["dataset"]["num_classes"] == classes
    assert model["batch_size"] * model.get("num_steps", 1) == 60
    text = capsys.readouterr().out
    assert "failed: out of memory" in text and "of unigram" in text


@pytest.mark.parametrize(
    ("device", "dim", "has_full"),
    [("cpu", 64, [True]), ("cpu", 65, [False]), ("gpu", 65, [False, True])],
)
def test_full_is_left_out_where_a_step_takes_seconds(device, dim, has_full, monkeypatch, capsys):
    """2^18 classes of 64 numbers for 1,024 examples are 2^34 products."""
    configs = priced(monkeypatch, device, unigram=2.0, full=90.0)
    run("--kind=labels", f"--classes={2**18}", f"--dim={dim}", "--batch=1024")
    assert [not config["methods"] for config in configs] == has_full
    text = capsys.readouterr().out
    assert ("of full" in text) == has_full[-1] and len(text.splitlines()) <= 12


def test_data_of_the_user(tmp_path, monkeypatch, capsys):
    path = tmp_path / "pairs.csv"
    rng = np.random.default_rng(0)
    rows = [f"u{u},i{i},{t}" for u in range(40) for t, i in enumerate(rng.permutation(30)[:6])]
    path.write_text("\n".join(["user,item,time", *rows]))
    configs = priced(monkeypatch, full=9.0, unigram=1.0)
    run("--kind=items", f"--data={path}")
    assert configs[0]["dataset"]["path"] == str(path)
    assert "items: n = 30, d = 128" in capsys.readouterr().out


def test_lines_to_paste_make_the_head_that_was_timed():
    for method in advise.methods(60_000, 64).values():
        names = {"softbench": softbench, "counts": np.arange(60_000)}
        exec(advise.paste(60_000, method)[0].strip(), names)
        timed = build.head(method, 60_000, names["counts"], None)
        assert type(names["head"]) is type(timed)
        configs = [_plain(head.get_config()) for head in (timed, names["head"])]
        assert json.dumps(configs[0], default=str) == json.dumps(configs[1], default=str)


def _plain(value):
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k not in ("name", "seed")}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def test_what_is_advised():
    """Exact up to 10,000 classes or within three quickest steps; else by records, then by price."""
    steps = {"full": 30.0, "unigram": 9.0, "in_batch": 2.0, "codebook": 4.0, "top_and_tail": 3.0}
    near = {"unigram": [0.1], "codebook": [0.0, 0.1, 0.9], "in_batch": [0.2], "full": [0.0]}
    behind = {name: near.get(name, []) for name in steps}
    assert advise.advised(WORDS, 10_000, steps, behind)[0] == "full"
    assert advise.advised(WORDS, 10_001, steps, behind)[0] == "codebook"
    assert advise.advised(WORDS, 10_001, {**steps, "full": 6.0}, behind)[0] == "full"
    poor = {**behind, "unigram": [0.3], "codebook": [0.4]}
    assert advise.advised(WORDS, 10_001, steps, poor)[0] == "in_batch"
    unknown = {name: [] for name in steps}
    assert advise.advised(WORDS, 10_001, steps, unknown)[0] == "in_batch"


def test_records_of_other_sizes_and_inputs_are_left_out(monkeypatch):
    entry = {"classes": 1_000, "inputs": "words", "behind": {"FullSoftmax": {"nats": 0.5}}}
    far = {**entry, "classes": 10_000_000, "behind": {"FullSoftmax": {"nats": 9.0}}}
    labels = {**entry, "inputs": "labels", "behind": {"FullSoftmax": {"precision_at_1": 0.25}}}
    monkeypatch.setattr(advise.json, "loads", lambda text: [entry, far, labels])
    full = {"head": "FullSoftmax"}
    assert advise.quality(WORDS, 2_000, full) == [0.5]
    assert advise.quality(advise.KINDS["items"], 2_000, full) == [0.25]
    assert advise.quality(WORDS, 2_000, {"head": "SampledHinge"}) == []


RECORD = {"status": "ok", "num_classes": 5_000, "curve": [{"valid_nll": 1.0}]}
CONFIG = {"task": "train", "epochs": 1, "seed": 0, "dataset": {"name": "d"}}
CONFIG |= {"model": {"name": "lstm"}}


def entries(*configs):
    """The entries of records of a page, a head for each."""
    heads = ("FullSoftmax", "SampledHinge")
    methods = [{"methods": {"m": {"head": head}}} for head in heads]
    made = [RECORD | {"config": c | m} for c, m in zip(configs, methods, strict=True)]
    return json.loads(evidence.text([type("Page", (), {"name": "p", "records": made})]))


@pytest.mark.parametrize("epochs, steps, count", [(5, 149, 1), (1, 1162, 1), (1, 60, 0), (3, 0, 1)])
def test_evidence_is_of_runs_that_were_not_cut_short(epochs, steps, count):
    """745 and 1,162 steps are a run, 60 measure a cost; 0 is whole epochs."""
    config = CONFIG | {"epochs": epochs, "steps_per_epoch": steps}
    assert len(entries(config, config)) == count


@pytest.mark.parametrize("seconds, count", [(0, 1), (60, 0)])
def test_environment_variables_matter_to_equal_times_alone(seconds, count):
    config = CONFIG | {"max_train_seconds": seconds}
    other = config | {"environment": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}}
    assert len(entries(config | {"environment": {}}, other)) == count


def test_the_evidence_that_ships_is_that_of_the_records():
    frames, _ = pages.read_all(ROOT / "results")
    shipped = (ROOT / evidence.PATH).read_text()
    assert evidence.text(frames.values()) == shipped
    for entry in json.loads(shipped):
        for measure in ("nats", "precision_at_1"):
            assert min(v[measure] for v in entry["behind"].values() if measure in v) == 0.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((), "--kind must be one of: words, items, labels. Received: no --kind"),
        (("--kind=images",), "--kind=images: value should be one of <words|items|labels>"),
        (("--kind=words", "--classes=0"), "--classes=0: 0 is not a positive integer"),
        (("--kind=words", "--classes=9", "--data=a"), "--classes does not go with --data"),
        (("--kind=words", "--data=nowhere"), "Received: "),
    ],
)
def test_mistakes(wrong, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        run(*wrong)


def test_commands_of_the_pages():
    lines = [
        line
        for page in (ROOT / "docs").glob("*.md")
        for line in re.findall(r"softbench-advise(?: --[\w=./-]+)+", page.read_text())
    ]
    assert len(lines) >= 4
    for line in lines:
        assert commands.parse(advise._define(), line.split(), "").kind in advise.KINDS
