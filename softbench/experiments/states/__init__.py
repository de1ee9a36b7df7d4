"""The hidden states of an encoder that is trained, then frozen, as a prepared data set."""
