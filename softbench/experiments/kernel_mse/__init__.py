"""The error of feature maps as estimates of an exponential kernel."""
