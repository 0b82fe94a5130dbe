"""What the search finds: one place where the two runs part, between values of the donor and the recipient."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Finding:
    """The donor's value and the recipient's that ought to be equal, and are not, though what they are made of is.

    `kind`:

        operation   the same operation of equal inputs, with another result
        source      an input, buffer or constant that differs
        order       the same numbers in another order
        region      a few operations here, other operations there, between values that are equal
        missing     the recipient lacks what the donor does here
        extra       the recipient does something here that the donor does not
        unproven    the first pair of one function in what differs; nothing better was found
    """

    donor: int
    recipient: int
    kind: str
    error: float
    donor_region: list[int] = field(default_factory=list)
    recipient_region: list[int] = field(default_factory=list)
    cause: str = ""
    family: tuple[Any, ...] = ()  # findings of one family have one cause
    along_the_way: bool = False  # found while another of its family was healed
