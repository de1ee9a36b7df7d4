"""The cost of a whole training step against n."""
