"""Lazy compilation: kernels are plain Python until first called, then compiled by numba.

Importing numba takes longer than importing all the rest of riot_ops, so it happens at the first
call of a kernel. With ``NUMBA_DISABLE_JIT=1``, or where numba cannot be imported, the same
functions run as ordinary Python.

Machine code is kept in one directory per kernel, named by all that went into it: its own code, the
kernels that it calls and the constants that it reads. A change of one kernel compiles that one anew, and
those that call it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

__all__ = ["Kernel", "compiled", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")

#: numba takes the directory of a function's machine code from a global setting.
_LOCK = threading.RLock()


class Kernel(Generic[P, R]):
    """A loop over arrays; calling it compiles it once per argument types."""

    def __init__(self, function: Callable[P, R], *, inline: bool = False, numba: str = "") -> None:
        functools.update_wrapper(self, function)
        self.python: Callable[P, R] = function
        self.inline = inline
        self.numba = numba
        self._compiled: Any = None
        self._inlined: Any = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._compiled is None:
            self._compiled = self.compile()
        return self._compiled(*args, **kwargs)  # type: ignore[no-any-return]

    def compile(self) -> Any:
        """The numba dispatcher (or the plain function where compiling is off)."""
        if self._compiled is None:
            with _LOCK:
                numba = _numba()
                if numba is None:  # hashes wrap around on purpose, of which NumPy's scalars would warn
                    self._compiled = np.errstate(over="ignore")(self.python)
                else:
                    with _kept_in(_cache_directory(self), vars(numba.config)):
                        self._compiled = numba.njit(cache=True, **_OPTIONS)(_resolve_calls(self.python))
        return self._compiled

    def inlined(self) -> Any:
        """The dispatcher for calls by other kernels, into whose machine code it goes.

        It lacks what is needed to be called from Python and to be kept by itself.
        """
        if self._inlined is None:
            with _LOCK:
                numba = _numba()
                assert numba is not None
                if self.numba:
                    module, _, name = self.numba.rpartition(".")
                    with contextlib.suppress(ImportError, AttributeError):  # numba promises nothing of its inside
                        self._inlined = getattr(importlib.import_module(module), name)
                        return self._inlined
                dispatcher = numba.njit(no_cpython_wrapper=True, forceinline=self.inline, **_OPTIONS)(
                    _resolve_calls(self.python)
                )
                template = dispatcher.get_call_template

                def without_literals(args: Any, kws: Any) -> Any:
                    # numba would compile a function once per literal that it is called with
                    plain = [numba.types.unliteral(a) for a in args]
                    return template(plain, {name: numba.types.unliteral(a) for name, a in kws.items()})

                dispatcher.get_call_template = without_literals
                self._inlined = dispatcher
        return self._inlined

    @functools.cached_property
    def digest(self) -> bytes:
        """A hash of all that goes into the machine code."""
        code = self.python.__code__
        what = (code.co_code, code.co_consts, code.co_names, code.co_varnames, self.inline, self.numba, _OPTIONS)
        digest = hashlib.blake2b(repr(what).encode())
        for name, value in _globals_of(self.python):
            digest.update(name.encode())
            digest.update(_identity(self, name, value))
        return digest.digest()

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _import_kernel, (self.python.__module__, self.python.__qualname__)


@overload
def kernel(function: Callable[P, R], /) -> Kernel[P, R]: ...
@overload
def kernel(*, inline: bool = False, numba: str = "") -> Callable[[Callable[P, R]], Kernel[P, R]]: ...
def kernel(function: Any = None, *, inline: bool = False, numba: str = "") -> Any:
    """Mark a function over arrays and scalars as a kernel.

    Kernels may call other kernels and read numbers and arrays that their module defines or imports.
    They allocate no arrays, and know nothing of Arrow, Spark or dictionaries. What LLVM would call, ``inline``
    puts into the callers: for what each step of a loop needs, at one place or two. ``numba`` names a function of
    numba's that other kernels call instead, if it is there: an instruction of the processor that Python has no name
    for.
    """
    if function is None:
        return functools.partial(Kernel, inline=inline, numba=numba)
    return Kernel(function, inline=inline, numba=numba)


def _import_kernel(module: str, name: str) -> Any:
    found: Any = __import__(module, fromlist=["_"])
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _globals_of(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The globals that a function names."""
    assert isinstance(function, types.FunctionType)
    for name in sorted(set(function.__code__.co_names)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _identity(owner: Kernel[..., Any], name: str, value: Any) -> bytes:
    """What tells a global of a kernel from any other that would make other machine code."""
    if isinstance(value, Kernel):  # its module and name too: the kept machine code imports it by these
        return f"{value.python.__module__}.{value.python.__qualname__}".encode() + value.digest
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}".encode() + value.tobytes()
    if isinstance(value, tuple):
        return b"".join(_identity(owner, name, item) for item in value)
    if isinstance(value, (bool, int, float, str, np.generic)):
        return f"{type(value).__name__} {value!r}".encode()
    if isinstance(value, types.ModuleType):
        return value.__name__.encode()
    raise TypeError(
        f"kernel {owner.python.__module__}.{owner.python.__qualname__} reads {name}, a {type(value).__name__}; "
        "kernels read numbers, arrays, modules and other kernels, of which it can be told whether they changed"
    )


def _resolve_calls(function: Callable[..., Any]) -> types.FunctionType:
    """The function with the kernels that it calls replaced by compiled ones.

    numba types a global at compile time and does not know our wrapper.
    """
    assert isinstance(function, types.FunctionType)
    called = {name: value for name, value in _globals_of(function) if isinstance(value, Kernel)}
    if not called:
        return function
    scope = dict(function.__globals__)
    scope.update({name: value.inlined() for name, value in called.items()})
    resolved = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(resolved, function)
    vars(resolved).pop("__wrapped__", None)
    return resolved


#: error_model numpy: a division by zero gives inf as in NumPy instead of raising. _nrt: kernels allocate nothing, so
#: numba need not count who refers to an array, which costs more than many a loop and a third of the compiling.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


@functools.cache
def _numba() -> Any:
    """The module, or None where kernels are to run as plain Python."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return None
    try:
        import numba
    except Exception as error:  # a broken LLVM raises more than ImportError
        warnings.warn(
            f"numba cannot be imported ({error}); kernels run as plain Python, about 70 times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return numba


class CacheLocator:
    """Tells numba where the machine code of a kernel is: in a directory named by all that went into it.

    By itself numba would ask for the path, the line and the time of the source as well, and compile anew in every
    environment that the library is installed in.
    """

    def __init__(self, directory: str, source: str) -> None:
        self.directory = directory
        self._py_file = source  # numba names it in warnings

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> CacheLocator:
        """The locator for the kernel that is being compiled."""
        return cls(vars(_numba().config)["CACHE_DIR"], py_file)

    def ensure_cache_path(self) -> None:
        """Make the directory."""
        os.makedirs(self.directory, exist_ok=True)

    def get_cache_path(self) -> str:
        """The directory."""
        return self.directory

    def get_source_stamp(self) -> str:
        """What has to agree besides the directory: nothing."""
        return ""

    def get_disambiguator(self) -> str:
        """What tells functions of one name apart: the directory does."""
        return ""


@contextlib.contextmanager
def _kept_in(directory: Path, config: dict[str, Any]) -> Iterator[None]:
    """Let numba keep there what is decorated meanwhile; a user's own functions are none of our business."""
    ours = {"CACHE_DIR": str(directory), "CACHE_LOCATOR_CLASSES": f"{__name__}.{CacheLocator.__name__}"}
    before = {name: config.get(name, "") for name in ours}
    config.update(ours)
    try:
        yield
    finally:
        config.update(before)


def _cache_directory(kernel: Kernel[..., Any]) -> Path:
    """Where the machine code of a kernel is kept."""
    digest = kernel.digest.hex()[:16]
    return _cache_root() / f"{kernel.python.__module__.removeprefix('riot_ops.')}.{kernel.python.__name__}-{digest}"


@functools.cache
def _cache_root() -> Path:
    """A private writable directory; numba raises at import where nothing is writable."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return Path(given)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        path = base / "numba" / "riot_ops"
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK):
            return path
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="riot_ops-"))


@functools.cache
def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """A user's function, or a loop that is given one, compiled for this process alone; as it is without numba."""
    numba = _numba()
    return function if numba is None else numba.njit(function)
