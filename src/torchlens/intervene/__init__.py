"""Change what happens inside a model.

edits.py        what to do: zero, add, patch ... values that print as they are written (edit_base.py, edit_arguments.py)
sites.py        where: selectors, edges, parameters, resolved while the model runs or in a base
apply.py        one edit of one tensor, with the checks that go with it
path.py         does the edited run follow its base up to the last site?
live.py         edits while the model runs: an observer of the capture
offline.py      edits of a finished log: what lies downstream is computed again
again.py        the edits of a log once more, for validation and replay
edit_data.py    edits as plain data, for files
sweep.py        many places, one edit at a time; heatmap.py draws what they did
"""
