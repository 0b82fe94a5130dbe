"""The layout of a view: a position for everything in it."""
