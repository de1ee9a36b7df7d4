"""`softbench-advise`: what it times and trains, what it advises and prints, and its mistakes."""

import json
import re

import keras
import numpy as np
import pytest
from conftest import BACKEND
from shipped import ROOT, config_path, get_config
from test_decisions import THREE, problems
from test_own_data import write_csv

import softbench
from softbench import advise, commands
from softbench.bench import config as config_lib
from softbench.bench import methods, price
from softbench.bench.training import build
from softbench.commands import ConfigError
from softbench.report import advice, decisions, ranking, transfer


def run(*arguments):
    return advise.main(["softbench-advise", f"--backend={BACKEND}", *arguments])


@pytest.fixture
def decided(monkeypatch):
    """Two problems of labels and one of words are decided, see tests/test_decisions.py."""
    monkeypatch.setattr(transfer, "read", lambda: problems(**THREE))


def priced(monkeypatch, device="cpu", **steps):
    """Lets `prices` answer without a measurement; returns the configs that it is asked for.

    Args:
        device: its kind.
        **steps: milliseconds of methods; the others fail.
    """
    configs = []

    def answer(config, workdir, data_dir=None, *, rounds):
        configs.append(config)
        base = steps[config["reference"]]
        good = {name: {"ratio": ms / base, "step_ms": ms} for name, ms in steps.items()}
        rows = {n: good.get(n, {"error": "out of memory"}) for n in config["methods"].split(",")}
        return [{"reference": config["reference"], "device": {"kind": device}, "methods": rows}]

    monkeypatch.setattr(price, "prices", answer)
    return configs


@pytest.mark.slow
def test_a_small_problem_is_priced(monkeypatch, capsys):
    monkeypatch.setattr(transfer, "read", lambda: problems(wd50k=THREE["wd50k"]))
    monkeypatch.setattr(advise, "ROUNDS", 1)
    monkeypatch.setattr(advise, "TIMED", 1)
    assert run("--kind=labels", "--classes=300", "--dim=8", "--batch=16") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"labels: n = 300, d = 8, batch 16; encoder bag, {BACKEND}"
    assert [line.split()[0] for line in lines[3:5]] == ["in_batch", "full"]
    assert all(float(line.split()[1]) > 0 for line in lines[3:5])
    assert float(lines[4].split()[2]) == 1.0


@pytest.mark.slow
def test_methods_are_trained_on_data_of_the_user(monkeypatch, capsys, tmp_path):
    """2.4 s are two runs, one for each method: neither has learned anything."""
    priced(monkeypatch, codebook=1.0, unigram=2.0, mixed=3.0, full=9.0)
    monkeypatch.setattr(transfer, "read", lambda: decisions.of({}))
    data = write_csv(tmp_path / "pairs.csv", users=60)
    assert run("--kind=items", f"--data={data}", "--dim=8", "--batch=64", "--minutes=0.04") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 12
    (line,) = [line for line in lines if line.startswith("on your data, test nDCG@10: ")]
    assert re.search(r"\b(codebook|unigram) is ahead with a single seed by [\d.e-]+ %", line)
    assert "2 runs of 1 s; " in line and line.endswith(" nats")


def test_what_is_timed_is_what_has_lost_least(decided, monkeypatch, capsys):
    """Of the two problems of labels; uniform is of the config, and has run on neither."""
    configs = priced(monkeypatch, codebook=2.0, full=10.0, in_batch=1.0, uniform=1.5)
    assert run("--kind=labels", "--classes=12000") == 0
    assert [config["methods"].split(",") for config in configs] == [
        ["codebook", "in_batch", "uniform", "full"]
    ]
    assert configs[0]["reference"] == "codebook"
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"labels: n = 12,000, d = 64, batch 128; encoder bag, {BACKEND}",
        "nearest that is decided: article tags (labels, n = 10,000, 3 nats), price: "
        "1,000 of 1,000 steps (20 s)",
        "method         step, ms      of full   there  result there",
        "codebook              2          0.2     0.5  best",
        "in_batch              1          0.1     0.5  worse by 11 %",
        "uniform             1.5         0.15       -  -",
        "full                 10            1       1  worse by 11 %",
        "would change it: a step of codebook, 0.4 times as dear as there; "
        "a step of in_batch, 0.2 times as dear as there",
        "recommended: codebook, by all of its kind 0.94 % behind the best; to paste:",
        *advise.paste(12_000, configs[0]["method_table"]["codebook"]),
    ]


def test_a_method_stands_there_at_the_highest_price_that_it_has_run_at():
    row = {"price": 0.5, "behind": 0.08, "status": "worse"}
    best = {"price": 0.25, "behind": 0.0, "status": "best"}
    levels = [
        {"level": "a tenth", "recommended": "a", "rows": {"a": best, "b": row}},
        {"level": "a third", "recommended": "a", "rows": {"a": best}},
        {"level": "all", "recommended": "", "rows": {"c": best}},  # not decided
    ]
    source = {"levels": levels}
    assert advice.there(source, "a") == "  0.25  best"
    assert advice.there(source, "b") == "   0.5  worse by 8 % at a tenth"
    assert advice.there(source, "c") == "     -  -"


def test_information_chooses_another_problem(decided, monkeypatch, capsys):
    """wd50k has 40,000 labels and 1 nat: log(40 / 19) + 0 is less than log(19 / 10) + 2."""
    priced(monkeypatch, codebook=2.0, full=3.0, in_batch=1.0)
    run("--kind=labels", "--classes=19000", "--nats=1")
    assert "recommended: in_batch, by all of its kind" in capsys.readouterr().out


def test_where_its_kind_is_not_decided_nothing_is_recommended(decided, monkeypatch, capsys):
    """The methods that the config runs are timed."""
    configs = priced(monkeypatch, unigram=2.0, codebook=1.0, full=3.0)
    run("--kind=items", "--classes=12000")
    assert configs[0]["methods"] == "codebook,unigram,mixed,full"
    lines = capsys.readouterr().out.splitlines()
    command = "softbench --config=decisions:beauty --config.budget=full:<steps>"
    assert lines[1] == f"items are not decided: {command}"
    assert "failed: out of memory" in lines[5]
    assert lines[-1] == "recommended: none, for no method that runs here is decided"


@pytest.mark.parametrize("kind", advise.KINDS)
@pytest.mark.parametrize("classes", [2_000, 60_000])
def test_heads_are_those_of_the_config(kind, classes, decided, monkeypatch, capsys):
    """With row updates from 50,000 classes on, and an encoder that allows them."""
    configs = priced(monkeypatch, unigram=2.0, codebook=1.0, in_batch=1.0, full=3.0)
    run(f"--kind={kind}", f"--classes={classes}", "--dim=8", "--batch=60")
    (config,) = configs
    shipped = config_lib.plain(get_config(config_path(advise.KINDS[kind].config)))
    many, model = classes > 50_000, config["model"]
    text = capsys.readouterr().out
    assert ("row updates, where the whole table takes Adam" in text) == (many and kind != "items")
    assert ("items are not decided" in text) == (kind == "items")
    for name, row in config["method_table"].items():
        expected = shipped["method_table"][name]
        if many and name != "full":
            expected = methods.with_row_updates(expected, methods.adagrad(0.1))
        assert row == expected
    assert model["name"] == (
        "matrix_factorisation" if many and kind == "items" else shipped["model"]["name"]
    )
    assert ("row_optimizer" in model) == (many and kind != "labels")
    assert config["dataset"]["num_classes"] == classes
    assert model["batch_size"] * model.get("num_steps", model.get("length", 1)) == 60
    assert 8 in (model.get("dim"), model.get("units"))


def test_rows_of_the_configs_are_those_of_the_decisions():
    """But for how a mixture is given its halves; "at most 1024" are as many from 4,096 classes."""

    def drawn(value):
        if isinstance(value, dict):
            value = {k: drawn(v) for k, v in value.items()}
            return {"num_sampled": (512, 512), **value} if "first" in value else value
        is_number = isinstance(value, str) and value.startswith(methods.AT_MOST)
        return methods.at_most(value, 10_000) if is_number else value

    for problem, name in (("beauty", "interactions"), ("ptb", "text"), ("citeulike", "own_xmc")):
        table = get_config(config_path("decisions"), problem).method_table.to_dict()
        mine = get_config(config_path(name)).method_table.to_dict()
        assert set(table) - set(mine) <= {"adversarial"}
        for method in set(table) & set(mine):
            assert drawn(table[method]) == drawn(mine[method]), method


@pytest.mark.parametrize(
    ("device", "dim", "full"),
    [("cpu", 64, [True]), ("cpu", 65, [False]), ("gpu", 65, [False, True])],
)
def test_full_is_left_out_where_a_step_takes_seconds(
    device, dim, full, decided, monkeypatch, capsys
):
    """2^18 classes of 64 numbers for 1,024 examples are 2^34 products."""
    configs = priced(monkeypatch, device, in_batch=2.0, codebook=3.0, full=90.0)
    run("--kind=labels", f"--classes={2**18}", f"--dim={dim}", "--batch=1024")
    assert ["full" in config["methods"] for config in configs] == full
    text = capsys.readouterr().out
    assert ("of full" in text) == full[-1] != ("full takes seconds a step here" in text)
    assert len(text.splitlines()) <= 12


def test_data_of_the_user_are_timed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(transfer, "read", lambda: decisions.of({}))
    path = write_csv(tmp_path / "pairs.csv")
    configs = priced(monkeypatch, full=9.0, unigram=1.0, codebook=2.0, mixed=3.0)
    run("--kind=items", f"--data={path}")
    assert configs[0]["dataset"]["path"] == str(path)
    assert "items: n = 30, d = 64, batch 800" in capsys.readouterr().out


def record(method, seed, value, status="ok"):
    point = {"test_ndcg_at_10": value, "test_nll": 5.0}
    frequencies = {"test_ndcg_at_10": 0.05, "test_nll": 8.0}
    config = {"methods": {method: {}}, "max_train_seconds": 30.0}
    made = {"status": status, "seed": seed, "config": config, "most_frequent": frequencies}
    return made | {"best": point, "final": point}


def test_what_training_has_come_to():
    """unigram is .012, .01 and .008 behind, of .06: 17 %; 4.3027 * .002 / sqrt(3) / .06 = .083.

    Its mean is that of the frequencies.
    """
    records = [record("codebook", seed, 0.06 + seed / 125) for seed in (-1, 0, 1)]
    records += [record("unigram", seed, 0.05 + seed / 100) for seed in (-1, 0, 1)]
    line, rows = advice.trained(records, "test_ndcg_at_10")
    assert line == (
        "on your data, test nDCG@10: codebook 0.06 ± 0.02; unigram 0.05 ± 0.025 (no better than "
        "the class frequencies: 0.05); codebook won by 17 ± 8.3 %; 6 runs of 30 s; 3 nats"
    )
    assert ranking.simplest(rows) == "codebook"
    records[3:] = [record("unigram", seed, 0.055) for seed in (-1, 0, 1)]
    line, rows = advice.trained(records, "test_ndcg_at_10")
    assert "codebook is ahead but tied by 8.3 ± 33 %" in line  # 4.3027 * .008 / sqrt(3) / .06
    assert ranking.simplest(rows) == "unigram"
    line, rows = advice.trained([record("rff", 0, 0, "nan")], "test_ndcg_at_10")
    assert (line, rows) == ("on your data, test nDCG@10: rff nan", {})


@pytest.mark.parametrize("rows_alone", [False, True])
@pytest.mark.parametrize("name", ["interactions", "own_xmc"])
def test_lines_to_paste_make_the_head_that_was_timed(name, rows_alone):
    classes = 2_000
    table = config_lib.plain(get_config(config_path(name)).method_table)
    rows = [row for key, row in table.items() if not key.endswith("_rows")]
    for method in rows:
        if rows_alone and method["head"] != "FullSoftmax":
            method = methods.with_row_updates(method, methods.adagrad(0.1))
        names = {"softbench": softbench, "keras": keras, "np": np, "counts": np.arange(classes)}
        exec("\n".join(line.strip() for line in advise.paste(classes, method)[:2]), names)
        timed = build.head(method, classes, names["counts"], None)
        assert type(names["head"]) is type(timed)
        configs = [_plain(head.get_config()) for head in (timed, names["head"])]
        assert json.dumps(configs[0], default=str) == json.dumps(configs[1], default=str)


def _plain(value):
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k not in ("name", "seed")}
    return [_plain(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((), "--kind must be one of: words, items, labels. Received: no --kind"),
        (("--kind=images",), "--kind=images: value should be one of <words|items|labels>"),
        (("--kind=words", "--classes=0"), "--classes=0: 0 is not a positive integer"),
        (("--kind=words",), "One of --classes and --data must be given, and not both"),
        (("--kind=words", "--classes=9", "--data=a"), "Received: --classes=9, --data=a"),
        (("--kind=words", "--classes=9", "--minutes=1"), "--minutes must come with --data"),
        (("--kind=words", "--data=nowhere"), "Received: "),
    ],
)
def test_mistakes(wrong, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        run(*wrong)


def test_commands_of_the_pages():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    texts = [re.sub(r" +#.*", "", page.read_text()) for page in pages]
    lines = [
        line for text in texts for line in re.findall(r"softbench-advise(?: --[\w=./-]+)+", text)
    ]
    assert len(lines) >= 4
    for line in lines:
        assert commands.parse(advise._define(), line.split(), "").kind in advise.KINDS


def test_the_advice_for_a_decided_problem_is_its_decision(monkeypatch, capsys):
    """The fourth place that shows decisions.json, see tests/test_decisions.py."""
    for problem in transfer.read():
        levels = transfer.decided(problem)
        configs = priced(monkeypatch, **dict.fromkeys(ranking.SIMPLICITY, 1.0))
        arguments = [f"--kind={problem['kind']}", f"--classes={problem['n'] or 10_000}"]
        nats = problem["information"]
        run(*arguments, *([f"--nats={nats}"] if nats is not None else []))
        text = capsys.readouterr().out
        assert len(configs) >= 1 and len(text.splitlines()) <= 12
        if levels:
            assert f"\nrecommended: {levels[-1]['recommended']}, " in text
        elif not any(transfer.decided(p) for p in transfer.read() if p["kind"] == problem["kind"]):
            assert f"{problem['kind']} are not decided: softbench --config=decisions:" in text
