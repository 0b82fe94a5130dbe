"""Compute recorded calls again, on other values if wanted, without the model's own code.

    recompute(call)                 call.py: one call, on saved or given tensors, under the grad mode, inference mode,
                                    autocast and random state in which it ran
    Downstream(graph, given, ...)   downstream.py: everything that depends on changed values;
                                    an `Edits` may replace what is computed, or what one call takes from one parent
    Stacked(graph, wanted)          stacked.py: many forward passes at once, each with a change of its own;
                                    stacked_functions.py: what is computed for all of them without torch.vmap
    Guard                           guard.py: would the model have read the same from the new values?
    same(one, other)                same.py: are two tensors the same, bit for bit?

Nothing that was saved is changed. `recompute` raises `NotReplayable` where a call depends on more than was saved.
Validation compares what `recompute` gives with what was logged; `log.replay` returns what `Downstream` ends with.
"""
