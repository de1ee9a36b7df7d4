"""The benchmark: configs in, one JSON record per cell out, tables and plots from the records."""
