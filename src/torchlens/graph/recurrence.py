"""Decide which operations are passes of the same layer.

    layers = find_layers(keys=[-1, 0, 1, 0, 1], param_keys=[-1, 7, -1, 7, -1], parents=[[], [0], [1], [2], [3]])
    # input, fc, relu, fc, relu  ->  [0, 1, 2, 1, 2]

Three rules:

1. Operations that apply the same function to the same parameters are passes of one layer, always.
2. Equal parameter-free operations at the same place next to two passes of a layer are passes of one layer too.
   This spreads outward from the layers of rule 1, whether or not the passes follow each other in time.
3. A parameter-free sequence that repeats back to back, each pass working on what the pass before it made, is a
   loop: corresponding operations are passes of one layer.

Sometimes the rules contradict each other. Four conventions decide:

* *Loops fold before layers grow.* A loop inside the body of a recurrent layer counts as a single place of that
  body, so `fc, (sin, cos) x 4` executed 3 times is one `sin` layer of 12 passes, even if the 4 varies.
* *One pass, one use.* Two places of one body are never one layer. Every layer keeps a clock, the pass in which
  each of its operations ran, and a join that would put two operations at the same tick is refused. Whoever joins
  first stays: places after a pass are looked at before places ahead of it, nearer ones before farther ones.
* *The longest loop wins.* A shorter one may lie inside one pass of it or outside, and is cut where it straddles.
* *A sum of many tensors is no loop.* A loop of a single operation must read the same other operands every time.

Known limits: a parameter-free loop around an inner loop of varying length is no exact repetition, so only parts of
it are found; bodies longer than `loops.EXHAUSTIVE_PERIOD` operations are found by a guess that rarely misses one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .growth import grow_layers
from .loops import fold_loops
from .program import Edges, Ints, Program, number_by_first_use


def find_layers(keys: Sequence[int], param_keys: Sequence[int], parents: Sequence[Sequence[int]]) -> list[int]:
    """Return the layer number of each operation, numbered by first appearance.

        find_layers(keys, param_keys, parents)  # [0, 1, 2, 1, 2, 3]: operations 1 and 3 are passes of layer 1

    Operations are numbered in execution order and `parents[i]` lists the operations whose outputs `i` reads, in
    argument order. Equal `keys` mean the same function with the same other arguments; -1 is equal to nothing.
    Equal `param_keys` mean the same function with the same parameters; -1 is an operation without parameters.
    """
    array = np.array(keys, np.int64)
    small = np.where(array >= 0, number_by_first_use(array), -1)
    found = layers_of(small, np.array(param_keys, np.int64), Edges.read(parents))
    layers: list[int] = found.tolist()
    return layers


def layers_of(keys: Ints, param_keys: Ints, edges: Edges) -> Ints:
    """The same over arrays; the keys are small numbers."""
    if not len(keys):
        return keys
    program = Program(keys, param_keys, *edges)
    places = fold_loops(program)
    layers = grow_layers(program, places)
    return number_by_first_use(layers)
