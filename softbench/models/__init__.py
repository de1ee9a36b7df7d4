"""Encoders: what comes before a head.

LSTM language model, sparse bag of features, linear, pairs of a knowledge graph,
self-attention over histories, users' vectors.
"""

from softbench.models.bag import WeightedBag, linear_encoder, sparse_bag_encoder
from softbench.models.embedding import RowEmbedding
from softbench.models.lstm import (
    PRESETS,
    CarriedLSTM,
    CarryState,
    LSTMPreset,
    get_preset,
    lstm_language_model,
    reset_states,
    zaremba_learning_rate,
)
from softbench.models.matrix_factorisation import matrix_factorisation, spectral_rows
from softbench.models.pair import pair_encoder
from softbench.models.sasrec import HistoryMask, sasrec

__all__ = [
    "PRESETS",
    "CarriedLSTM",
    "CarryState",
    "HistoryMask",
    "LSTMPreset",
    "RowEmbedding",
    "WeightedBag",
    "get_preset",
    "linear_encoder",
    "lstm_language_model",
    "matrix_factorisation",
    "pair_encoder",
    "reset_states",
    "sasrec",
    "sparse_bag_encoder",
    "spectral_rows",
    "zaremba_learning_rate",
]
