"""Where do two runs begin to differ, and why?

    compare(a, b)      compare.py: the whole way, top to bottom
    Side               sides.py: one log; float64_values.py: its values computed again, few of them in memory
    run_checks         preconditions.py: what is looked at first: versions, inputs, weights, mode, types, seeds
    Matching           matching.py: which values of the two are equal, by fingerprints.py and layouts.py
    align              aligned.py: the same for two logs of one graph, operation by operation
    find_difference    search.py: the first operation whose inputs agree and whose result does not
    name_cause         causes.py: in words
    prove              proof.py: put the value of one run into the other, and see whether the outputs agree
    Comparison         comparison.py: what users hold; comparison_text.py prints it, side_by_side.py draws it
    save_reference     reference.py: a small file for test suites

Values travel one way, from the *donor* to the *recipient*. Which log is which depends on what is in them, not on the
order in which they were given: so `compare(a, b)` and `compare(b, a)` find the same.
"""
