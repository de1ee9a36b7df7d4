"""Encoders: what comes before a head.

LSTM language model, sparse bag of features, linear, pairs of a knowledge graph, sessions.
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
from softbench.models.pair import pair_encoder
from softbench.models.session import MaskedMean, session_encoder

__all__ = [
    "PRESETS",
    "CarriedLSTM",
    "CarryState",
    "LSTMPreset",
    "MaskedMean",
    "RowEmbedding",
    "WeightedBag",
    "get_preset",
    "linear_encoder",
    "lstm_language_model",
    "mean_loss_clip_norm",
    "mean_loss_learning_rate",
    "pair_encoder",
    "reset_states",
    "session_encoder",
    "sparse_bag_encoder",
    "zaremba_learning_rate",
]
