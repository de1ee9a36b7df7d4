"""A TensorFlow step reads every weight before it updates it, in the graph that is really run."""

import keras
import numpy as np
import pytest
from head_zoo import HEADS, built
from test_weights import FEATURES, HIDDEN, LABELS, WEIGHT, model_of

if keras.backend.backend() != "tensorflow":
    pytest.skip("a step of JAX takes weights and returns others", allow_module_level=True)

from tensorflow.python.eager import context  # graphs after their optimization have no public name


def step_graph(model):
    """The largest graph that one training step runs, as TensorFlow has optimized it."""
    context.enable_graph_collection()
    model.train_on_batch([HIDDEN, LABELS, WEIGHT, FEATURES, np.arange(6, dtype="int32")])
    run = context.export_run_metadata()
    context.disable_graph_collection()
    graphs = [graph for function in run.function_graphs for graph in function.partition_graphs]
    return max(graphs, key=lambda graph: len(graph.node))


def unordered(graph):
    """Pairs of a read and an update of one variable of which neither waits for the other."""
    sources = {n.name: [s.lstrip("^").split(":")[0] for s in n.input] for n in graph.node}

    def variable(name):
        while not name.endswith("_resource"):
            name = sources[name][0]
        return name

    def before(name, known):
        for source in set(sources[name]) - known:
            known.add(source)
            before(source, known)
        return known

    reads = [n.name for n in graph.node if n.op in ("ReadVariableOp", "ResourceGather")]
    updates = [n.name for n in graph.node if n.op.startswith(("Assign", "ResourceS"))]
    assert reads and updates
    waits = {name: before(name, set()) for name in reads + updates}
    return [
        (read, update)
        for read in reads
        for update in updates
        if variable(sources[read][0]) == variable(sources[update][0])
        and read not in waits[update]
        and update not in waits[read]
    ]


@pytest.mark.parametrize("name", ["full", "sampled", "nce ranking rows", "adaptive"])
def test_no_weight_is_read_while_it_is_updated(name):
    model = model_of(built(HEADS[name]()))
    model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    assert unordered(step_graph(model)) == []
