"""The suite's version: what it fixes and runs, and records of several machines in one table."""

import gzip
import hashlib
import json
import shutil
import tarfile

import pytest
from conftest import thorough_but
from shipped import ROOT
from small_runs import BACKEND, SMALL, Calls, mistake, run_cells_here

from softbench import __main__ as command
from softbench.bench import app, budget, matrix, price, records, suite_version, suites
from softbench.bench.config import ConfigError
from softbench.report import app as report_app
from softbench.report import measures, submission

DEVICE = {"kind": "cpu", "name": "Test CPU", "count": 2}
MACHINE = {"cores": 2, "memory_gib": 24}
OTHER = {"cores": 64, "memory_gib": 503}
RATIOS = {"full": 1.0, "unigram": 0.5}
REFERENCE_MS = 20.0
LEVEL = suite_version.PROBLEMS["language"].target


def configured(run, backend="jax"):
    line = suite_version.lines_of_runs()[run].split()
    return app.configured(["softbench", *line, f"--backend={backend}"])


@pytest.mark.parametrize("run", suite_version.RUNS)
def test_configs_are_those_that_the_version_was_made_with(run):
    """On any backend. A change of a config is another version of the suite."""
    cells = suite_version.cells(run, configured(run))
    assert suite_version.cells(run, configured(run, "tensorflow"))[0].config["backend"] != "jax"
    names = {matrix.name(cell.config["dataset"]) for cell in cells}
    assert names == {name for name, p in suite_version.PROBLEMS.items() if p.run == run}
    changed = {**configured(run), "budget": "full:7"}
    with pytest.raises(ConfigError, match=r"needs the config .* that it was made with"):
        suite_version.cells(run, changed)


@pytest.mark.parametrize("name", suite_version.PROBLEMS)
def test_targets_are_what_the_reference_reaches_less_a_margin(name):
    problem = suite_version.PROBLEMS[name]
    made = [json.loads((ROOT / "results" / path).read_text()) for path in problem.records]
    steps = [record["curve"][-1]["step"] for record in made]
    assert all(record["status"] == "ok" for record in made) and len(set(steps)) == 1
    assert {next(iter(record["config"]["methods"])) for record in made} == {"full"}
    assert {matrix.name(record["config"]["dataset"]) for record in made} == {name}
    reached = sum(record["curve"][-1][problem.measure] for record in made) / len(made)
    margin = 1.02 if measures.lower_is_better(problem.measure) else 0.95
    assert problem.target == float(f"{margin * reached:.4g}")
    # The reference reaches it in its budget, which is as long as its records.
    budgets = int(suite_version.RUNS[problem.run].budget.removeprefix("full:"))
    runs = [p for p in suite_version.PROBLEMS.values() if p.run == problem.run]
    assert budgets >= steps[0] if len(runs) > 1 else budgets == steps[0]


@pytest.mark.parametrize("name", thorough_but(["language", "xmc"], "language"))
def test_generated_data_are_those_of_the_version(name):
    cells = suite_version.cells("quickstart", configured("quickstart"))
    made = [cell for cell in cells if matrix.name(cell.config["dataset"]) == name]
    assert suite_version.lacking(made, None) == ""
    other = made[0]._replace(
        config={**made[0].config, "dataset": {**made[0].config["dataset"], "num_valid": 4_999}}
    )
    assert suite_version.lacking([other], None).startswith(f"{name}, generated: the data must have")


@pytest.fixture
def version(monkeypatch):
    """The version with generated data that cost nothing."""
    problems = {
        name: problem._replace(data={"generated": "x"}) if "generated" in problem.data else problem
        for name, problem in suite_version.PROBLEMS.items()
    }
    monkeypatch.setattr(suite_version, "PROBLEMS", problems)
    monkeypatch.setattr(suite_version.datasets, "load", lambda **options: ())
    monkeypatch.setattr(suite_version, "_of_arrays", lambda data: "x")
    return problems


def run_suite(folder, calls, *options):
    shown = []
    line = ["softbench", f"--suite={suite_version.NAME}", f"--workdir={folder}", *options]
    status = suites.run([*line, "--backend=jax"], calls, app.configured, shown.append)
    assert shown == [folder]
    return status


def test_prices_come_first_and_what_lacks_data_is_named(version, tmp_path, capsys):
    calls = Calls()
    assert run_suite(tmp_path / "out", calls, f"--data_dir={tmp_path}") == 0
    assert ["price" in flags for flags in calls.made] == [True, False]
    assert {flags["workdir"] for flags in calls.made} == {str(tmp_path / "out" / "quickstart")}
    assert {flags["config.experiment"] for flags in calls.made} == {"suite-2026.1"}
    assert {flags["data_dir"] for flags in calls.made} == {str(tmp_path)}
    said = capsys.readouterr().err
    assert "softbench: sequences is left out: beauty: `data_dir` must hold sequences/beau" in said
    assert "softbench: ptb is left out: ptb: `data_dir` must hold ptb/ptb.train.txt" in said
    assert "softbench: citeulike-t is left out: citeulike-t: `data_dir` must hold xmc/" in said


def test_methods_may_be_of_some_runs(version, tmp_path, capsys):
    calls = Calls()
    assert run_suite(tmp_path / "a", calls, "--config.methods=nce,full,unigram") == 0
    assert [flags["config.methods"] for flags in calls.made] == ["full,unigram"] * 2
    assert run_suite(tmp_path / "b", Calls(), "--config.methods=nce") == 0
    said = capsys.readouterr().err
    for run in ("quickstart", "sequences", "ptb"):
        assert f"softbench: {run} is left out: it has none of --config.methods\n" in said
    with pytest.raises(ConfigError, match=r"--config.methods must name .*exp, rff.* \['none'\]$"):
        run_suite(tmp_path, Calls(), "--config.methods=none,full")


def test_other_data_are_not_those_of_the_version(version, tmp_path, capsys, monkeypatch):
    file = tmp_path / "sequences" / "beauty.txt"
    file.parent.mkdir()
    with gzip.open(f"{file}.gz", "wb") as other:  # what is read counts, not how it is packed
        other.write(b"1 2 3\n")
    digest = hashlib.sha256(b"1 2 3\n").hexdigest()
    data = f"--data_dir={tmp_path}"
    assert run_suite(tmp_path / "out", Calls(), data) == 0
    wanted = f"beauty, all: the data must have sha256 {version['beauty'].data['all']}. "
    assert f"sequences is left out: {wanted}Received: {digest}\n" in capsys.readouterr().err
    version["beauty"] = version["beauty"]._replace(data={"all": digest})
    calls = Calls(price=1)
    assert run_suite(tmp_path / "out", calls, data, "--minutes=9") == 1
    # Without a price there is no budget, and the others go on.
    assert [flags["workdir"].rpartition("/")[2] for flags in calls.made] == [
        "quickstart",
        "sequences",
    ]
    assert all("price" in flags and 8 < float(flags["minutes"]) <= 9 for flags in calls.made)


def test_a_version_fixes_its_configs(tmp_path):
    chosen = ("--config.methods=full", "--config.seeds=(0,1)")
    for options in (["--config.epochs=3"], ["--config.preset=smoke", *chosen]):
        with pytest.raises(ConfigError, match=rf"fixes its configs .* Received: {options[0]}$"):
            run_suite(tmp_path, Calls(), *options)


# Records of the suite, as `softbench` writes them. ---------------------------


def make(method="full", seed=0, perplexities=(60.0, LEVEL, 43.0), config=None, **changes):
    """A record of three points on a machine where a step of `full` takes 20 ms."""
    config = config or configured("quickstart")
    cells = suite_version.cells("quickstart", config)
    (cell,) = (c for c in cells if c.id.startswith(f"language-lstm-{method}-"))
    ratio = RATIOS[method]
    paid = {"ratio": ratio, "low": ratio, "high": ratio, "step_ms": REFERENCE_MS * ratio}
    paid |= {"before_seconds": 0.0, "reference_ms": REFERENCE_MS, "device": DEVICE}
    cell = budget.priced(cell._replace(config={**cell.config, "seed": seed}), config, paid)
    steps = [cell.config["steps"] * i // 3 for i in (1, 2, 3)]
    curve = [
        {"epoch": i, "step": step, "seconds": 9.0 * i, "valid_perplexity": value, "train_loss": 4.0}
        | {"reference_steps": ratio * step, "price_seconds": ratio * step * REFERENCE_MS / 1000}
        for i, (step, value) in enumerate(zip(steps, perplexities, strict=True), 1)
    ]
    record = {"schema_version": 1, "cell": cell.id, "experiment": "suite-2026.1", "data": None}
    record |= {"command": "softbench", "config": cell.config, "timeout_s": 300.0, "seed": seed}
    record |= {"price": cell.price, "versions": {"keras": "3.15"}, "code": "0" * 12, "error": None}
    record |= {"git": {"commit": None, "dirty": None}, "started_at": "2026-01-02T03:04:05+00:00"}
    record |= {"status": "ok", "num_classes": 2000, "steps_per_epoch": 149, "curve": curve}
    record |= {"final": {"test_perplexity": 45.0}, "device": DEVICE, "machine": MACHINE}
    return record | changes


def write(folder, *made):
    for record in made:
        records.write(folder / "quickstart" / "runs" / f"{record['cell']}.json", record)
    records.write_json(folder / "quickstart" / "experiment.json", {"experiment": "suite-2026.1"})
    return folder


def submit(folder):
    assert command.main(["softbench", "submit", str(folder)]) == 0
    (path,) = folder.glob("*.tar.gz")
    return path


FASTER = {"perplexities": (LEVEL - 1, 43.2, 43.0)}
NEVER = {"perplexities": (60.0, 55.0, LEVEL + 0.01)}


def test_machines_are_rows_of_one_table(tmp_path, capsys):
    """Of `full` on the first machine two seeds: 623 and 311 of 935 steps, 20 ms each."""
    first = write(tmp_path / "a", make(), make(seed=1, **FASTER), make("unigram"))
    other = [make(machine=OTHER), make("unigram", **FASTER), make("unigram", seed=1, **NEVER)]
    second = write(tmp_path / "b", *({**record, "machine": OTHER} for record in other))
    packs = [submit(first), submit(second)]
    ids = [path.name.removeprefix("softbench-2026.1-")[:8] for path in packs]
    assert len(set(ids)) == 2 and set("".join(ids)) <= set("0123456789abcdef")
    capsys.readouterr()
    assert report_app.main(["softbench-report", "--merge", *map(str, packs)]) == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header.split(" | ")[3:] == [
        "machine",
        "target",
        "runs that reach it",
        "steps of the reference",
        "seconds |",
    ]
    target = f"validation perplexity {LEVEL:g}"
    # Halves of 95 % intervals of two values by Student's t: 12.706 / 2 * their distance.
    full, seconds = 12.706 / 2 * (623 - 311), 12.706 / 2 * (12.46 - 6.22)
    expected = [
        f"full | jax | {ids[0]} | {target} | 2 of 2 | 467 ± {full:,.2g} | 9.34 ± {seconds:.2g}",
        f"full | jax | {ids[1]} | {target} | 1 of 1 | 623 | 12.46",
        f"unigram | jax | {ids[0]} | {target} | 1 of 1 | 623 | 12.46",
        f"unigram | jax | {ids[1]} | {target} | 1 of 2 | - | -",
    ]
    expected[0] = expected[0].replace(f"{full:,.2g}", "2,000")
    order = sorted(expected, key=lambda row: row.split(" | ")[0::2][:2])
    assert sorted(rows[:4]) == sorted(f"| language | {row} |" for row in order)
    assert rows[4:] == [
        "",
        f"* {ids[0]}: Test CPU (cpu x 2), 2 processors, 24 GiB",
        f"* {ids[1]}: Test CPU (cpu x 2), 64 processors, 503 GiB",
    ]


def edited(path, **fields):
    """A record changed by hand, without its checksum."""
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def rewritten(change):
    """A record changed before it was written, so that its checksum is right."""

    def damage(path):
        record = json.loads(path.read_text())
        change(record)
        records.write(path, record)

    return damage


def another_config(record):
    """With the name that follows from it."""
    record["config"]["model"]["units"] = 65
    record["cell"] = matrix.cell_id(record["config"])


def rename(path):
    record = json.loads(path.read_text())
    another_config(record)
    records.write(path.with_name(f"{record['cell']}.json"), record)
    path.unlink()


CURVE = [{"epoch": 1, "step": 9, "seconds": 1.0, "valid_perplexity": 40.0}]
REFUSED = {
    "numbers": (lambda path: edited(path, curve=CURVE), "was changed after it was written"),
    "empty": (lambda path: path.write_text(""), "is empty, cut or no JSON"),
    "list": (lambda path: path.write_text("[]"), "is no record of a cell"),
    "unknown": (rewritten(lambda r: r.update(host="x")), "schema of records: $ Additional prop"),
    "measure": (
        rewritten(lambda r: r["final"].update(test_perplexity2=1.0)),
        "schema of records: $.final Unevaluated properties",
    ),
    "type": (rewritten(lambda r: r.update(num_classes="2000")), "schema of records: $.num_classes"),
    "version": (
        rewritten(lambda r: r["config"].update(experiment="suite-2025.1")),
        "must be of suite-2026.1. Received: 'suite-2025.1'",
    ),
    "ordinary": (
        rewritten(lambda r: r["config"].update(experiment="quickstart")),
        "must be of suite-2026.1. Received: 'quickstart'",
    ),
    "config": (rename, "must have the config of the suite. Received: other model"),
    "price": (
        rewritten(lambda r: r["price"].update(ratio=0.9)),
        "must have the config of the suite. Received: other methods, steps",
    ),
    "reference": (
        rewritten(lambda r: r["price"].update(reference="exp")),
        "must have the config of the suite. Received: other reference of its price",
    ),
    "seed": (rewritten(lambda r: r.update(seed=7)), "config of the suite. Received: other seed"),
    "device": (
        rewritten(lambda r: r["price"].update(device={**DEVICE, "count": 9})),
        "must have a price of its device. Received: {'count': 9, ",
    ),
    "data": (
        rewritten(lambda r: r["config"]["dataset"].update(label="wd50k")),
        "must be of a data set and a method of the suite. Received: wd50k, full",
    ),
    "unsigned": (
        lambda path: records.write_json(path, make()),
        "schema of records: $ 'checksum' is a required property",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_records_that_are_refused(tmp_path, kind):
    """In a folder that is submitted, and in a pack that is merged."""
    damage, why = REFUSED[kind]
    record = make()
    folder = write(tmp_path / "a", record)
    pack = submit(folder)
    path = folder / "quickstart" / "runs" / f"{record['cell']}.json"
    damage(path)
    said = mistake("softbench", "submit", str(folder))
    assert said.startswith(f"{folder}: quickstart/runs/language-lstm-full-s0-jax-") and why in said
    name = f"2026.1-quickstart-{submission.machine_id(record)}"
    suites.write_pack(
        {f"{name}/runs/{p.name}": p.read_bytes() for p in path.parent.iterdir()}, pack
    )
    if kind != "empty":
        merged = mistake("softbench-report", "--merge", str(pack), main=report_app.main)
        assert merged.startswith(f"{pack}: {name}/runs/") and why in merged


def test_a_folder_is_of_one_machine_and_has_each_run_once(tmp_path):
    folder = write(tmp_path / "a", make(), make(seed=1, machine=OTHER))
    said = mistake("softbench", "submit", str(folder))
    assert said == (
        f"{folder}: its records must be of one machine. Received: "
        "Test CPU (cpu x 2), 2 processors, 24 GiB; Test CPU (cpu x 2), 64 processors, 503 GiB"
    )
    again = make("unigram", seed=1)
    slower = {**RATIOS, "unigram": 0.6}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "RATIOS", slower)  # measured again: other steps, another cell
        twice = make("unigram", seed=1)
    assert twice["cell"] != again["cell"]
    folder = write(tmp_path / "b", again, twice)
    said = mistake("softbench", "submit", str(folder))
    assert said.endswith("Received: 2 of language, unigram, jax, 1")
    lost = {"status": "crashed", "error": "no"}
    for key in ("device", "machine", "curve", "final"):
        again.pop(key)
    folder = write(tmp_path / "c", again | lost)
    assert mistake("softbench", "submit", str(folder)).endswith("Received: none that names it")
    assert mistake("softbench", "submit", str(tmp_path)).startswith("The folder must be one that")
    assert mistake("softbench", "submit") == "`softbench submit` takes one folder. Received: []"


def test_files_that_are_not_merged(tmp_path):
    pack = submit(write(tmp_path / "a", make()))
    copy = tmp_path / "copy.tar.gz"
    shutil.copy(pack, copy)

    def merge_of(*paths):
        line = ["softbench-report", "--merge", *map(str, paths)]
        return mistake(*line, main=report_app.main)

    assert merge_of(pack, copy).startswith("Files of --merge must not hold the same run of a mach")
    rule = "A file of --merge must be one of `softbench submit`. Received: "
    assert merge_of(tmp_path / "none").startswith(rule)
    copy.write_bytes(pack.read_bytes()[:-9])
    assert merge_of(pack, copy).startswith(f"{rule}{copy}")
    contents = suites.read_pack(pack, "")
    record, plan = contents
    suites.write_pack({record: contents[record]}, copy)  # without its plan
    assert merge_of(copy).endswith(f", and no more. Received: {plan}")
    machine = pack.name[len("softbench-2026.1-") :][:8]
    renamed = {name.replace(machine, "0" * 8): content for name, content in contents.items()}
    suites.write_pack(renamed, copy)
    said = (
        f"{copy}: it must hold the records of machine {machine}, a plan for each run, and no more"
    )
    assert merge_of(copy).startswith(said)
    suites.write_pack({**contents, f"2026.1-quickstart-{machine}/price/a.json": b"{}"}, copy)
    assert merge_of(copy).endswith("price/a.json: is no record of a cell")
    with tarfile.open(copy, "w:gz") as archive:
        member = tarfile.TarInfo("2026.1-quickstart-0/runs/a.json")
        member.size = suites._LARGEST + 1
        archive.fileobj.write(member.tobuf())
    assert merge_of(copy) == f"{rule}{copy} (67,108,865 bytes of {member.name})"
    assert merge_of() == "--merge takes files and no other flag. Received: ['--merge']"
    assert merge_of(pack, "--check").startswith("--merge takes files and no other flag. Received:")


def test_a_pack_brings_its_records_into_the_results(tmp_path):
    """Unpacked there, they are an experiment of this machine, with a page that is current."""
    pack = submit(write(tmp_path / "a", make(), make("unigram")))
    results = tmp_path / "results"
    assert suites.unpack(pack, results) > 2
    for more in ([], ["--check"]):
        assert report_app.main(["softbench-report", f"--results={results}", *more]) == 0
    (folder,) = (path for path in results.iterdir() if path.is_dir())
    assert folder.name.startswith("2026.1-quickstart-") and (folder / "README.md").is_file()


@pytest.mark.thorough
def test_the_suite_runs_and_its_records_can_be_submitted(tmp_path, monkeypatch, capsys):
    """With small data, prices by real processes: what is written follows the schema."""
    run_cells_here(monkeypatch)
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    run = suite_version.Run(str(path), "full,uniform", "full:40", "")
    monkeypatch.setattr(suite_version, "RUNS", {"small": run})
    line = suite_version.lines_of_runs()["small"]
    monkeypatch.setitem(suites.SUITES, suite_version.NAME, {"small": line})
    config = app.configured(["softbench", *line.split()])
    made = matrix.cells(config)
    run = run._replace(sha256=suite_version.sha256_of(made))
    monkeypatch.setattr(suite_version, "RUNS", {"small": run})
    data = suite_version.data_sha256(made[0].config["dataset"], None)
    problem = suite_version.Problem("small", "valid_perplexity", 1e9, [], data)
    monkeypatch.setattr(suite_version, "PROBLEMS", {"synthetic_xmc": problem})
    line = ["softbench", f"--suite={suite_version.NAME}", f"--workdir={tmp_path / 'out'}"]
    assert command.main([*line, f"--backend={BACKEND}"]) == 0
    out = capsys.readouterr().out
    for method in ("full", "uniform"):
        assert f"| synthetic_xmc | {method} | {BACKEND} | this one |" in out
    assert "| 1 of 1 |" in out
    (path,) = (tmp_path / "out" / "small" / "price").glob("*.json")
    measured = json.loads(path.read_text())
    assert measured["device"]["kind"] == "cpu"
    rounds = measured["methods"]["uniform"]["rounds"]
    assert len(rounds) == price.ROUNDS and all(turn["step_ms"] > 0 for turn in rounds)
    submit_line = ["softbench", "submit", str(tmp_path / "out")]
    submission._suite_cells.cache_clear()
    assert command.main(submit_line) == 0
    submission._suite_cells.cache_clear()
