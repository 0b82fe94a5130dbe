"""Change what happens inside a model.

edits.py        what to do: zero, add, patch ... values that print as they are written
sites.py        where: selectors, edges, parameters, resolved while the model runs or in a base
path.py         does the edited run follow its base up to the last site?
live.py         edits while the model runs: an observer of the capture
"""
