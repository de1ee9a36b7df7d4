"""Bounds on mutual information where it is known (Stratos)."""
