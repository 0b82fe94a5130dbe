"""Who descends from whom, and how far apart: over lists of neighbours, or arrays of edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .program import Edges, where

Neighbours = Sequence[Sequence[int]]


def reached(starts: Iterable[int], neighbours: Neighbours) -> list[bool]:
    """Which nodes can be reached from `starts` by going from node to neighbour."""
    seen = [False] * len(neighbours)
    stack = list(starts)
    for node in stack:
        seen[node] = True
    while stack:
        for neighbour in neighbours[stack.pop()]:
            if not seen[neighbour]:
                seen[neighbour] = True
                stack.append(neighbour)
    return seen


def unreached(starts: Iterable[int], back: Edges, forth: Edges) -> set[int]:
    """Which nodes can't be reached from `starts` by going `forth`: usually few, and found without visiting the others.

    They are those that nothing leads to, and those that only such nodes lead to, but for the starts themselves.
    """
    waiting = back.counts  # for so many nodes to turn out to be unreached
    begun = set(starts)
    found = set(where(waiting == 0).tolist()) - begun
    stack = list(found)
    while stack:
        node = stack.pop()
        for neighbour in forth.sources[forth.heads[node] : forth.heads[node + 1]].tolist():
            waiting[neighbour] -= 1
            if not waiting[neighbour] and neighbour not in begun:
                found.add(neighbour)
                stack.append(neighbour)
    return found


def distances(origins: Iterable[int], sources: Neighbours, order: Iterable[int]) -> list[tuple[int, int] | None]:
    """The shortest and longest way from any origin to each node, in edges; None where there is no way.

    `sources[node]` are the nodes one step closer to the origins; `order` lists them before the node.
    """
    found: list[tuple[int, int] | None] = [None] * len(sources)
    zero = set(origins)
    for node in order:
        steps = [found[source] for source in sources[node]]
        ways = [step for step in steps if step is not None]
        shortest = 0 if node in zero else min((way[0] for way in ways), default=-1) + 1
        longest = max((way[1] for way in ways), default=-1) + 1
        if node in zero or ways:
            found[node] = (shortest, longest)
    return found


def roots(node: int, parents: Neighbours) -> list[int]:
    """The ancestors of `node` that have no parents themselves; `node` itself if it has none."""
    return [ancestor for ancestor in ancestors(node, parents) if not parents[ancestor]]


def ancestors(node: int, parents: Neighbours) -> list[int]:
    """`node` and all its ancestors, in execution order."""
    seen = {node}
    stack = [node]
    while stack:
        for parent in parents[stack.pop()]:
            if parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return sorted(seen)
