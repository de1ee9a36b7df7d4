"""Time and memory of the exact softmax, of plain Keras and of softbench."""
