"""Training a method on a problem: the task `train`."""
