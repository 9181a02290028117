"""Paths of values in JSON documents: names, indexes of lists, and names in quotes."""

from __future__ import annotations

import re

__all__ = ["Steps", "is_plain", "joined", "parse_path"]

#: The names of objects and the indexes of lists from the root to a value.
Steps = tuple[str | int, ...]

_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"|([^."\[\]]+)')
_INDEX = re.compile(r"\[(0|[1-9]\d{0,8})\]")


def parse_path(path: str) -> Steps:
    r"""Parse a path; :class:`ValueError` if it is none.

    >>> parse_path('readings[0].value'), parse_path('"room.temp"[2][0]')
    (('readings', 0, 'value'), ('room.temp', 2, 0))
    """
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        if index := _INDEX.match(path, at):
            steps.append(int(index[1]))
            at = index.end()
            continue
        if steps:
            if path[at] != ".":
                raise ValueError(path)
            at += 1
        name = _NAME.match(path, at)
        if name is None:
            raise ValueError(path)
        steps.append(name[2] if name[1] is None else re.sub(r"\\(.)", r"\1", name[1]))
        at = name.end()
    if not steps:
        raise ValueError(path)
    return tuple(steps)


def is_plain(path: str) -> bool:
    """Whether a path consists of names joined by dots, which compiled loops find.

    >>> is_plain("data.id"), is_plain("data[0].id")
    (True, False)
    """
    return not any(sign in path for sign in '"[]')


def joined(above: str, path: str) -> str:
    """Return the path of a value within another one.

    >>> joined("data", "id"), joined("data", "[0].id")
    ('data.id', 'data[0].id')
    """
    return f"{above}{path}" if path.startswith("[") else f"{above}.{path}"
