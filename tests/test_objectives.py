"""`SampledSoftmax` with the losses of recommenders: of all classes, saved, and what is refused."""

import json

import numpy as np
import pytest
import reference
from conftest import rejects, to_numpy
from small import classifier, labels_below, randomize, saved_and_loaded, spec, vectors

from softbench import ClassTable, SampledSoftmax

N, D, B = 7, 4, 5
ALL = spec("uniform", unique=True)  # with m = n every class once
BOUNDED = {"normalize": True, "use_bias": False, "temperature": 0.2}
RELU = spec("psl", tau=0.3, activation="relu")
OBJECTIVES = {
    "bsl": ("bsl", reference.bsl, (1.1,)),
    "bsl of a ratio": (spec("bsl", ratio=0.8), reference.bsl, (0.8,)),
    "psl": ("psl", reference.psl, (0.1, "tanh")),  # half the temperature
    "psl relu": (RELU, reference.psl, (0.3, "relu")),
    "sl_at_k": (spec("sl_at_k", k=2), reference.sl_at_k, (2, 10.0)),
    "sl_at_k of a temperature": (
        spec("sl_at_k", k=3, weight_temperature=1.0),
        reference.sl_at_k,
        (3, 1.0),
    ),
}


def made(objective, **options):
    head = SampledSoftmax(N, ALL, N, objective=objective, **{**BOUNDED, **options})
    head.build((None, D))
    randomize(head.table)
    return head


@pytest.mark.parametrize("name", OBJECTIVES)
def test_of_all_classes(name):
    """The loss of every other class once, in float64; the exact likelihood is the softmax's."""
    objective, loss, parameters = OBJECTIVES[name]
    head, hidden, labels = made(objective), vectors(B, D), labels_below(N, B)
    scores = reference.scores(hidden.astype(float), to_numpy(head.table.kernel), 0.0, True, 0.2)
    true = scores[np.arange(B), labels]
    sampled = np.where(np.arange(N) == labels[:, None], -np.inf, scores)
    expected = loss(true, sampled, np.ones(N), *parameters)
    found = to_numpy(head(hidden, labels, training=True))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    nll = reference.negative_log_likelihood(scores, labels)
    np.testing.assert_allclose(to_numpy(head(hidden, labels)), nll, rtol=1e-4)


@pytest.mark.parametrize("name", ["psl relu", "sl_at_k", "bsl"])
def test_saved_and_loaded(name, tmp_path):
    objective = OBJECTIVES[name][0]
    head = SampledSoftmax(N, "uniform", 3, objective=objective, seed=1, **BOUNDED)
    model = classifier(head, D)
    x, y = vectors(B, D), labels_below(N, B)
    model.fit(x, y, verbose=0)
    loaded = saved_and_loaded(model, tmp_path)
    assert json.loads(json.dumps(loaded.head.get_config()))["objective"] == objective
    first, second = (to_numpy(m.head(x, y, training=True)) for m in (model, loaded))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ["bsl", "psl", "sl_at_k"])
def test_several_labels(name):
    """The mean over the labels of the loss against the classes that are none."""
    objective, loss, parameters = OBJECTIVES[name]
    head = made(objective, multi_label="mean")
    hidden, labels = vectors(2, D), np.array([[1, 3, -1], [0, 5, 6]], "int32")
    scores = reference.scores(hidden.astype(float), to_numpy(head.table.kernel), 0.0, True, 0.2)
    expected = reference.of_several(
        lambda true, others: loss(true, others, np.ones(others.shape[1]), *parameters),
        scores,
        labels,
    )
    found = to_numpy(head(hidden, labels, training=True))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_what_bounds_the_scores_of_bsl():
    capped = ClassTable(N, logit_soft_cap=9.0)
    SampledSoftmax(table=capped, sampler="uniform", objective="bsl")
    for options in ({}, {"normalize": True}, {"use_bias": False}):
        message = rejects("objective", SampledSoftmax, N, "uniform", objective="bsl", **options)
        assert "use_bias=False" in message
        rejects(
            "objective",
            SampledSoftmax,
            table=ClassTable(N, **options),
            sampler="uniform",
            objective="bsl",
        )


@pytest.mark.parametrize(
    ("argument", "objective"),
    [
        ("objective", "bpr"),
        ("objective", None),
        ("objective", {"config": {"k": 3}}),
        ("objective", {"class_name": "psl", "tau": 3}),
        ("objective", spec("psl", ratio=3)),
        ("tau", spec("psl", tau=0)),
        ("activation", spec("psl", activation="exp")),
        ("k", spec("sl_at_k", k=0)),
        ("k", spec("sl_at_k", k=N + 1)),
        ("ratio", spec("bsl", ratio="1.1")),
    ],
)
def test_bad_objectives(argument, objective):
    assert "Received" in rejects(argument, made, objective)


@pytest.mark.parametrize("option", [{"correct_true_logit": True}, {"label_smoothing": 0.1}])
def test_options_of_the_softmax_alone(option):
    rejects("objective", made, "psl", **option)
