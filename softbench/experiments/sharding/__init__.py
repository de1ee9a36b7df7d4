"""A training step against the number of devices that the class table is divided over."""
