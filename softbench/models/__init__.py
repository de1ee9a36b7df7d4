"""Encoders: what comes before a head. LSTM language model, sparse bag of features, linear."""

from softbench.models.bag import WeightedBag, sparse_bag_encoder
from softbench.models.linear import linear_encoder
from softbench.models.lstm import CarriedLSTM, CarryState, lstm_language_model, reset_states
from softbench.models.presets import (
    PRESETS,
    LSTMPreset,
    get_preset,
    mean_loss_clip_norm,
    mean_loss_learning_rate,
    zaremba_learning_rate,
)

__all__ = [
    "PRESETS",
    "CarriedLSTM",
    "CarryState",
    "LSTMPreset",
    "WeightedBag",
    "get_preset",
    "linear_encoder",
    "lstm_language_model",
    "mean_loss_clip_norm",
    "mean_loss_learning_rate",
    "reset_states",
    "sparse_bag_encoder",
    "zaremba_learning_rate",
]
