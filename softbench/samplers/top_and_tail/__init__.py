"""Certain classes, chosen by a codebook, and a sample of all others."""
