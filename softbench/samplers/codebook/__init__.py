"""Draws from a codebook of the class vectors, at a cost that does not depend on n."""
