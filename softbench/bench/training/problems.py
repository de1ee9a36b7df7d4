"""Problems: a data set, the encoder for it, how its batches are read and how it is evaluated."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import scipy.sparse as sp

from softbench import datasets, metrics, models
from softbench.bench.training import build, recommenders, side_inputs
from softbench.bench.training.evaluation import evaluate, oracle

TOP_K = (1, 3, 5)
# A and B of the propensity model, for the sets that its paper fits it to.
PROPENSITY = {
    "xmc/wikilshtc-325k": (0.5, 0.4),
    "xmc/wikipedia-500k": (0.5, 0.4),
    "xmc/amazon-670k": (0.6, 2.6),
}
MODELS = ("lstm", "bag", "linear", "pair", "sasrec", "matrix_factorisation")
MOST_LABELS = 64  # of a row at each visit, for heads with `multi_label`
_PAIR = ("dim", "hidden_units", "dropout", "batch_size")  # of `pair_encoder` in the config
PROBE_BATCH = 3  # by then the carried state of a language model knows some text


class Problem(NamedTuple):
    """What training needs, besides the head.

    Attributes:
        num_classes: n.
        counts: (n,) occurrences of each class in the training data.
        encoder: model from inputs to hidden vectors (..., d).
        train: batches (x, y), in the order in which they are trained on.
        start_seconds: what the first weights took, which counts as training.
        held_out: "valid" or "test" -> batches (x, y, weight); None of recommenders, which are
            evaluated on every user's next item.
        examples: labels per training step: tokens of a language, rows of a multi-label set.
        evaluate: (model, "valid" or "test") -> {"nll", "perplexity", "precision_at_1", ...}, see
            `softbench.metrics.RankingTotals`; of the most frequent classes if the model is None.
        probe: encoder or None -> its outputs on a fixed validation batch, an array (B, d) or a dict
            of arrays, and a label of each (B,); -1 for an example that has none. None is `encoder`.
        head_kwargs: arguments of the head that belong to the model: initial weights.
        callbacks: makes the callbacks of one `fit` or `evaluate`.
        optimizer: (spec of the config, epoch from 0) -> {"name", "learning_rate", ...}.
        tree: for a method whose sampler is a fitted tree; None where inputs are not fixed features.
        num_rows: N of the training set, if its rows have numbers and no order, else None.
        tied: built head -> the encoder that reads the head's table, of the same shapes as
            `encoder`; None where the encoder does not read it.
        oracle: "valid" or "test" -> scores there of the distribution that generated data were
            drawn from; None of other data.
    """

    num_classes: int
    counts: np.ndarray
    encoder: keras.Model
    train: build.Batches
    examples: int
    evaluate: Callable[[keras.Model | None, str], dict]
    probe: Callable[..., tuple[Any, np.ndarray]]
    head_kwargs: Mapping[str, Any] = MappingProxyType({})
    callbacks: Callable[[], list] = list
    optimizer: Callable[[dict, int], dict] = lambda spec, epoch: spec
    tree: side_inputs.TreeInputs | None = None
    num_rows: int | None = None
    tied: Callable[[keras.layers.Layer], keras.Model] | None = None
    oracle: Callable[[str], dict] | None = None
    start_seconds: float = 0.0
    held_out: Callable[[str], Any] | None = None


def load(config: dict, data_dir: str | None) -> Problem:
    """Loads the cell's data and builds its encoder."""
    dataset = datasets.arguments(config["dataset"])
    name = dataset.pop("name")
    data = datasets.load(name, **({"data_dir": data_dir} if data_dir else {}), **dataset)
    problem = _problem(data, config)
    if getattr(data, "truth", None) is None:
        return problem
    truths = {"valid": data.valid_truth, "test": data.truth}
    return problem._replace(oracle=lambda split: oracle(truths[split], TOP_K, data.counts))


def _problem(data: Any, config: dict) -> Problem:
    if config.get("refit") and not isinstance(data, datasets.InteractionData):
        raise ValueError(f"`refit` must be False for {type(data).__name__}. Received: True")
    if isinstance(data, datasets.LanguageData):
        return _language(data, config)
    if isinstance(data, datasets.TripleData):
        return _triples(data, config)
    if isinstance(data, datasets.InteractionData):
        return Problem(**recommenders.problem(data, config))
    return _multi_label(data, config)


def _language(data: datasets.LanguageData, config: dict) -> Problem:
    options = {k: v for k, v in config["model"].items() if k not in ("name", "label")}
    row_optimizer = build.row_optimizer(options.pop("row_optimizer", None))
    encoder = build.custom_encoder(data, config)
    preset = models.get_preset(options.pop("preset", "small"))
    if encoder is not None:  # whose options may be others
        options = {key: value for key, value in options.items() if key in preset._fields}
    preset = preset._replace(**options)
    if encoder is None:
        encoder = models.lstm_language_model(
            data.num_classes, preset, seed=config["seed"], row_optimizer=row_optimizer
        )
    batch, steps = preset.batch_size, preset.num_steps
    held_out = {
        split: datasets.EvaluationBatches(getattr(data, split), batch, steps)
        for split in ("valid", "test")
    }

    def optimizer(spec: dict, epoch: int) -> dict:
        if spec.get("schedule") != "zaremba":
            return spec
        # The paper's rate and clip norm are those of the loss summed over the unrolled steps;
        # the loss here is the mean. lr clip(T g, c) = (T lr) clip(g, c / T).
        rate = models.zaremba_learning_rate(preset, epoch) * steps
        return {**spec, "learning_rate": rate, "global_clipnorm": preset.clip_norm / steps}

    def score(model: keras.Model | None, split: str) -> dict:
        models.reset_states(encoder)
        scores = evaluate(model, held_out[split], TOP_K, data.counts)
        models.reset_states(encoder)
        return scores

    def probe(_: keras.Model | None = None) -> tuple[np.ndarray, np.ndarray]:
        valid = held_out["valid"]
        models.reset_states(encoder)
        for index in range(min(PROBE_BATCH + 1, len(valid))):
            x, labels, weight = valid[index]
            hidden = encoder(keras.ops.convert_to_tensor(x), training=False)
        models.reset_states(encoder)
        return keras.ops.convert_to_numpy(hidden)[weight > 0], labels[weight > 0]

    scale = preset.init_scale
    uniform = keras.initializers.RandomUniform(-scale, scale, seed=config["seed"])
    train = datasets.CarriedBatches(data.train, batch, steps)
    return Problem(
        num_classes=data.num_classes,
        counts=data.counts,
        encoder=encoder,
        train=build.Batches(train, config["steps_per_epoch"]),
        examples=batch * steps,
        evaluate=score,
        probe=probe,
        head_kwargs={"kernel_initializer": uniform, "bias_initializer": uniform.clone()},
        callbacks=lambda: [models.CarryState()],
        optimizer=optimizer,
        held_out=held_out.__getitem__,
    )


def _multi_label(data: datasets.MultiLabelData, config: dict) -> Problem:
    model = config["model"]
    batch, dense = model["batch_size"], model.get("dense", model["name"] == "linear")
    options = {"max_features": model.get("max_features") or None, "dense": dense}
    rows = config.get("methods", {}).values()
    several = any(row.get("kwargs", {}).get("multi_label") for row in rows)
    if data.stream is None:
        limit = MOST_LABELS if several else None
        train = datasets.BagBatches(
            data, "train", batch, seed=config["seed"], max_labels=limit, **options
        )
    else:
        train = _streamed_bags(data, config, several or dense)
        options["max_features"] = train.max_features
    encoder = build.custom_encoder(data, config)
    if encoder is None and dense:
        encoder = models.linear_encoder(data.num_features, model.get("dim"))
    elif encoder is None:
        row_optimizer = build.row_optimizer(model.get("row_optimizer"))
        shape = (batch, train.max_features) if row_optimizer else (None, None)
        encoder = models.sparse_bag_encoder(
            data.num_features, model["dim"], model.get("normalize", False), row_optimizer, shape
        )
    inverse_propensity = metrics.inverse_propensities(
        data.counts, train.num_rows, *PROPENSITY.get(data.name, ())
    )
    labels = [data.split(name).labels for name in datasets.SPLITS]
    single = max(np.diff(csr.indptr).max(initial=0) for csr in labels) == 1
    single &= data.stream is None or data.counts.sum() == train.num_rows
    return _independent_rows(
        data,
        config,
        encoder,
        train,
        lambda split: datasets.BagBatches(data, split, batch, **options),
        tree=side_inputs.bag_inputs(data, dense) if data.stream is None else None,
        inverse_propensity=inverse_propensity,
        single=single,
    )


def _streamed_bags(data: datasets.MultiLabelData, config: dict, other: bool) -> Any:
    """The training batches of streamed rows; `other`: the config needs what they do not support."""
    if other or side_inputs.is_numbered(config.get("methods", {})):
        raise ValueError(
            "Rows that are streamed have features in lists, one label at each visit, and no "
            "numbers: `multi_label`, `AugmentReduce` and a model of dense inputs need rows in "
            f"memory. Received: methods {', '.join(config.get('methods', {}))}, "
            f"model {config['model']['name']!r}"
        )
    limit = config["model"].get("max_features") or None
    options = {"seed": config["seed"]} | ({"max_features": limit} if limit else {})
    return data.stream(config["model"]["batch_size"], **options)


def _triples(data: datasets.TripleData, config: dict) -> Problem:
    model = config["model"]
    batch = model["batch_size"]
    limit = model.get("held_out_rows") or None
    data = data._replace(valid=_some(data.valid, limit), test=_some(data.test, limit))
    encoder = build.custom_encoder(data, config) or models.pair_encoder(
        data.num_classes,
        data.num_relations,
        row_optimizer=build.row_optimizer(model.get("row_optimizer")),
        **{key: model[key] for key in _PAIR if key in model},
    )

    return _independent_rows(
        data,
        config,
        encoder,
        datasets.TripleBatches(data, "train", batch, seed=config["seed"]),
        lambda split: datasets.TripleBatches(data, split, batch),
        tree=side_inputs.triple_inputs(data),
    )


def _some(rows: np.ndarray, limit: int | None) -> np.ndarray:
    """All rows, or `limit` of them that are the same in every run."""
    if limit is None or limit >= len(rows):
        return rows
    return rows[np.sort(np.random.default_rng(0).choice(len(rows), limit, replace=False))]


def _independent_rows(
    data: Any,
    config: dict,
    encoder: keras.Model,
    train: datasets.base.Batches,
    held_out: Callable[[str], datasets.base.Batches],
    *,
    tree: side_inputs.TreeInputs | None,
    inverse_propensity: np.ndarray | None = None,
    single: bool = True,
) -> Problem:
    """The problem of data without an order between its rows.

    Args:
        data: gives n and counts.
        config, encoder, tree (None without fixed features): see `Problem`.
        train: training batches; they reshuffle their rows themselves.
        held_out: "valid" or "test" -> evaluation batches.
        inverse_propensity: (n,), or None.
        single: whether every row has one label, so that precision@1 is the accuracy.
    """
    model, numbered = config["model"], side_inputs.is_numbered(config.get("methods", {}))

    def wrapped(batches: datasets.base.Batches) -> datasets.base.Batches:
        return datasets.Numbered(batches) if numbered else batches

    def score(trained: keras.Model | None, split: str) -> dict:
        batches = wrapped(held_out(split))
        scores = evaluate(trained, batches, TOP_K, data.counts, inverse_propensity)
        return scores | ({"accuracy": scores["precision_at_1"]} if single else {})

    def probe(other: keras.Model | None = None) -> tuple[Any, np.ndarray]:
        inputs, labels, mask = wrapped(held_out("valid"))[0]
        if sp.issparse(labels):
            labels = datasets.padded_labels(labels)[:, 0]
        return _outputs(other or encoder, inputs, mask > 0), labels[mask > 0]

    batches = wrapped(train)
    if model.get("prefetch", 0):
        batches = datasets.Prefetched(batches, model["prefetch"])
    return Problem(
        num_classes=data.num_classes,
        counts=data.counts,
        encoder=encoder,
        train=build.Batches(batches, config["steps_per_epoch"]),
        examples=model["batch_size"],
        evaluate=score,
        probe=probe,
        tree=tree,
        num_rows=getattr(train, "num_numbers", None),
        held_out=held_out,
    )


def _outputs(encoder: keras.Model, inputs: Any, rows: np.ndarray) -> Any:
    """The encoder's outputs, NumPy, of some of the rows; without numbers if it takes none."""
    tensors = [keras.ops.convert_to_tensor(x) for x in keras.tree.flatten(inputs)]
    tensors = tensors[: len(encoder.inputs)]
    outputs = encoder(tensors if len(tensors) > 1 else tensors[0], training=False)
    return keras.tree.map_structure(lambda x: keras.ops.convert_to_numpy(x)[rows], outputs)
