"""Many inputs: run a model over a data set and write chosen layers to disk."""
