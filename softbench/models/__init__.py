"""Encoders: what comes before a head.

LSTM language model, sparse bag of features, linear, pairs of a knowledge graph, sessions,
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
    mean_loss_clip_norm,
    mean_loss_learning_rate,
    reset_states,
    zaremba_learning_rate,
)
from softbench.models.matrix_factorisation import matrix_factorisation
from softbench.models.pair import pair_encoder
from softbench.models.sasrec import HistoryMask, sasrec
from softbench.models.session import MaskedMean, session_encoder

__all__ = [
    "PRESETS",
    "CarriedLSTM",
    "CarryState",
    "HistoryMask",
    "LSTMPreset",
    "MaskedMean",
    "RowEmbedding",
    "WeightedBag",
    "get_preset",
    "linear_encoder",
    "lstm_language_model",
    "matrix_factorisation",
    "mean_loss_clip_norm",
    "mean_loss_learning_rate",
    "pair_encoder",
    "reset_states",
    "sasrec",
    "session_encoder",
    "sparse_bag_encoder",
    "zaremba_learning_rate",
]
