"""The cost of a sampler's draw, loss and update against n."""
