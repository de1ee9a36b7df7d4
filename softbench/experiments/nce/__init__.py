"""What the experiments with exact noise-contrastive estimation share."""
