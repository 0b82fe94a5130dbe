"""The view of a log: everything that a picture will show, as plain data."""
