"""Lazy compilation: kernels are plain Python functions until their first call, when numba compiles them.

Importing numba takes longer than importing the rest of riot_ops, so it is imported at the first call of a kernel. With
``NUMBA_DISABLE_JIT=1``, or if numba cannot be imported, kernels run as plain Python.

Machine code is cached in a directory per kernel, whose name is a digest of everything that determines it: the code of
the kernel, the kernels that it calls and the constants that it reads. Changing a kernel recompiles it and its callers.
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
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from riot_ops.kernels.compile_lock import compile_once

__all__ = ["KERNELS", "Kernel", "compile_uncached", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")

#: Guards compilation: numba takes the cache directory of a function from a global setting.
_LOCK = threading.RLock()
#: All kernels of this process.
KERNELS: weakref.WeakSet[Kernel[..., Any]] = weakref.WeakSet()


class Kernel(Generic[P, R]):
    """A function over arrays that is compiled at its first call, once for each combination of argument types."""

    def __init__(self, function: Callable[P, R], *, inline: bool = False, numba: str = "") -> None:
        functools.update_wrapper(self, function)
        self.python: Callable[P, R] = function
        self.inline = inline
        self.numba = numba
        self._compiled: Any = None
        self._inlined: Any = None
        KERNELS.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._compiled is None:
            self._compiled = self.compile()
        return self._compiled(*args, **kwargs)  # type: ignore[no-any-return]

    def compile(self) -> Any:
        """Return the numba dispatcher, or the plain function if compilation is off."""
        if self._compiled is None:
            with _LOCK:
                numba = _numba()
                if numba is None:  # hashes overflow on purpose, which NumPy scalars warn of
                    self._compiled = np.errstate(over="ignore")(self.python)
                else:
                    directory = _cache_directory(self)
                    with _caching_in(directory, vars(numba.config)):
                        compiled = numba.njit(cache=True, **_OPTIONS)(_resolve_calls(self.python))
                    self._compiled = compile_once(compiled, directory)
        return self._compiled

    def inlined(self) -> Any:
        """Return the dispatcher for calls by other kernels, whose machine code includes this kernel.

        It has no wrapper for calls from Python and no cache of its own.
        """
        if self._inlined is None:
            with _LOCK:
                numba = _numba()
                assert numba is not None
                if self.numba:
                    module, _, name = self.numba.rpartition(".")
                    with contextlib.suppress(ImportError, AttributeError):  # numba's internals may change
                        self._inlined = getattr(importlib.import_module(module), name)
                        return self._inlined
                dispatcher = numba.njit(no_cpython_wrapper=True, forceinline=self.inline, **_OPTIONS)(
                    _resolve_calls(self.python)
                )
                template = dispatcher.get_call_template

                def without_literals(args: Any, kws: Any) -> Any:
                    # otherwise numba would compile the function for each literal argument
                    plain = [numba.types.unliteral(a) for a in args]
                    return template(plain, {name: numba.types.unliteral(a) for name, a in kws.items()})

                dispatcher.get_call_template = without_literals
                self._inlined = dispatcher
        return self._inlined

    @functools.cached_property
    def digest(self) -> bytes:
        """A hash of everything that determines the machine code: neither the docstring nor the names of locals do."""
        code, doc = self.python.__code__, self.python.__doc__
        constants = code.co_consts
        if doc is not None and constants[:1] == (doc,):  # keep the position, which the bytecode refers to
            constants = (None, *constants[1:])
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        inputs = (code.co_code, constants, code.co_names, parameters, self.inline, self.numba, _OPTIONS)
        digest = hashlib.blake2b(repr(inputs).encode())
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

    Kernels may call other kernels and read numbers and arrays that their module defines or imports. They allocate no
    arrays, and know nothing of Arrow, Spark or dictionaries. ``inline`` forces inlining into the callers, for kernels
    that a loop calls in each step, at one or two places. ``numba`` names a numba function, such as an intrinsic, that
    other kernels call instead if it exists.
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
    """Yield the global names that a function uses, with their values."""
    assert isinstance(function, types.FunctionType)
    for name in sorted(set(function.__code__.co_names)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _identity(owner: Kernel[..., Any], name: str, value: Any) -> bytes:
    """Return the bytes that identify a global of a kernel: equal bytes give equal machine code."""
    if isinstance(value, Kernel):  # with module and name, by which the cached machine code imports it
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
        "kernels read numbers, arrays, modules and other kernels, whose changes can be detected"
    )


def _resolve_calls(function: Callable[..., Any]) -> types.FunctionType:
    """Return a copy of a function in which the kernels that it calls are replaced by dispatchers.

    numba resolves globals at compile time, and does not know :class:`Kernel`.
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


#: error_model numpy: division by zero gives inf, as in NumPy, instead of raising. _nrt: kernels allocate nothing, so
#: numba can omit reference counts of arrays, which cost more than many loops and a third of the compile time.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


@functools.cache
def _numba() -> Any:
    """Return the numba module, or None if kernels run as plain Python."""
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
    """Locates the cached machine code of a kernel for numba: in the directory named by its digest.

    The locators of numba also depend on path, line and time of the source, and so would recompile kernels in every
    environment in which the library is installed.
    """

    def __init__(self, directory: str, source: str) -> None:
        self.directory = directory
        self._py_file = source  # numba names it in warnings

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> CacheLocator:
        """Return the locator of the kernel that is being compiled."""
        return cls(vars(_numba().config)["CACHE_DIR"], py_file)

    def ensure_cache_path(self) -> None:
        """Create the directory."""
        os.makedirs(self.directory, exist_ok=True)

    def get_cache_path(self) -> str:
        """Return the directory."""
        return self.directory

    def get_source_stamp(self) -> str:
        """Nothing: the digest in the directory's name covers the source."""
        return ""

    def get_disambiguator(self) -> str:
        """Nothing: each kernel has its own directory."""
        return ""


@contextlib.contextmanager
def _caching_in(directory: Path, config: dict[str, Any]) -> Iterator[None]:
    """Let numba cache functions decorated within the context in a directory; a user's own functions are unaffected."""
    settings = {"CACHE_DIR": str(directory), "CACHE_LOCATOR_CLASSES": f"{__name__}.{CacheLocator.__name__}"}
    before = {name: config.get(name, "") for name in settings}
    config.update(settings)
    try:
        yield
    finally:
        config.update(before)


def _cache_directory(kernel: Kernel[..., Any]) -> Path:
    """Return the cache directory of a kernel."""
    digest = kernel.digest.hex()[:16]
    return _cache_root() / f"{kernel.python.__module__.removeprefix('riot_ops.')}.{kernel.python.__name__}-{digest}"


@functools.cache
def _cache_root() -> Path:
    """Return a writable directory: ``NUMBA_CACHE_DIR``, the user's cache, or a temporary one."""
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
def compile_uncached(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a user's function, or a loop that takes one, for this process only; unchanged if compilation is off.

    An index beyond an array raises, instead of reading or writing other memory.
    """
    numba = _numba()
    return function if numba is None else numba.njit(function, boundscheck=True)
