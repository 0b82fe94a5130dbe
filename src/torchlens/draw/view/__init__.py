"""A log as a picture to be: what is drawn as what, as plain data."""
