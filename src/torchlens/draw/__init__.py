"""Pictures of a log: a view of it as plain data, and the printers of that view."""
