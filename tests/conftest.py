"""What the tests need of the backend: compile, differentiate, and a sampler with given draws."""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# pytest-xdist starts a process for each core: one thread in each, and in its child processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# These tests compile hundreds of small functions: halves their time. Set the first to 0 and the
# second to nothing to test optimised.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from scipy import stats

from softbench import ClassTable
from softbench.groups import of_every_example
from softbench.samplers import Independent, Proposal, Sampler
from softbench.samplers.kernel import shape as kernel_shape

BACKEND = keras.backend.backend()
if BACKEND == "tensorflow":
    import tensorflow as tf

    # Graphs neither, most of which run once; those of child processes are optimised.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
SIGNIFICANCE = 1e-4

# Hypothesis: the same examples in each run, or `--hypothesis-profile=long` for new and more ones.
_COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
_SHORT = 12 if BACKEND == "tensorflow" else 4  # JAX compiles for each
settings.register_profile("short", max_examples=_SHORT, derandomize=True, **_COMMON)
_LONG = int(os.environ.get("SOFTBENCH_EXAMPLES", "2000"))
_GENERATE = {"phases": (Phase.explicit, Phase.generate)}  # to shrink an example can take an hour
settings.register_profile("long", max_examples=_LONG, database=None, **_GENERATE, **_COMMON)
settings.load_profile("short")


def pytest_collection_finish():
    """What the imports have made stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 50)


def slow_but(cases, *kept, thorough=()):
    """All `cases` as parameters, those that are not `kept` marked as thorough or as slow."""
    assert {*kept, *thorough} <= set(cases), f"not among the cases: {set(kept) - set(cases)}"

    def param(case):
        mark = pytest.mark.thorough if case in thorough else pytest.mark.slow
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=() if case in kept else mark)

    return [param(case) for case in cases]


def thorough_but(cases, *kept):
    """All `cases` as parameters, those that are not `kept` marked as thorough."""
    return slow_but(cases, *kept, thorough=tuple(cases))


@pytest.fixture(autouse=True, scope="module")
def _compiled_by_a_file():
    """Forgets what JAX has compiled for the tests of a file, which fills the memory of workers."""
    yield
    if BACKEND == "jax":
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.fixture
def rng():
    return np.random.default_rng(1234)


@pytest.fixture(autouse=True)
def _fixed_seed():
    keras.utils.set_random_seed(20)


def to_numpy(x):
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(x)))


def _distinct_variables(layers):
    return list({id(v): v for layer in layers for v in layer.variables}.values())


def compiled(function, *layers, xla=False):
    """`function(*arrays)` compiled; it reads and writes the state of `layers`.

    The result has `traces`, a list that grows by one at every Python trace.
    """
    traces = []

    def traced(*arrays):
        traces.append(1)
        return function(*arrays)

    if BACKEND == "tensorflow":
        import tensorflow as tf

        call = tf.function(traced, jit_compile=xla, autograph=False)  # as in Keras' `fit`
    else:
        import jax

        variables = _distinct_variables(layers)

        @jax.jit
        def stateless(values, *arrays):
            with keras.StatelessScope(zip(variables, values, strict=True)) as scope:
                before = [scope.get_current_value(v) for v in variables]
                result = traced(*arrays)
            after = [scope.get_current_value(v) for v in variables]
            pairs = enumerate(zip(before, after, strict=True))
            return result, {place: new for place, (old, new) in pairs if new is not old}

        def call(*arrays):
            result, changed = stateless([v.value for v in variables], *arrays)
            for place, value in changed.items():
                variables[place].assign(value)
            return result

    def on_tensors(*arrays):
        return call(*(keras.ops.convert_to_tensor(a) for a in arrays))

    on_tensors.traces = traces
    return on_tensors


def count_traces(model):
    """A list that grows by one whenever a training step of a Keras model is traced."""
    traces, step = [], model.train_step

    def traced(*args):
        traces.append(1)
        return step(*args)

    model.train_step = traced
    return traces


def gradient_function(function, layer, variables, xla=False):
    """arrays -> (value, gradients of the first array and of `variables`), compiled, as NumPy.

    `function(*arrays)` is a scalar. The layer's state is read and not written back on JAX: set
    its seed before each call for other draws.
    """
    if BACKEND == "tensorflow":
        import tensorflow as tf

        @tf.function(jit_compile=xla, autograph=False)
        def call(*arrays):
            with tf.GradientTape() as tape:
                tape.watch(arrays[0])
                value = function(*arrays)
            sources = [arrays[0], *(v.value for v in variables)]
            gradients = tape.gradient(value, sources, unconnected_gradients="zero")
            return value, [tf.convert_to_tensor(g) for g in gradients]
    else:
        import jax

        own = {id(v) for v in variables}
        others = [v for v in _distinct_variables([layer]) if id(v) not in own]

        def scalar(first, values, other_values, *rest):
            pairs = [*zip(variables, values, strict=True), *zip(others, other_values, strict=True)]
            with keras.StatelessScope(pairs):
                return function(first, *rest)

        differentiated = jax.jit(jax.value_and_grad(scalar, argnums=(0, 1)))

        def call(first, *rest):
            value, (to_first, to_variables) = differentiated(
                first, [v.value for v in variables], [v.value for v in others], *rest
            )
            return value, [to_first, *to_variables]

    def as_numpy(*arrays):
        value, gradients = call(*(keras.ops.convert_to_tensor(a) for a in arrays))
        return float(value), [to_numpy(g) for g in gradients]

    return as_numpy


def gradients(function, arrays):
    """Gradients of the sum of `function(*arrays)` with respect to the arrays, as NumPy."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(arrays)
            value = keras.ops.sum(function(*arrays))
        return [to_numpy(g) for g in tape.gradient(value, arrays)]
    import jax

    every = tuple(range(len(arrays)))
    return [to_numpy(g) for g in jax.grad(lambda *a: keras.ops.sum(function(*a)), every)(*arrays)]


def mean_loss_gradients(head):
    """(hidden, labels) -> mean training loss, its gradients by hidden, kernel and bias (if any)."""
    variables = [v for v in (head.table.kernel, head.table.bias) if v is not None]

    def mean_loss(hidden, labels):
        return keras.ops.mean(head(hidden, labels, training=True))

    return gradient_function(mean_loss, head, variables)


def head_gradients(head, hidden, labels):
    return mean_loss_gradients(head)(hidden, labels)


OF_TABLE = {"absolute", "logit_soft_cap", "kernel_initializer", "bias_initializer", "table_dtype"}


def on_table(cls, units, *arguments, **options):
    """A head; where options are those that only a class table has, it is given a table."""
    names = set(ClassTable.arguments) & set(options) - {"seed"}
    if not names & OF_TABLE:
        return cls(units, *arguments, **options)
    table = {name: options.pop(name) for name in names}
    table |= {name: options[name] for name in ("seed", "dtype") if name in options}
    return cls(None, *arguments, table=ClassTable(units, **table), **options)


def rejects(argument, function, *args, **kwargs):
    """A one-line ValueError that names the argument in backticks and what was received."""
    with pytest.raises(ValueError) as error:
        function(*args, **kwargs)
    message = str(error.value)
    assert f"`{argument}`" in message and "Received" in message
    return message


def log_counts(sampler, table, hidden, num_sampled, labels=None):
    """log E[times drawn] (B, n) of all classes, without the labels if they are given."""
    hidden = keras.ops.convert_to_tensor(hidden)
    labels = None if labels is None else keras.ops.convert_to_tensor(labels)
    proposal = sampler.propose(table, hidden, labels)
    return to_numpy(of_every_example(proposal.log_count_all(num_sampled), hidden))


def components(samples):
    """The `Samples` of a call of `sample`, which are a list where rows of draws differ."""
    return samples if isinstance(samples, list) else [samples]


class FixedProposal(Proposal):
    """Gives the draws that its sampler was made with."""

    def __init__(self, samples):
        super().__init__(None, samples.ids.shape[0], None)
        self.given = samples

    def samples(self, num_sampled, seed, labels):
        true = self.given.true_log_expected_count
        return [
            self.given._replace(true_log_expected_count=None if true is None else true[:, None])
        ]


class FixedSampler(Sampler):
    """Gives the draws that it was made with, ids (R, m); true counts (B,)."""

    def __init__(self, samples, **kwargs):
        super().__init__(share_draws=samples.ids.shape[0] == 1, **kwargs)
        self.samples = samples

    @property
    def excludes_labels(self):
        return False

    def propose(self, table, hidden, exclude=None, targets=None):
        return FixedProposal(self.samples)


class ConditionalProposal(Independent):
    """q (B, n) in full."""

    def __init__(self, log_q):
        super().__init__(log_q.shape[-1], None, keras.ops.shape(log_q)[0])
        self.every = log_q

    def draw_with_log_q(self, num_sampled, seed):
        ids = keras.random.categorical(self.every, num_sampled, seed=seed)
        ids = keras.ops.cast(ids, "int32")
        return ids, self.log_q(ids)

    def log_q(self, ids):
        return keras.ops.take_along_axis(self.every, ids, axis=-1)

    def log_q_all(self):
        return self.every


@keras.saving.register_keras_serializable("softbench_tests")
class ConditionalNoise(Sampler):
    """q(y|x) = softmax(x W), W (v, n) given: it depends on the sampler's inputs alone."""

    def __init__(self, matrix, **kwargs):
        super().__init__(**kwargs)
        self.matrix = np.asarray(matrix, float)

    def propose(self, table, hidden, exclude=None, targets=None):
        matrix = keras.ops.convert_to_tensor(self.matrix.astype("float32"))
        scores = keras.ops.matmul(hidden, matrix)
        if exclude is not None:
            own = keras.ops.equal(keras.ops.arange(scores.shape[-1]), exclude[:, None])
            scores = keras.ops.where(own, -float("inf"), scores)
        return ConditionalProposal(keras.ops.log_softmax(scores, axis=-1))

    def get_config(self):
        return {**super().get_config(), "matrix": self.matrix.tolist()}


TOP_SIZE = 4


def set_small_top(monkeypatch):
    """Block sums of few classes get several levels, the top one of at most `TOP_SIZE` nodes."""
    monkeypatch.setattr(kernel_shape, "FEWEST_TOP_NODES", TOP_SIZE)
    monkeypatch.setattr(kernel_shape, "TOP_NODES_PER_DRAW", {False: 0, True: 0})
    monkeypatch.setattr(kernel_shape, "LONG_TOP_NODES_PER_DRAW", {False: 0, True: 0})
    monkeypatch.setattr(kernel_shape, "DENSE_LEAVES_PER_DRAW", {False: 0, True: 0})


@pytest.fixture
def small_top(monkeypatch):
    set_small_top(monkeypatch)


def assert_drawn_from(ids, q):
    """Chi-square of ids (m,) against q (n,), with rare classes put together."""
    observed = np.bincount(ids, minlength=len(q))
    assert len(observed) == len(q), "an id is not a class"
    assert np.all(observed[q == 0] == 0), "a class of probability 0 was drawn"
    rare = q * len(ids) < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(q[~rare], q[rare].sum()) * len(ids)
    observed, expected = observed[expected > 0], expected[expected > 0]
    if len(expected) > 1:
        expected = expected * observed.sum() / expected.sum()
        assert stats.chisquare(observed, expected).pvalue > SIGNIFICANCE
