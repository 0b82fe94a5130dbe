"""Sees every torch call of a forward pass and records it."""
