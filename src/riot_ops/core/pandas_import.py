"""Keeps PyArrow from importing pandas before the program does.

``pyarrow.array`` imports pandas, wherever it is installed, to see whether it was given an object of pandas: 0.2 s and
40 MB for a process that never uses pandas. Nothing can be such an object before pandas is imported.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["defer_pandas"]


class _PandasFinder(MetaPathFinder):
    """Refuses pandas to the thread that makes PyArrow look for it, and tells PyArrow when the program imports it."""

    def __init__(self, shim: Any) -> None:
        self.shim = shim
        self.refused: int | None = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if self.refused == threading.get_ident():
            raise ModuleNotFoundError("pandas is imported when the program imports it", name="pandas")
        self.remove()
        spec = importlib.util.find_spec("pandas")
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            _ = self.shim.compat  # PyArrow looks again

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader without attributes
            _ = self.shim.compat
        return spec

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def defer_pandas() -> bool:
    """Let PyArrow take pandas for missing until the program imports it; returns whether it does.

    Conversions to pandas import it, as before.

    >>> defer_pandas() in (True, False)
    True
    """
    import pyarrow as pa

    shim = getattr(pa.lib, "_pandas_api", None)  # private: without it, PyArrow imports pandas itself
    if shim is None or "pandas" in sys.modules or any(isinstance(one, _PandasFinder) for one in sys.meta_path):
        return False
    finder = _PandasFinder(shim)
    sys.meta_path.insert(0, finder)
    try:
        found = bool(shim.have_pandas)
    finally:
        finder.refused = None
    if found:  # PyArrow had imported it before
        finder.remove()
    return not found
