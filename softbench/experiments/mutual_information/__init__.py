"""Bounds on mutual information where it is exact (Stratos)."""
