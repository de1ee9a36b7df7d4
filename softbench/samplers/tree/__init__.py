"""The adversarial tree: a decision tree over the classes, fitted to data."""
