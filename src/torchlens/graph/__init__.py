"""From the flat records of a forward pass to a graph that a person understands."""

from . import formulas as formulas  # what torch's functions cost is registered when it is imported
