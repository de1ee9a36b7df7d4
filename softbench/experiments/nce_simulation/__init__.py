"""The error of exact NCE estimates against data points and negatives (Ma & Collins, 5.1)."""
