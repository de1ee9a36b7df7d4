"""Hand-made records of problems that are decided."""

from report_records import PLAN, make_record

from softbench.report import decisions, frame

STEPS = (100, 300, 1000)
FLAT = (0.5, 0.9, 1.0, 1.0, 1.0)  # of a learning curve whose last points improve nothing
METHODS = ["full", "in_batch", "unigram", "codebook", "rff"]


def records(
    name,
    numbers,
    steps=1000,
    shape=FLAT,
    n=10_000,
    chance=None,
    nats=(8.0, 5.0),
    reference="full",
    **more,
):
    """Records of a problem at a price.

    Args:
        name: of the problem.
        numbers: {method: its numbers, for seeds 0, 1, ...}.
        steps: of the reference.
        shape: of the validation curves, over their end.
        n: classes.
        chance: what the class frequencies reach.
        nats: log-loss of the class frequencies, and of all methods.
        reference: of their budget; "": they have none.
        more: fields of all records.
    """
    measure = decisions.PROBLEMS[name].measure
    lower = measure == "test_perplexity"
    chance = (1e4 if lower else 1e-4) if chance is None else chance
    made = []
    for method, values in numbers.items():
        for seed, value in enumerate(values):
            final = {measure: value, "test_nll": nats[1]}
            points = [value / part if lower else value * part for part in shape]
            valid = measure.replace("test", "valid")
            curve = [
                {"epoch": i, "step": i, "seconds": i, "reference_steps": steps * i, valid: p}
                for i, p in enumerate(points)
            ]
            record = make_record(seed, method=method, curve=curve, final=final, best=final)
            record |= {
                "cell": f"{name}-{method}-{steps}-s{seed}",
                "num_classes": n,
                "most_frequent": {measure: chance, "test_nll": nats[0]},
                "price": {"ratio": 1.0 if method == "full" else 0.5, "reference_ms": 20.0},
            }
            if reference:
                record["config"] = record["config"] | {"budget": f"{reference}:{steps}"}
            made.append(record | more)
    return made


def of(name, *made):
    """The frame of a problem's records."""
    plan = PLAN | {"methods": METHODS}
    return frame.of(f"decisions_{name}", plan, [record for part in made for record in part])


def decided(name, *made):
    """What is decided of a problem."""
    problems = decisions.of({f"decisions_{name}": of(name, *made)})
    return next(problem for problem in problems if problem["problem"] == name)
