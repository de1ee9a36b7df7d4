"""Proposals of a trained head: their distance from its softmax, and Theorem 1."""
