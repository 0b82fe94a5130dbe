"""Run a logged forward pass again: from its records, or from the model on another input."""
