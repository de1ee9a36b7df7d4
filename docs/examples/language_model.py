"""An LSTM language model over your own text, with a sampled softmax over its words.

    python docs/examples/language_model.py --text=book.txt

Any text file will do; words are what stands between spaces. The class counts go into the sampler
and, as log frequencies, into the biases; the table's touched rows alone are updated.
"""

import collections

import keras
import numpy as np
from absl import app, flags

import softbench

_TEXT = flags.DEFINE_string("text", None, "Text file, UTF-8.", required=True)
_STEPS = flags.DEFINE_integer("steps", 20, "Words that the LSTM sees at a time.")
_UNITS = flags.DEFINE_integer("units", 128, "Width of the LSTM.")
_DRAWS = flags.DEFINE_integer("draws", 1000, "Sampled classes, shared by a batch.")
_EPOCHS = flags.DEFINE_integer("epochs", 3, "Passes over the text.")


def read(path: str) -> tuple[np.ndarray, np.ndarray]:
    """The text as ids of its words, the most frequent ones first, and the words' counts."""
    with open(path, encoding="utf-8") as file:
        words = file.read().split()
    ranked = collections.Counter(words).most_common()
    number = {word: i for i, (word, _) in enumerate(ranked)}
    return np.array([number[word] for word in words], "int32"), np.array([c for _, c in ranked])


def windows(ids: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels (N, steps): each word's label is the next one."""
    rows = (len(ids) - 1) // steps
    if rows < 10:
        raise ValueError(f"`text` must have {10 * steps + 1} words or more. Received: {len(ids)}")
    kept = rows * steps
    return ids[:kept].reshape(rows, steps), ids[1 : kept + 1].reshape(rows, steps)


def main(_: list[str]) -> None:
    ids, counts = read(_TEXT.value)
    inputs, labels = windows(ids, _STEPS.value)
    train = 9 * len(inputs) // 10
    size = len(counts)

    encoder = keras.Sequential(
        [
            keras.layers.Embedding(size, _UNITS.value),
            keras.layers.LSTM(_UNITS.value, return_sequences=True),
        ]
    )
    unigram = {"counts": counts.tolist(), "power": 0.75, "share_draws": True, "unique": True}
    log_frequencies = np.log(counts / counts.sum())
    table = softbench.ClassTable(
        size,
        row_optimizer=softbench.RowAdagrad(0.1, initial_accumulator_value=1e-8),
        bias_initializer=lambda shape, dtype=None: keras.ops.cast(log_frequencies, dtype),
    )
    head = softbench.SampledSoftmax(
        table=table,
        sampler={"class_name": "unigram", "config": unigram},
        num_sampled=min(_DRAWS.value, size // 2),
    )
    model = softbench.Classifier(encoder, head)
    model.compile(keras.optimizers.Adam(2e-3, global_clipnorm=1.0))
    valid = inputs[train:], labels[train:]
    model.fit(
        inputs[:train], labels[:train], epochs=_EPOCHS.value, validation_data=valid, verbose=2
    )
    perplexity = model.evaluate(*valid, verbose=0, return_dict=True)["perplexity"]
    print(f"{size:,} words, validation perplexity {perplexity:,.1f}")


if __name__ == "__main__":
    app.run(main)
