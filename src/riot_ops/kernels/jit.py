"""Lazy compilation: kernels are plain Python until first called, then compiled by numba.

Importing numba takes longer than importing all the rest of riot_ops, so it happens at the first
call of a kernel. With ``NUMBA_DISABLE_JIT=1``, or where numba cannot be imported, the same
functions run as ordinary Python.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

__all__ = ["Kernel", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")


class Kernel(Generic[P, R]):
    """A loop over arrays; calling it compiles it once per argument types."""

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.python: Callable[P, R] = function
        self._compiled: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._compiled is None:
            self._compiled = self.compile()
        return self._compiled(*args, **kwargs)  # type: ignore[no-any-return]

    def compile(self) -> Any:
        """The numba dispatcher (or the plain function where compiling is off)."""
        if self._compiled is None:
            njit = _njit()
            # hashes wrap around on purpose, of which NumPy's scalars would warn
            self._compiled = (
                np.errstate(over="ignore")(self.python) if njit is None else njit(_resolve_calls(self.python))
            )
        return self._compiled

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _import_kernel, (self.python.__module__, self.python.__qualname__)


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Mark a function over arrays and scalars as a kernel.

    Kernels may call other kernels. They know nothing of Arrow, Spark or dictionaries.
    """
    return Kernel(function)


def _import_kernel(module: str, name: str) -> Any:
    found: Any = __import__(module, fromlist=["_"])
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _resolve_calls(function: types.FunctionType | Callable[..., Any]) -> types.FunctionType:
    """The function with the kernels that it calls replaced by compiled ones.

    numba types a global at compile time and does not know our wrapper.
    """
    assert isinstance(function, types.FunctionType)
    names = set(function.__code__.co_names)
    called = {n: v for n, v in function.__globals__.items() if n in names and isinstance(v, Kernel)}
    if not called:
        return function
    scope = dict(function.__globals__)
    scope.update({name: value.compile() for name, value in called.items()})
    resolved = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(resolved, function)
    vars(resolved).pop("__wrapped__", None)
    return resolved


@functools.cache
def _njit() -> Callable[[Any], Any] | None:
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return None
    try:
        from numba import config, njit
    except Exception as error:  # a broken LLVM raises more than ImportError
        warnings.warn(
            f"numba cannot be imported ({error}); kernels run as plain Python, about 70 times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    if "NUMBA_CACHE_DIR" not in os.environ:
        vars(config)["CACHE_DIR"] = str(_cache_directory())
    # error_model numpy: a division by zero gives inf as in NumPy instead of raising
    compiler: Callable[[Any], Any] = njit(cache=True, nogil=True, error_model="numpy")
    return compiler


def _cache_directory() -> Path:
    """A private writable directory named by the package's sources.

    numba checks only the file of the kernel itself, so a kernel that calls a changed one in
    another file would be stale; and it raises at import where nothing is writable.
    """
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if b"@kernel" in text:
            digest.update(text)
    name = f"riot_ops-{digest.hexdigest()}"
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        path = base / "numba" / name
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK):
            return path
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix=name))
