"""Where everything of a view lies."""
