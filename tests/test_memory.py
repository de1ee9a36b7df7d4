"""`in_batch(memory=M)`: the last M labels that counted are negatives too, with their counts."""

import keras
import numpy as np
import pytest
from conftest import assert_drawn_from, compiled, to_numpy
from small import labels_below, make_sampler, spec, training, vectors

from softbench import SampledSoftmax
from softbench.targets import Targets

N, D, M = 9, 4, 5
COUNTS = np.arange(1.0, N + 1)


def made(memory=M, num_sampled=3, counts=COUNTS, **options):
    counts = None if counts is None else counts.tolist()
    head = SampledSoftmax(N, spec("in_batch", counts=counts, memory=memory), num_sampled, **options)
    head.build((None, D))
    return head


def recent(head):
    return to_numpy(head.sampler.recent).tolist()


@pytest.mark.parametrize("size", [1, 3, 8])
def test_it_holds_the_last_labels_that_counted(size):
    """Of training steps alone: not those of weight 0, nor of `ignore_index`."""
    head = made(ignore_index=-1)
    train = compiled(lambda h, y, w: head(h, y, sample_weight=w, training=True), head)
    evaluate = compiled(lambda h, y: head(h, y), head)
    rng, seen = np.random.default_rng(size), []
    for _ in range(4):
        labels = rng.integers(-1, N, size).astype("int32")
        weight = rng.integers(0, 3, size).astype("float32")
        losses = train(vectors(size, D), labels, weight)
        assert np.isfinite(to_numpy(losses)).all()
        seen += labels[(labels >= 0) & (weight > 0)].tolist()
        evaluate(vectors(size, D), rng.integers(0, N, size).astype("int32"))
        head.sampler.sample(head.table, keras.ops.zeros((2, D)), 3, np.array([0, 1]))
        held = seen[-M:]
        assert recent(head) == [-1] * (M - len(held)) + held


def test_draws_are_those_of_the_batch_and_of_the_memory():
    """E[count_i] = (k (B - 1) / B + held) p_i, of all draws alike; empty places do not count."""
    head = made(num_sampled=2)
    p, labels = COUNTS / COUNTS.sum(), np.array([4, 4, 8, 0], "int32")
    for held, count in (([], 2 * 3 / 4), ([7, 4], 2 * 3 / 4 + 2), ([1, 2, 3, 4, 5], 2 * 3 / 4 + 5)):
        head.sampler.recent.assign(np.array([-1] * (M - len(held)) + held))
        drawn = head.sampler.sample(head.table, keras.ops.zeros((4, D)), 2, labels)
        ids, log_count = to_numpy(drawn.ids)[0], to_numpy(drawn.log_expected_count)[0]
        assert ids.shape == log_count.shape == (2 + M,)
        assert set(ids[:2]) <= set(labels.tolist())
        counts = np.isfinite(log_count)
        assert counts.tolist() == [True] * 2 + [False] * (M - len(held)) + [True] * len(held)
        assert ids[2:][counts[2:]].tolist() == held
        np.testing.assert_allclose(np.exp(log_count[counts]), count * p[ids[counts]], rtol=1e-5)
        true = to_numpy(drawn.true_log_expected_count)
        np.testing.assert_allclose(np.exp(true), count * p[labels], rtol=1e-5)


def test_how_often_a_class_is_drawn():
    """Labels drawn from p: E[count of i | own label is not i] = (k (B - 1) / B + M) p_i."""
    size, k, repeats = 4, 3, 400
    p = COUNTS / COUNTS.sum()
    sampler = make_sampler("in_batch", counts=COUNTS.tolist(), memory=M, seed=2)
    sampler.build((N, D), k)

    def step(hidden, labels):
        drawn = sampler.sample(None, hidden, k, labels)
        sampler.remember(Targets(labels))
        return drawn

    step = compiled(step, sampler)
    rng, counts, others, every = np.random.default_rng(0), [], [], []
    for _ in range(repeats):
        labels = rng.choice(N, size, p=p).astype("int32")
        drawn = step(np.zeros((size, D), "float32"), labels)
        ids = to_numpy(drawn.ids)[0][np.isfinite(to_numpy(drawn.log_expected_count)[0])]
        if len(ids) == k + M:  # the memory is full
            counts.append(np.bincount(ids, minlength=N))
            others.append((labels[:, None] != np.arange(N)).sum(0))
            every.append(ids[-size:])  # those of one earlier batch
    assert_drawn_from(np.concatenate(every), p)
    counts, others = np.array(counts, float), np.array(others, float)
    mean = (counts * others).sum(0) / others.sum(0)
    expected = (k * (size - 1) / size + M) * p
    # A label stays for one or two steps after its own: four times the variance.
    error = np.sqrt(4 * expected / len(counts))
    assert (np.abs(mean - expected) < 4 * error).all()


def test_the_first_step_has_no_labels_of_its_own_in_memory():
    """Its loss is that without a memory; the second has those of the first."""
    hidden, labels = vectors(4, D), labels_below(N, 4)
    heads = [made(memory, 4, seed=1) for memory in (0, M)]
    heads[1].table.kernel.assign(heads[0].table.kernel)
    steps = [training(head) for head in heads]
    first = [to_numpy(step(hidden, labels)) for step in steps]
    np.testing.assert_allclose(*first, rtol=1e-6)
    second = [to_numpy(step(hidden, labels)) for step in steps]
    assert not np.allclose(*second, rtol=1e-3)


@pytest.mark.parametrize(
    "sampler",
    [
        spec("mixed", first=spec("in_batch", memory=M), second="uniform"),
        pytest.param(
            spec(
                "top_and_tail",
                num_top=2,
                counts=COUNTS.tolist(),
                share_draws=True,
                top=spec("codebook", num_codewords=2),
                tail=spec("in_batch", memory=M),
            ),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["mixed", "top_and_tail"],
)
def test_within_another_sampler(sampler):
    head = SampledSoftmax(N, sampler, 4, seed=1)
    head.build((None, D))
    inner = head.sampler.first if hasattr(head.sampler, "first") else head.sampler.tail
    labels = labels_below(N, 4)
    for _ in range(2):
        losses = to_numpy(training(head)(vectors(4, D), labels))
        assert np.isfinite(losses).all()
    assert to_numpy(inner.recent).tolist() == [*labels[-1:], *labels]
