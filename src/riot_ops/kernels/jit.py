"""Kernels: functions over arrays that run as plain Python at first, and then as machine code that numba compiles.

:mod:`riot_ops.kernels.changeover` decides when; numba is imported then. With ``NUMBA_DISABLE_JIT=1``, or if numba
cannot be imported, kernels stay plain Python.

Machine code is cached in a directory per kernel, whose name is a digest of everything that determines it: the code of
the kernel, the kernels that it calls and the constants that it reads. Changing a kernel recompiles it and its callers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from riot_ops.kernels.changeover import CHANGEOVER
from riot_ops.kernels.code_cache import (
    COMPILE_LOCK,
    cache_directory,
    caching_in,
    load_numba,
    tolerate_damage,
    use_shipped_code,
)
from riot_ops.kernels.compile_lock import compile_once

__all__ = ["KERNELS", "Kernel", "compile_uncached", "import_kernel", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")

#: All kernels of this process.
KERNELS: weakref.WeakSet[Kernel[..., Any]] = weakref.WeakSet()


class Kernel(Generic[P, R]):
    """A function over arrays that is compiled once for each combination of argument types."""

    def __init__(self, function: Callable[P, R], *, inline: bool = False, numba: str = "") -> None:
        functools.update_wrapper(self, function)
        self.python: Callable[P, R] = function
        self.inline = inline
        self.numba = numba
        self._compiled: Any = None
        self._dispatcher: Any = None
        self._inlined: Any = None
        KERNELS.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._compiled is None:
            return CHANGEOVER.code(self, args)(*args, **kwargs)  # type: ignore[no-any-return]
        return self._compiled(*args, **kwargs)  # type: ignore[no-any-return]

    @functools.cached_property
    def plain(self) -> Callable[P, R]:
        """The function as plain Python, as are the kernels that it calls."""
        assert isinstance(self.python, types.FunctionType)
        called = {name: value.plain for name, value in _globals_of(self.python) if isinstance(value, Kernel)}
        return _with_globals(self.python, called)

    def compile(self) -> Any:
        """Use machine code from now on: return the numba dispatcher, or the plain function if compilation is off."""
        if self._compiled is None:
            with COMPILE_LOCK:
                if load_numba() is None:
                    self.use(np.errstate(all="ignore")(self.plain))  # integers modulo 2^64 are meant
                else:
                    self.use(self.dispatcher())
        return self._compiled

    def use(self, code: Any) -> None:
        """Call this function from now on."""
        self._compiled = code

    def dispatcher(self) -> Any:
        """Return the numba dispatcher, which asks :data:`CHANGEOVER` before it compiles for further types."""
        with COMPILE_LOCK:
            if self._dispatcher is not None:
                return self._dispatcher
            directory = cache_directory(self)
            with caching_in(directory, vars(load_numba().config)):
                dispatcher = load_numba().njit(cache=True, **_OPTIONS)(_resolve_calls(self.python))
            tolerate_damage(dispatcher)
            use_shipped_code(dispatcher, self)
            compile_once(dispatcher, directory)
            compile_now = dispatcher._compile_for_args  # noqa: SLF001 (what numba calls for types without code)

            def code_for(*args: Any, **kwargs: Any) -> Any:
                found = CHANGEOVER.code_for(self, dispatcher, args)
                return compile_now(*args, **kwargs) if found is None else found

            dispatcher._compile_for_args = code_for  # noqa: SLF001
            self._dispatcher = dispatcher
            return dispatcher

    def inlined(self) -> Any:
        """Return the dispatcher for calls by other kernels, whose machine code includes this kernel.

        It has no wrapper for calls from Python and no cache of its own.
        """
        if self._inlined is None:
            with COMPILE_LOCK:
                numba = load_numba()
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
        return import_kernel, (self.python.__module__, self.python.__qualname__)


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


def import_kernel(module: str, name: str) -> Any:
    """Return the object of a module by its qualified name."""
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
    return _with_globals(
        function, {name: value.inlined() for name, value in _globals_of(function) if isinstance(value, Kernel)}
    )


def _with_globals(function: types.FunctionType, replaced: dict[str, Any]) -> types.FunctionType:
    """Return a function that sees other values of some globals: the function itself if there are none."""
    if not replaced:
        return function
    copy = types.FunctionType(
        function.__code__,
        {**function.__globals__, **replaced},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(copy, function)
    vars(copy).pop("__wrapped__", None)
    return copy


#: error_model numpy: division by zero gives inf, as in NumPy, instead of raising. _nrt: kernels allocate nothing, so
#: numba can omit reference counts of arrays, which cost more than many loops and a third of the compile time.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}


@functools.cache
def compile_uncached(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a user's function, or a loop that takes one, for this process only; unchanged if compilation is off.

    An index beyond an array raises, instead of reading or writing other memory.
    """
    numba = load_numba()
    return function if numba is None else numba.njit(function, boundscheck=True)
