"""What holds for all heads, samplers, precisions and shapes, on examples that Hypothesis looks for.

`--hypothesis-profile=long` tries 2,000 examples of each property instead of 12 (JAX: 4). Shapes and
numbers come from small sets: what JAX has compiled for an example serves many others.
"""

import keras
import numpy as np
import pytest
from conftest import BACKEND, compiled, gradients, rejects, to_numpy
from hypothesis import assume, given
from hypothesis import strategies as st
from loss_cases import OBJECTIVES
from property_cases import EXACT, SAMPLED, D, cases, head_of
from sampler_cases import KERNELS

from softbench import losses


def side(case):
    ids = np.arange(len(case.labels), dtype="int32")
    return {"example_ids": ids} if case.head == "augment" else {}


def numbers(x):
    """A tensor of any precision in float32 NumPy, which has no bfloat16."""
    return to_numpy(keras.ops.cast(x, "float32"))


def program(function, head):
    """The function, on JAX as one program: an eager call there compiles each operation."""
    return compiled(function, head) if BACKEND == "jax" else function


def losses_and_gradients(head, labels, **extra):
    """hidden -> training losses (B,), the gradients of their sum, to hidden and to what trains."""
    variables = head.trainable_variables
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def eager(hidden):
            with tf.GradientTape() as tape:
                hidden = tf.convert_to_tensor(hidden)
                tape.watch(hidden)
                losses = head(hidden, labels, training=True, **extra)
                total = tf.reduce_sum(losses)
            sources = [hidden, *(v.value for v in variables)]
            found = tape.gradient(total, sources, unconnected_gradients="zero")
            return numbers(losses), [numbers(tf.convert_to_tensor(g)) for g in found]

        return eager
    import jax

    others = [v for v in head.variables if all(v is not own for own in variables)]

    def total(hidden, values, state):
        pairs = [*zip(variables, values, strict=True), *zip(others, state, strict=True)]
        with keras.StatelessScope(pairs) as scope:
            losses = head(hidden, labels, training=True, **extra)
        return keras.ops.sum(losses), (losses, [scope.get_current_value(v) for v in others])

    differentiated = jax.jit(jax.grad(total, (0, 1), has_aux=True))

    def call(hidden):
        values = [[v.value for v in own] for own in (variables, others)]
        found, (losses, state) = differentiated(keras.ops.convert_to_tensor(hidden), *values)
        for variable, value in zip(others, state, strict=True):
            variable.assign(value)
        return numbers(losses), [numbers(g) for g in (found[0], *found[1])]

    return call


@given(cases())
def test_losses_gradients_and_updated_rows_are_finite(case):
    head = head_of(case)
    step = losses_and_gradients(head, case.labels, **side(case))
    for _ in range(2):
        losses, gradients = step(case.hidden)
        assert losses.shape == case.labels.shape and np.isfinite(losses).all()
        assert all(np.isfinite(g).all() for g in gradients)
        for variable in head.variables:
            assert np.isfinite(numbers(variable)).all() or "log_p" in variable.name, variable.path
    nll = to_numpy(program(lambda hidden: head(hidden, case.labels), head)(case.hidden))
    assert np.isfinite(nll).all() or case.head.startswith("negative")  # what is never drawn: p = 0
    assert (nll > -1e-2).all()


@pytest.mark.parametrize(
    ("head", "batch"), [("full", (2, 0)), *((name, (0,)) for name in (*EXACT, *SAMPLED))]
)
def test_an_empty_batch_is_a_clear_error(head, batch):
    maker = EXACT.get(head) or (lambda n: SAMPLED[head](n, "uniform", 4))
    layer, hidden = maker(7), np.zeros((*batch, D), "float32")
    labels = np.zeros(batch, "int32")
    extra = {"example_ids": labels} if head == "augment" else {}
    for training in (True, False):
        rejects("hidden", layer, hidden, labels, training=training, **extra)
    assert tuple(layer(hidden).shape) == (*batch, 7)  # to predict nothing is to have no scores


LOGIT = st.sampled_from([0.0, 1.0, -2.0, 1e4, -1e4])
LOG_COUNT = st.sampled_from([-21.25, -1.0, 0.0, 2.5, 20.5, -float("inf")])
NAMES = [name for name, own in OBJECTIVES.items() if own.masks]


@st.composite
def logits(draw):
    """true (B,), sampled (B, m), masked ones -inf, and their log counts: exact in float32."""
    batch, size = draw(st.sampled_from([1, 3])), draw(st.sampled_from([1, 4]))

    def array(values, *shape):
        count = int(np.prod(shape))
        found = draw(st.lists(values, min_size=count, max_size=count))
        return np.array(found, "float32").reshape(shape)

    shared = draw(st.booleans())
    counts = array(LOG_COUNT, size) if shared else array(LOG_COUNT, batch, size)
    sampled = array(LOGIT | st.just(-float("inf")), batch, size)
    true_counts = array(LOG_COUNT.filter(np.isfinite), batch)
    return array(LOGIT, batch), sampled, true_counts, counts


@given(st.sampled_from(NAMES), logits(), st.sampled_from([1.0, -3.0, 1e4]))
def test_objectives_are_finite_and_of_softmax_take_no_constant(name, arrays, constant):
    true, sampled, true_counts, counts = arrays
    objective = OBJECTIVES[name].loss
    if name == "augment_reduce":  # at an eta that is near the best
        eta = to_numpy(OBJECTIVES["sampled_softmax"].loss(*arrays)) + 0.5
        objective = lambda *a: losses.augment_reduce(*a, eta)  # noqa: E731

    def of(true, sampled):
        return objective(true, sampled, true_counts, counts)

    tensors = [keras.ops.convert_to_tensor(array) for array in (true, sampled)]
    found = to_numpy(of(*tensors))
    assert found.shape == true.shape and np.isfinite(found).all()
    assert all(np.isfinite(g).all() for g in gradients(of, tensors))
    if OBJECTIVES[name].of_differences:
        shifted = to_numpy(of(true + np.float32(constant), sampled + np.float32(constant)))
        np.testing.assert_allclose(shifted, found, rtol=1e-6, atol=1e-6)


def tolerance(case):
    """Of float32 sums of scores as large as the case's."""
    return 1e-5 * (1 + np.abs(case.hidden @ case.kernel.T).max() + np.abs(case.bias).max())


EQUIVARIANT = [f"{x}-per_example" for x in ("uniform", "unigram", "exp", "quadratic", "positive")]
ALIKE = {"samplers": EQUIVARIANT, "plain": True}


@given(cases(heads=("full", "full chunked", "sampled", "negative"), **ALIKE), st.randoms())
def test_a_permutation_of_the_classes_permutes_results(case, random):
    order = random.sample(range(case.units), case.units)
    place = np.argsort(order)  # where a class has gone to
    moved = case._replace(
        counts=[case.counts[i] for i in order],
        kernel=case.kernel[order],
        bias=case.bias[order],
        labels=place[case.labels],
    )

    def results(case):
        """Scores, log q or the training losses, which are not random, and likelihoods."""
        head = head_of(case)

        def call(hidden):
            if case.head in SAMPLED:
                other = keras.ops.exp(head.sampler.log_prob(head.table, hidden))
            else:
                other = head(hidden, case.labels, training=True)
            return head(hidden), other, head(hidden, case.labels)

        return [to_numpy(x) for x in program(call, head)(case.hidden)]

    close = {"rtol": 1e-4, "atol": tolerance(case)}
    (scores, other, nll), (new_scores, new_other, new_nll) = results(case), results(moved)
    np.testing.assert_allclose(new_scores, scores[:, order], **close)
    np.testing.assert_allclose(new_nll, nll, **close)
    if case.head in SAMPLED:
        close = {"rtol": 1e-3, "atol": 1e-4 + tolerance(case)}
        other = other[:, order]
    np.testing.assert_allclose(new_other, other, **close)


WITH_BIAS = {"scores": ("plain", "normalised", "absolute"), "plain": True}


@given(cases(heads=("full",), **WITH_BIAS), st.sampled_from([1.0, -150.0]))
def test_a_constant_added_to_all_biases_changes_no_likelihood(case, constant):
    head = head_of(case)
    both = program(lambda h: [head(h, case.labels, training=t) for t in (False, True)], head)
    first = [to_numpy(x) for x in both(case.hidden)]
    head.table.bias.assign(case.bias + np.float32(constant))
    second = [to_numpy(x) for x in both(case.hidden)]
    np.testing.assert_allclose(
        second, first, rtol=1e-4, atol=tolerance(case) + 1e-5 * abs(constant)
    )


@given(cases(heads=("sampled",), plain=True), st.booleans())
def test_draws_are_classes_that_can_be_drawn_with_their_counts(case, with_labels):
    """Shared, unique and per example; the label left out where there is another class."""
    head = head_of(case)
    sampler, table, batch = head.sampler, head.table, len(case.labels)
    assume(with_labels or "in_batch" not in case.sampler)
    assume(not case.sampler.startswith("top_and_tail"))  # counts that do not sum to m
    labels = case.labels.astype("int32") if with_labels else None
    asked = labels if sampler.per_example else None

    def draw(hidden):
        drawn = sampler.sample(table, hidden, case.num_sampled, labels)
        return drawn, sampler.log_prob(table, hidden, labels=asked)

    drawn, log_q = program(draw, head)(case.hidden)
    log_q = to_numpy(log_q).astype(float)
    ids, counts = to_numpy(drawn.ids), to_numpy(drawn.log_expected_count)
    assert with_labels or drawn.true_log_expected_count is None
    size = case.num_sampled
    if case.sampler.startswith("in_batch"):
        size = min(size, batch) + sampler.memory
    elif case.sampler == "mixed-in_batch_shared":
        first, second = sampler.sizes(size)
        size = first + min(second, batch)
    assert ids.shape == (batch if sampler.per_example else 1, size) == counts.shape
    assert ids.min() >= 0 and ids.max() < case.units
    assert log_q.shape == (batch, case.units) and not np.isnan(log_q).any()
    possible = np.isfinite(log_q).any(axis=-1)
    unique = getattr(sampler, "unique", False)
    total = case.num_sampled if unique else 1.0
    np.testing.assert_allclose(np.exp(log_q).sum(-1)[possible], total, rtol=1e-4)
    if unique:
        assert all(len(set(row)) == size for row in ids.tolist())
    if asked is not None:
        assert np.isneginf(log_q[np.arange(batch), labels]).all()
        assert (ids != labels[:, None])[possible].all()
    if case.sampler.split("-")[0] in ("unigram", *KERNELS):
        allowed = np.array(case.counts) > 0
        assert allowed[np.broadcast_to(ids, (batch, size))[possible]].all()
    if "in_batch" not in case.sampler and "mixed" not in case.sampler:
        own = np.take_along_axis(log_q, np.broadcast_to(ids, (batch, size)), axis=-1)
        own += 0.0 if unique else np.log(size)
        np.testing.assert_allclose(
            np.broadcast_to(counts, own.shape)[possible], own[possible], atol=2e-3
        )
