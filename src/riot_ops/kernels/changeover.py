"""When kernels change over from plain Python to machine code.

Loading the compiler takes longer than most sessions compute, and ten times their memory. So a kernel runs as plain
Python at first, which gives the same results to the bit. It changes over

- at once, if the call is large and its machine code is cached, or if the call is so large that compiling is faster;
- in the background, once kernels have spent :data:`PLAIN_SECONDS` in plain Python. Cached machine code is loaded by a
  thread; a process of its own compiles what is missing, so neither calls nor forks wait for the compiler.

With ``RIOT_OPS_COMPILE=immediate``, in Spark's workers and in ``riot-ops warm``, a kernel is compiled at its first
call.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from riot_ops.core.errors import ConfigError
from riot_ops.kernels.code_cache import COMPILE_LOCK, Compilable, cache_root, has_signature, is_cached, load_numba

__all__ = ["CHANGEOVER", "Changeover", "compile_immediately", "prefer_plain_python"]

#: Elements of the largest array of a call from which cached machine code is loaded at once, and from which a kernel
#: without it is compiled at once.
LARGE, HUGE = 4_096, 262_144
#: Seconds of plain Python, of all kernels together, after which they change over.
PLAIN_SECONDS = 0.5
#: Where memory is scarce: seconds of plain Python within how many seconds.
BUSY_SECONDS, BUSY_WITHIN = 5.0, 10.0
#: Seconds without work after which the thread and the compiling process end.
IDLE_SECONDS = 5.0
SETTING = "RIOT_OPS_COMPILE"


class Changeover:
    """The choice between plain Python and machine code for the calls of kernels, in one process."""

    def __init__(self) -> None:
        self.immediate: bool | None = None  # not read from the environment yet
        self.patient = False
        self.spent = 0.0
        self._since = time.perf_counter()
        self._failed: set[Any] = set()
        self._stopped = False
        self._reset()

    def _reset(self) -> None:
        self._pending: set[Any] = set()
        self._requests: queue.SimpleQueue[tuple[Any, Compilable, tuple[Any, ...]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._compiler: _CompilerProcess | None = None

    def code(self, kernel: Compilable, args: tuple[Any, ...]) -> Callable[..., Any]:
        """Return what to call for a kernel without machine code."""
        if self.immediate is None:
            self.immediate = _is_immediate()
        if self.immediate:
            return kernel.compile()  # type: ignore[no-any-return]
        size = self._size(args)
        large = size >= LARGE and not self.patient
        if large and (size >= HUGE or is_cached(kernel)):
            return kernel.compile()  # type: ignore[no-any-return]
        if large or self._is_due():
            self._request(kernel, kernel, args)
        return self._timed(kernel)

    def code_for(self, kernel: Compilable, dispatcher: Any, args: tuple[Any, ...]) -> Callable[..., Any] | None:
        """Return the plain function for argument types without machine code; None to load or compile it at once."""
        if self.immediate:
            return None
        args = tuple(getattr(arg, "value", arg) for arg in args)  # numba wraps defaults
        size = self._size(args)
        if size >= HUGE and not self.patient:
            return None
        signature = signature_of(dispatcher, args)
        if size >= LARGE and has_signature(dispatcher, signature):
            return None
        self._request((kernel, signature), kernel, args)
        return self._timed(kernel)

    def _is_due(self) -> bool:
        if self.patient:
            now = time.perf_counter()
            if now - self._since > BUSY_WITHIN:
                self._since, self.spent = now, 0.0
            return self.spent >= BUSY_SECONDS
        return self.spent >= PLAIN_SECONDS

    @staticmethod
    def _size(args: tuple[Any, ...]) -> int:
        return max((arg.size for arg in args if isinstance(arg, np.ndarray)), default=0)

    def _timed(self, kernel: Compilable) -> Callable[..., Any]:
        function = kernel.plain

        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                with np.errstate(all="ignore"):  # integers modulo 2^64 and divisions by zero are meant
                    return function(*args, **kwargs)
            finally:
                self.spent += time.thread_time() - start

        return run

    def _request(self, key: Any, kernel: Compilable, args: tuple[Any, ...]) -> None:
        """Let the thread bring the machine code for the types of the arguments."""
        if key in self._pending or key in self._failed or self._stopped:
            return
        self._pending.add(key)
        self._requests.put((key, kernel, args))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="riot-ops-kernels", daemon=True)
            self._thread.start()
            atexit.register(self._stop)

    def _work(self) -> None:
        while not self._stopped:
            try:
                key, kernel, args = self._requests.get(timeout=None if self._compiler is None else IDLE_SECONDS)
            except queue.Empty:
                compiler, self._compiler = self._compiler, None
                if compiler is not None:
                    compiler.close()
                continue
            problem = None
            try:
                ready = self._bring(kernel, args)
            except Exception as error:  # whatever the compiler raises: plain Python goes on
                ready, problem = False, error
            if not ready:
                self._failed.add(key)
            self._pending.discard(key)
            if problem is not None:
                warnings.warn(
                    f"kernel {kernel.python.__module__}.{kernel.python.__qualname__} cannot be compiled "
                    f"({type(problem).__name__}: {problem}); it runs as plain Python",
                    RuntimeWarning,
                    stacklevel=1,
                )

    def _bring(self, kernel: Compilable, args: tuple[Any, ...]) -> bool:
        """Load or compile the machine code of a kernel for the types of arguments, and put it in use."""
        with COMPILE_LOCK:
            if self._stopped or load_numba() is None:
                return False
            dispatcher = kernel.dispatcher()
            signature = signature_of(dispatcher, args)
            cached = signature in dispatcher.overloads or has_signature(dispatcher, signature)
        if not cached:
            self._compile_elsewhere(kernel, signature)
        with COMPILE_LOCK:
            if self._stopped:
                return False
            dispatcher.compile(signature)  # from the cache, unless the other process could not compile it
            kernel.use(dispatcher)
        return True

    def _compile_elsewhere(self, kernel: Compilable, signature: tuple[Any, ...]) -> None:
        types = [describe_type(one) for one in signature]
        if None in types or not _is_importable(kernel):
            return
        if self._compiler is None:
            self._compiler = _CompilerProcess()
        self._compiler.compile(kernel, types)

    def _stop(self) -> None:
        """End before the interpreter does: no thread may be inside the compiler then."""
        self._stopped = True
        compiler = self._compiler
        if compiler is not None:
            compiler.kill()
        if COMPILE_LOCK.acquire(timeout=10):
            COMPILE_LOCK.release()

    def after_fork(self) -> None:
        """Forget the thread and the process of the parent."""
        compiler = self._compiler
        self._reset()
        if compiler is not None:
            compiler.abandon()


class _CompilerProcess:
    """A process of low priority that compiles kernels into the cache."""

    def __init__(self) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = {**os.environ, "PYTHONPATH": path, SETTING: "immediate", "NUMBA_CACHE_DIR": str(cache_root())}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "riot_ops.kernels.compile_requests"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # a buffer has a lock, which a thread may hold while the process forks
            start_new_session=True,  # Ctrl-C in a terminal is for the program
        )

    def compile(self, kernel: Compilable, types: list[Any]) -> bool:
        """Compile a kernel for types of arguments; returns whether the machine code is in the cache now."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = (kernel.python.__module__, kernel.python.__qualname__, kernel.digest.hex(), types)
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            return self.process.stdout.readline().strip() == b"compiled"
        except (OSError, ValueError):  # it has ended
            return False

    def close(self) -> None:
        """Let it end."""
        with contextlib.suppress(OSError):
            self.process.communicate(timeout=10)

    def kill(self) -> None:
        """End it in the middle of its work."""
        with contextlib.suppress(OSError):
            self.process.kill()

    def abandon(self) -> None:
        """Close the pipes that a fork has copied, so that the process ends with its parent."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def signature_of(dispatcher: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types of arguments, as numba sees them."""
    return tuple(dispatcher.typeof_pyval(arg) for arg in args)


def describe_type(one: Any) -> list[Any] | None:
    """Describe the type of an argument for another process; None for types other than arrays and numbers."""
    from numba.core import types
    from numba.np.numpy_support import as_dtype

    if isinstance(one, (types.Number, types.Boolean)):
        return [one.name]
    if not isinstance(one, types.Array) or not isinstance(one.dtype, (types.Number, types.Boolean)):
        return None
    return [as_dtype(one.dtype).str, one.ndim, one.layout, not one.mutable, one.aligned]


def described_type(description: list[Any]) -> Any:
    """Return the type of a description.

    >>> described_type(["float64"]), described_type(["<i8", 2, "C", True, True])
    (float64, Array(int64, 2, 'C', True, aligned=True))
    """
    from numba.core import types
    from numba.np.numpy_support import from_dtype

    if len(description) == 1:
        return getattr(types, {"bool": "boolean"}.get(description[0], description[0]))
    dtype, ndim, layout, readonly, aligned = description
    return types.Array(from_dtype(np.dtype(dtype)), ndim, layout, readonly=readonly, aligned=aligned)


def _is_importable(kernel: Compilable) -> bool:
    """Whether another process finds the kernel by its name."""
    module = sys.modules.get(kernel.python.__module__)
    found: Any = module
    for part in kernel.python.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kernel and kernel.python.__module__ != "__main__" and bool(sys.executable)


def _is_immediate() -> bool:
    """Whether kernels are compiled at their first call, by the environment."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return True
    setting = os.environ.get(SETTING, "deferred")
    if setting not in ("deferred", "immediate"):
        raise ConfigError(f"{SETTING} must be deferred or immediate, got {setting!r}")
    return setting == "immediate"


#: Decides for the kernels of this process.
CHANGEOVER = Changeover()


def compile_immediately() -> None:
    """Compile kernels at their first call, in this process and those forked from it."""
    CHANGEOVER.immediate = True


def prefer_plain_python() -> None:
    """Load the compiler only where plain Python takes half of a core, as it needs 150 MB."""
    CHANGEOVER.patient = True


if hasattr(os, "register_at_fork"):

    def _after_fork_in_child() -> None:
        COMPILE_LOCK.release()
        CHANGEOVER.after_fork()

    # the thread must not be inside the compiler when the process forks
    os.register_at_fork(
        before=COMPILE_LOCK.acquire, after_in_parent=COMPILE_LOCK.release, after_in_child=_after_fork_in_child
    )
