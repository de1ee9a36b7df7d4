"""Pages, plots and tables from records: imports neither Keras nor a backend."""
