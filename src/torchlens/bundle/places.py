"""Call sites to and from rows.

A site is a chain of code objects and instructions in them. The line numbers, the source lines around them and the
statements that read a value are saved too: whoever loads the log may have other source files, or none.
"""

from __future__ import annotations

import linecache
from collections.abc import Hashable
from typing import Any

from ..capture.naming import frames, is_library_code
from ..capture.records import Site
from ..source import LINES_AFTER, LINES_BEFORE, SavedCode, line_at, operator_name
from ..statements import Statement, find_statement
from .checks import at, each, flag, integer, listed, one_of, optional, text
from .rows import Table, Tables, clean

_KINDS = ("if", "elif", "while", "assert", "ternary", "comprehension", "guard", "boolop", "call", "unknown")


# ---- writing --------------------------------------------------------------------------------------------------


class PlaceEncoder:
    """Numbers sites, and collects the source lines and statements that belong to them."""

    def __init__(self) -> None:
        self._sites = Table(self._site_row)
        self._codes: list[list[Any]] = []
        self._places: list[list[Any]] = []  # of instructions in codes
        self._statements: list[list[Any]] = []  # at places
        self._sources: list[list[Any]] = []  # lines of files
        self._code_numbers: dict[int, tuple[Any, int]] = {}
        self._noted: set[tuple[Any, ...]] = set()

    def number(self, site: Site) -> int:
        """The number of a site's row."""
        return self._sites.number(site, _key(site))

    def tables(self) -> Tables:
        return {
            "codes": self._codes,
            "places": self._places,
            "statements": self._statements,
            "sources": self._sources,
            "sites": self._sites.rows,
        }

    def _site_row(self, site: Site) -> list[int]:
        return [part for code, instruction in frames(site) for part in (self._code(code, instruction), instruction)]

    def _code(self, code: Any, instruction: int) -> int:
        known = self._code_numbers.get(id(code))
        if known is None:
            known = self._code_numbers[id(code)] = (code, len(self._codes))
            qualname = getattr(code, "co_qualname", None)
            self._codes.append([clean(code.co_filename), code.co_name, qualname, is_library_code(code)])
        where = known[1]
        if self._is_new("place", where, instruction):
            line = line_at(code, instruction)
            self._places.append([where, instruction, line, operator_name(code, instruction)])
            if not is_library_code(code):
                self._note_source(code, line)
        return where

    def _is_new(self, *fact: Any) -> bool:
        before = len(self._noted)
        self._noted.add(fact)
        return len(self._noted) > before

    def _note_source(self, code: Any, line: int) -> None:
        """Save the source lines around a call: whoever loads the log may not have the file."""
        around = range(max(1, line - LINES_BEFORE), line + LINES_AFTER + 1)
        if isinstance(code, SavedCode):
            lines = {number: code.source[number] for number in around if number in code.source}
        else:
            known = linecache.getlines(code.co_filename)
            lines = {number: known[number - 1] for number in around if number <= len(known)}
        file = clean(code.co_filename)
        self._sources += [[file, n, clean(line)] for n, line in lines.items() if self._is_new("source", file, n)]

    def note_statement(self, site: Site) -> None:
        innermost = next(frames(site), None)
        if innermost is None or is_library_code(innermost[0]):
            return
        code, instruction = innermost
        found = find_statement(code, instruction)
        where = self._code_numbers[id(code)][1]
        if self._is_new("statement", where, instruction):
            row = [found.kind, clean(found.file), found.line, clean(found.source), found.span, found.truth]
            self._statements.append([where, instruction, *row])


def _key(site: Site) -> Hashable:
    """A key by identity: code objects compare by content, which is slow."""
    return tuple([part if type(part) is int else id(part) for part in site])


# ---- reading --------------------------------------------------------------------------------------------------


def read_sites(tables: Tables) -> list[Site]:
    """The sites, with their lines, source and statements."""
    return _Decoder(tables).sites


class _Decoder:
    def __init__(self, tables: Tables) -> None:
        sources: dict[str, dict[int, str]] = {}
        self.codes = each("codes", tables["codes"], lambda row: _read_code(row, sources))
        each("sources", tables["sources"], lambda row: _read_source(row, sources))
        each("places", tables["places"], self._place)
        each("statements", tables["statements"], self._statement)
        self.sites = each("sites", tables["sites"], self._site)

    def _place(self, row: Any) -> None:
        where, instruction, line, operator = row
        code = at(self.codes, where)
        code.lines[integer(instruction, -1)] = integer(line)
        if operator is not None:
            code.operators[instruction] = text(operator)

    def _statement(self, row: Any) -> None:
        where, instruction, *statement = row
        code = at(self.codes, where)
        code.lines[integer(instruction, -1)]  # raises unless it is one of the places
        code.statements[instruction] = _read_statement(*statement)

    def _site(self, row: Any) -> Site:
        site: list[Any] = []
        for code_number, instruction in zip(row[::2], row[1::2], strict=True):
            code = at(self.codes, code_number)
            code.lines[integer(instruction, -1)]  # raises unless the instruction is described
            site += (code, instruction)
        return tuple(site)


def _read_code(row: Any, sources: dict[str, dict[int, str]]) -> SavedCode:
    file, name, qualname, library = row
    known = sources.setdefault(text(file), {})
    return SavedCode(file, text(name), optional(text, qualname), flag(library), source=known)


def _read_source(row: Any, sources: dict[str, dict[int, str]]) -> None:
    file, line, content = row
    sources[text(file)][integer(line, 1)] = text(content)


def _read_statement(kind: Any, file: Any, line: Any, source: Any, span: Any, truth: Any) -> Statement:
    where: Any = None if span is None else tuple(listed(integer, span))
    if_true, if_false = (optional(flag, each) for each in truth)
    return Statement(one_of(_KINDS, kind), text(file), integer(line), text(source), where, (if_true, if_false))  # type: ignore[arg-type]
