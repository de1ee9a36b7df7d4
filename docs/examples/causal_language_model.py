"""Fine-tunes a causal language model of KerasHub without the scores of all tokens.

    python docs/examples/causal_language_model.py --model=gpt2 --vocabulary=50257
    python docs/examples/causal_language_model.py --model=gemma --vocabulary=128000 --whole

The model has random weights and few layers, the tokens are random: what it shows is the loss, the
time and the memory. `--whole` trains KerasHub's own `CausalLM` with Keras' cross-entropy instead,
which gives the same losses.
"""

import os
import resource
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import keras_hub
import numpy as np
from absl import app, flags

import softbench

_MODEL = flags.DEFINE_enum("model", "gpt2", ["gpt2", "gemma"], "Shape of the backbone.")
_VOCABULARY = flags.DEFINE_integer("vocabulary", 50_257, "Tokens, n.")
_WIDTH = flags.DEFINE_integer("width", 128, "Width of the hidden vectors, d.")
_BATCH = flags.DEFINE_integer("batch", 8, "Texts of a step.")
_LENGTH = flags.DEFINE_integer("length", 128, "Tokens of a text.")
_STEPS = flags.DEFINE_integer("steps", 10, "Training steps.")
_WHOLE = flags.DEFINE_bool("whole", False, "All scores, as KerasHub trains by itself.")


def backbone() -> keras.Model:
    """Two layers with random weights."""
    keras.utils.set_random_seed(0)
    width = _WIDTH.value
    sizes = {
        "vocabulary_size": _VOCABULARY.value,
        "num_layers": 2,
        "hidden_dim": width,
        "intermediate_dim": 4 * width,
    }
    if _MODEL.value == "gpt2":
        options = {"num_heads": 4, "max_sequence_length": _LENGTH.value, "dropout": 0.0}
        return keras_hub.models.GPT2Backbone(**sizes, **options)
    options = {"num_query_heads": 4, "num_key_value_heads": 1, "head_dim": width // 4}
    return keras_hub.models.GemmaBackbone(**sizes, **options, final_logit_soft_cap=30.0)


def whole(encoder: keras.Model) -> keras.Model:
    """KerasHub's own model: scores of all tokens at every position."""
    names = {"gpt2": "GPT2CausalLM", "gemma": "GemmaCausalLM"}
    model = getattr(keras_hub.models, names[_MODEL.value])(backbone=encoder, preprocessor=None)
    options = {"from_logits": True, "reduction": "mean_with_sample_weight"}
    loss = keras.losses.SparseCategoricalCrossentropy(**options)
    model.compile(keras.optimizers.SGD(0.1), loss=loss, weighted_metrics=[])
    return model


def without_scores(encoder: keras.Model) -> keras.Model:
    """The same loss, of the encoder's own embedding."""
    head = softbench.FullSoftmax(table=encoder.token_embedding)
    model = softbench.Classifier(encoder, head)
    model.compile(keras.optimizers.SGD(0.1))
    return model


def main(_: list[str]) -> None:
    """Prints losses, milliseconds of a step and the peak of resident memory."""
    generator = np.random.default_rng(0)
    shape = _BATCH.value, _LENGTH.value + 1
    tokens = generator.integers(0, _VOCABULARY.value, shape)
    lengths = generator.integers(_LENGTH.value // 2, _LENGTH.value + 1, (_BATCH.value, 1))
    mask = np.arange(_LENGTH.value) < lengths
    inputs = {"token_ids": tokens[:, :-1], "padding_mask": mask.astype("int32")}
    encoder = backbone()
    model = whole(encoder) if _WHOLE.value else without_scores(encoder)
    seconds = []
    for step in range(_STEPS.value):
        start = time.perf_counter()
        loss = model.train_on_batch(inputs, tokens[:, 1:], sample_weight=mask.astype("float32"))
        seconds.append(time.perf_counter() - start)
        print(f"step {step}: loss {float(loss):.6f}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{1000 * np.median(seconds[1:]):.0f} ms a step, {peak:,.0f} MB at most")


if __name__ == "__main__":
    app.run(main)
