"""Random streams stay: what each sampler draws first, and the loss of its third step, committed.

`tests/data/fingerprints.json` holds them for each backend. Renew those of a backend, from the root
of the checkout, when a change has to move a stream, and say so in CHANGELOG.md:

    KERAS_BACKEND=jax PYTHONPATH=. python tests/test_fingerprints.py

Ids are compared exactly, the loss to `TOLERANCE`: other processors round otherwise.
"""

import functools
import importlib.metadata
import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import BACKEND, compiled, set_small_top, thorough_but, to_numpy
from sampler_cases import CASES, D, batch, make

from softbench import RowAdagrad, SampledSoftmax
from softbench.samplers import REGISTRY

PATH = Path(__file__).parent / "data" / "fingerprints.json"
COMMAND = f"KERAS_BACKEND={BACKEND} PYTHONPATH=. python tests/test_fingerprints.py"
N, M = 33, 5
TOLERANCE = 1e-3
# The first variant of each sampler that has fingerprints, and one of each other way of drawing: a
# new sampler has some from the next time that they are renewed.
OTHERS = ("unigram-shared", "unigram-unique", "rff-shared", "exp-shared", "adversarial-shared")
QUICK = ("adversarial-per_example", "codebook-per_example", "exp-per_example", "in_batch-counts")
QUICK += ("rff-per_example", "unigram-unique", "unigram-per_example")
FIRST = (f"{name}-{next(iter(CASES.get(name, {'': 0})))}" for name in REGISTRY)
STREAMS = sorted([*FIRST, *OTHERS])


@functools.cache
def known():
    return json.loads(PATH.read_text())


def fingerprint(case):
    """The ids of the first draws, and the loss of the third step, of a head with row updates."""
    head = SampledSoftmax(N, make(case, N), M, row_optimizer=RowAdagrad(0.3))
    head.build((None, D))
    head.table.kernel.assign(np.random.default_rng(0).normal(0, 1, (N, D)))
    head.sampler.refresh(head.table)

    def step(hidden, labels):
        ids = head.sampler.sample(head.table, hidden, M, labels).ids
        return ids, head(hidden, labels, training=True)

    call = compiled(step, head)
    first, *_, (_, loss) = [call(*batch(N)) for _ in range(3)]
    return {"ids": to_numpy(first[0]).tolist(), "loss": float(to_numpy(loss).mean())}


def versions():
    return {name: importlib.metadata.version(name) for name in ("keras", BACKEND)}


@pytest.mark.usefixtures("small_top")
@pytest.mark.parametrize(
    "case", thorough_but([case for case in STREAMS if case in known()[BACKEND]], *QUICK)
)
def test_random_streams_stay(case):
    expected, found = known()[BACKEND][case], fingerprint(case)
    message = (
        f"random stream of {case} moved: note it in CHANGELOG and renew with {COMMAND}. It was "
        f"taken with {known()['versions'][BACKEND]}; here are {versions()}"
    )
    assert found["ids"] == expected["ids"], message
    assert found["loss"] == pytest.approx(expected["loss"], rel=TOLERANCE), message


def test_both_backends_have_the_same_streams():
    assert list(known()["jax"]) == list(known()["tensorflow"]), f"make them with {COMMAND}"


def main():
    found = json.loads(PATH.read_text()) if PATH.exists() else {"versions": {}}
    with pytest.MonkeyPatch.context() as patch:
        set_small_top(patch)
        found[BACKEND] = {case: fingerprint(case) for case in STREAMS}
    found["versions"][BACKEND] = versions()
    text = json.dumps(found, indent=1, sort_keys=True)
    # A list of ids on a line.
    PATH.write_text(re.sub(r"\s+(?=[\d\]])|(?<=\[)\s+", "", text) + "\n")


if __name__ == "__main__":
    main()
