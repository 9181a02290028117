"""Puts the code of a mutant into the functions of a process that has imported the file without the fault."""

from __future__ import annotations

import functools
import gc
import os
import types
from typing import Any

from mutations import Mutant


def forget() -> None:
    """Empty caches that hold results of the code without a fault."""
    cached = type(functools.cache(len))
    for one in gc.get_objects():
        if isinstance(one, cached) and str(one.__module__).startswith("riot_ops"):
            one.cache_clear()


def functions(path: str) -> dict[types.CodeType, list[Any]]:
    """Return the functions of a file by code; nested functions are created at each call."""
    found: dict[types.CodeType, list[Any]] = {}
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType) and os.path.realpath(one.__code__.co_filename) == path:
            found.setdefault(one.__code__, []).append(one)
    return found


def _codes(code: types.CodeType) -> list[types.CodeType]:
    return [c for c in code.co_consts if isinstance(c, types.CodeType)]


def patches(
    source: bytes, mutant: Mutant, path: str, functions: dict[types.CodeType, list[Any]]
) -> list[tuple[Any, types.CodeType]] | None:
    """Return the new code of each function; None if the fault lies elsewhere, such as in a default."""
    old = compile(source, path, "exec", dont_inherit=True)
    new = compile(mutant.apply(source), path, "exec", dont_inherit=True)
    live: dict[tuple[str, int], list[Any]] = {}
    for code, found in functions.items():
        live.setdefault((code.co_qualname, code.co_firstlineno), []).extend(found)
    patches: list[tuple[Any, types.CodeType]] = []

    def walk(a: types.CodeType, b: types.CodeType) -> bool:
        """Whether all differences could be patched; bodies of modules and classes have run already."""
        if _same(a, b):
            return True
        targets = live.get((a.co_qualname, a.co_firstlineno), [])
        if targets and a.co_flags & 2 and a.co_freevars == b.co_freevars:
            patches.extend((target, b) for target in targets)
            return True
        inner_a, inner_b = _codes(a), _codes(b)
        if len(inner_a) != len(inner_b) or not _same(a, b, inside=False):
            return False
        return all(walk(x, y) for x, y in zip(inner_a, inner_b, strict=True))

    return patches if walk(old, new) and patches else None


def _same(a: types.CodeType, b: types.CodeType, *, inside: bool = True) -> bool:
    """Whether two codes are equal except for line numbers."""
    if (a.co_code, a.co_names, a.co_varnames) != (b.co_code, b.co_names, b.co_varnames):
        return False
    if len(a.co_consts) != len(b.co_consts):
        return False
    for x, y in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(x, types.CodeType) != isinstance(y, types.CodeType):
            return False
        if isinstance(x, types.CodeType):
            if inside and not _same(x, y):
                return False
        elif (type(x), repr(x)) != (type(y), repr(y)):
            return False
    return True
