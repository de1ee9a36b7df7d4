"""Samplers that draw in proportion to a kernel, from sums over blocks of classes."""
