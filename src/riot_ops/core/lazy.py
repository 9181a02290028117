"""Lazy imports: a package offers names whose modules it imports at first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from riot_ops.core.errors import did_you_mean

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a package that imports its names at first use.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    modules : mapping of str to str
        By name, the module that defines it, or ``module:attribute`` if it has another name there; for a name that is
        itself a module, that module.

    Examples
    --------
    >>> getattr_, dir_ = lazy_names("riot_ops.sketches", {"BloomFilter": "riot_ops.sketches.bloom"})
    >>> getattr_("BloomFilter").__name__
    'BloomFilter'
    """

    def load(name: str) -> Any:
        if name not in modules:
            hint = "" if name.startswith("_") else did_you_mean(name, names())
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        path, _, attribute = modules[name].partition(":")
        module = import_module(path)
        if path.endswith(f".{name}") and not hasattr(module, name):
            found = module
        else:
            found = getattr(module, attribute or name)
        setattr(sys.modules[package], name, found)  # Python does not call __getattr__ for it again
        return found

    def names() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*own.get("__all__", own), *modules, *(name for name in own if name.startswith("__"))})

    return load, names
