"""What configs have in common: rows of a method table, and sizes of smoke runs. Needs no Keras."""

SMALL_TIMING = {"warmup_steps": 1, "head_repetitions": 2}
_SIZES = {"num_classes": 300, "num_train": 2_000, "num_valid": 500, "num_test": 500}
SMALL_LANGUAGE = {"name": "synthetic_language", **_SIZES}
SMALL_LABELS = {"name": "synthetic_xmc", "num_features": 64, **_SIZES}
SMALL_TRIPLES = {"name": "synthetic_triples", **_SIZES}
