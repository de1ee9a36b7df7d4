"""Hand-made records for the tests of the report."""

from softbench.bench import records

CONFIG = {
    "backend": "jax",
    "dataset": {"name": "ptb"},
    "epochs": 2,
    "experiment": "demo",
    "methods": {"full": {"head": "FullSoftmax"}},
    "model": {"name": "lstm", "preset": "small"},
    "seed": 0,
    "task": "train",
}
PLAN = {
    "experiment": "demo",
    "title": "A demonstration",
    "methods": ["full", "exp", "uniform"],
    "columns": ["test_perplexity", "step_ms"],
    "paper": {
        "ptb-lstm_small-full": {"test_perplexity": 111.5},
        "ptb-lstm_small-exp": {"test_perplexity": 120},
    },
}


def make_record(seed=0, perplexity=118.0, step=60.0, method="full", **changes):
    record = {
        "schema_version": 1,
        "cell": f"ptb-lstm_small-{method}-s{seed}-jax-0123abcd",
        "command": "softbench --config=configs/demo.py",
        "config": {**CONFIG, "seed": seed, "methods": {method: {}}},
        "curve": [
            {"epoch": 1, "step": 100, "seconds": 10.0, "valid_perplexity": 180.0},
            {"epoch": 2, "step": 200, "seconds": 20.0, "valid_perplexity": perplexity},
        ],
        "device": {"kind": "cpu", "name": "Test CPU", "count": 2},
        "error": None,
        "final": {"test_perplexity": perplexity},
        "git": {"commit": "f" * 40, "dirty": False},
        "num_classes": 10_000,
        "seed": seed,
        "started_at": "2026-01-02T03:04:05+00:00",
        "status": "ok",
        "step_ms": {"median": step, "p20": step, "p80": step, "count": 9},
        "versions": {"keras": "3.15", "python": "3.11"},
    }
    return record | changes


def step_record(n, shared, peer):
    def times(median):
        summary = {"median": median, "p20": median / 2, "p80": median * 2, "count": 20}
        return {"compile_seconds": 1.0, "step_ms": summary}

    record = make_record(cell=f"random{n}-dense-steps-s0-jax-0123abcd", num_classes=n)
    record["config"]["task"] = "step_time"
    record["config"]["methods"] = {"shared": {"head": "SampledSoftmax"}, "peer_tf": {"peer": "tf"}}
    record["steps"] = {"shared": times(shared), "peer_tf": times(peer)}
    return record


def write_results(path, *made):
    records.write_json(path / "experiment.json", PLAN)
    for record in made:
        records.write_json(path / "runs" / f"{record['cell']}.json", record)
    return path


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
