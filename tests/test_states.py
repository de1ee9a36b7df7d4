"""The states of a frozen encoder as a data set: written, read back, and trained on."""

import numpy as np
import pytest
import reference
from conftest import to_numpy
from small_runs import job

from softbench import datasets
from softbench.bench import provenance
from softbench.bench.training import run as train
from softbench.experiments.states import run as states

SIZES = {"num_classes": 40, "num_train": 500, "num_valid": 90, "num_test": 80}
UNIGRAM = {"class_name": "unigram", "config": {"counts": "train + 1"}}
TREE = {"class_name": "adversarial", "config": {"num_components": 3}}
NAME = "states/synthetic_language"


def encoder_job(folder, **rows):
    lstm = {"name": "lstm", "units": 6, "num_layers": 1, "batch_size": 4, "num_steps": 5}
    method = {"head": "SampledSoftmax", "kwargs": {"sampler": UNIGRAM, "num_sampled": 8}}
    rows = {"train": 300, "valid": 1_000, "test": 50, **rows}
    language = {"name": "synthetic_language", **SIZES}
    fields = {"dataset": language, "model": lstm, "methods": {"": method}, "options": rows}
    return job(cache=folder, task="states", **fields)


def lstm_states(encoder, tokens):
    """Hidden states (B, T, d) of rows of tokens (B, T), float64."""
    words, *weights = (to_numpy(w).astype(np.float64) for w in encoder.trainable_weights)
    return reference.lstm(words[tokens], *weights)


def test_states_are_written_read_and_trained_on(tmp_path, monkeypatch):
    kept = []
    whole = train.trained
    monkeypatch.setattr(train, "trained", lambda job: kept.append(whole(job)) or kept[-1])
    written = encoder_job(tmp_path)
    states.run(written)
    model, problem = kept[0]
    encoder = model.encoder
    data = datasets.load(NAME, data_dir=tmp_path)
    text = datasets.load("synthetic_language", **SIZES)
    # All of the validation text: a row of the batches goes on where it stopped.
    batches = datasets.EvaluationBatches(text.valid, 4, 5)
    rows = np.concatenate([x for x, _, _ in batches], axis=1)
    hidden = lstm_states(encoder, rows)
    pieces = np.split(hidden, len(batches), axis=1)
    expected = [own[w > 0] for own, (_, _, w) in zip(pieces, batches, strict=True)]
    np.testing.assert_allclose(data.valid_features, np.concatenate(expected), atol=1e-5)
    expected = np.concatenate([y[w > 0] for _, y, w in batches])
    np.testing.assert_array_equal(data.valid_labels.indices, expected)
    # A part of the training text, the same at every writing.
    again = [h for h, _ in states.frozen(encoder, problem, problem.train, 300)]
    np.testing.assert_array_equal(data.train_features, np.concatenate(again))
    assert data.train_features.shape == (300, 6) and data.test_features.shape == (50, 6)
    np.testing.assert_array_equal(data.counts, np.bincount(data.train_labels.indices, minlength=40))

    method = {"head": "SampledSoftmax", "kwargs": {"sampler": TREE, "num_sampled": 8}}
    linear = {"name": "linear", "batch_size": 32}
    fields = {"dataset": {"name": NAME}, "model": linear, "methods": {"": method}}
    found = job(str(tmp_path), epochs=2, **fields)
    train.run(found)
    first, last = found.result["curve"]
    assert last["train_loss"] < first["train_loss"] and np.isfinite(last["valid_nll"])
    smoothed = (data.counts + 1) / (data.counts + 1).sum()
    expected = np.log(smoothed[data.valid_labels.indices]).mean()
    scores = found.result["tree"]
    np.testing.assert_allclose(scores["valid_frequency_log_likelihood"], expected, rtol=1e-6)
    own = provenance.encoder(found.config, str(tmp_path))
    assert own["test_perplexity"] == written.result["final"]["test_perplexity"]
    assert provenance.data(found.config, str(tmp_path)) == written.result["states"]["data"]


def test_a_mistake_is_told_before_training(tmp_path):
    with pytest.raises(ValueError, match="`options` must be rows of train, valid, test"):
        states.run(encoder_job(tmp_path)._replace(config={"options": {"train": 3}}))
    (tmp_path / NAME).mkdir(parents=True)
    with pytest.raises(FileExistsError, match="must not hold states/synthetic_language yet"):
        states.run(encoder_job(tmp_path))
    with pytest.raises(FileNotFoundError, match="softbench --config=states"):
        datasets.load("states/other", data_dir=tmp_path)
    dense = np.ones((3, 2), "float32")
    data = datasets.load("synthetic_xmc", num_classes=5, num_features=4, num_train=9)
    with pytest.raises(ValueError, match="`dense` must be True"):
        datasets.BagBatches(data._replace(train_features=dense), batch_size=2)
