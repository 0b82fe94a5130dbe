"""From the flat records of a forward pass to a graph that a person understands."""
