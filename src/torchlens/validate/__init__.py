"""Checks that a log is right."""
