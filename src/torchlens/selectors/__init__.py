"""One language for choosing operations: what to save, to draw, to look up, to edit.

A selector is

    "conv2d_3_7", "conv2d_3", "conv2d_3_7:2"    a label, short or with a pass
    "features.6", "fc:2", "attn[1]"             a module: what it returned; one call of it; one tensor of several
    "h.*.attn", re.compile("conv|relu")         a pattern of module addresses and labels
    nn.Conv2d                                   a class: what modules of this class returned
    7, -5                                       a number, counted over the whole graph
    "logits", "[0]['mask']"                     a path in what the model returned
    "conv"                                      part of a label: every layer that has it
    lambda op: op.tensor_shape[0] > 1           a predicate, asked for every operation
    tl.all_of(...), tl.any_of(...), ~tl.any_of(...)

or a list of selectors, which chooses what any of them does.

    Selection.checked(given)     what the user gave, of the right types        when the function is called
    compile(selection, modules)  a Matcher, which has a `Kind` for each        when the model's modules are known
    Matcher.answer(seen)         YES, NO, or ASK when the graph is known       while the model runs
    Matcher.places(graph)        the entries that are meant                    when the graph is known

A new kind of selector is a subclass of `Kind` (kinds.py, module_kinds.py, label_kinds.py) and a line in `kind_of`
(matcher.py); nothing outside this folder knows of it.
"""

from .kinds import AllOf, AnyOf, Asking, Kind, NoneOf, Number
from .label_kinds import Like, Word
from .matcher import Matcher, compile, kind_of, modules_chosen, qualified
from .module_kinds import Named, Returned
from .names import near_names, numbered, short_path, split_pass
from .seen import ASK, NO, YES, Answer, Asked, KnownGraph, Modules, ModuleTable, Result, Seen
from .selection import (
    NOTHING,
    Combination,
    Predicate,
    Selection,
    Selector,
    all_of,
    any_of,
    is_selector,
    is_several,
    selector_text,
)

__all__ = [
    "ASK",
    "NO",
    "NOTHING",
    "YES",
    "AllOf",
    "Answer",
    "AnyOf",
    "Asked",
    "Asking",
    "Combination",
    "Kind",
    "KnownGraph",
    "Like",
    "Matcher",
    "ModuleTable",
    "Modules",
    "Named",
    "NoneOf",
    "Number",
    "Predicate",
    "Result",
    "Returned",
    "Seen",
    "Selection",
    "Selector",
    "Word",
    "all_of",
    "any_of",
    "compile",
    "is_selector",
    "is_several",
    "kind_of",
    "modules_chosen",
    "near_names",
    "numbered",
    "qualified",
    "selector_text",
    "short_path",
    "split_pass",
]
