"""Encoders: what comes before a head.

LSTM language model, sparse bag of features, linear, pairs of a knowledge graph, sessions.
"""

from softbench.models.bag import WeightedBag, sparse_bag_encoder
from softbench.models.embedding import RowEmbedding
from softbench.models.linear import linear_encoder
from softbench.models.lstm import CarriedLSTM, CarryState, lstm_language_model, reset_states
from softbench.models.pair import pair_encoder
from softbench.models.presets import (
    PRESETS,
    LSTMPreset,
    get_preset,
    mean_loss_clip_norm,
    mean_loss_learning_rate,
    zaremba_learning_rate,
)
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
