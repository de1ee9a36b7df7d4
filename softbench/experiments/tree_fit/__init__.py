"""What fitting an adversarial tree costs, and how good it is."""
