"""Helpers for clients of stores: retries, parallel calls, and one client per process."""

from __future__ import annotations

import atexit
import os
import random
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

from riot_ops.core.errors import ConnectorError
from riot_ops.core.secret import Secret

__all__ = ["Failure", "close_shared_clients", "map_parallel", "retry", "shared_client"]

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0

T = TypeVar("T")
A = TypeVar("A")
_LOCAL = threading.local()


class Failure(NamedTuple):
    """Why a call failed, in words without secrets, and whether another attempt can succeed.

    ``pause_s`` is how long the other side asks to wait before that, in seconds.
    """

    message: str
    transient: bool
    pause_s: float | None = None


def retry(
    what: str,
    call: Callable[[], T],
    explain: Callable[[Exception], Failure | None],
    patience_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call a function, again while it fails with a transient error, and return its result.

    The pauses double from 0.1 s to 5 s, minus a random part, so that clients do not retry all at once. A failure may
    ask for a longer one.

    Parameters
    ----------
    what : str
        Beginning of the error message, such as ``blob 'a' of azure-blob://models cannot be read``.
    call : function
        Called without arguments.
    explain : function
        Maps an exception to a :class:`Failure`; None: raise the exception unchanged.
    patience_s : float
        How long to try, in seconds.
    clock, sleep : function
        Replacements of ``time.monotonic`` and ``time.sleep``, for tests.

    Raises
    ------
    ConnectorError
        With the message of the failure. The original exception is not chained, since it may quote an address with a
        token.

    Examples
    --------
    >>> tries = []
    >>> def call():
    ...     tries.append(1)
    ...     return len(tries) if len(tries) > 2 else [][0]
    >>> retry("it cannot be read", call, lambda error: Failure("gone", True), 9.0, sleep=lambda s: None)
    3
    """
    until = clock() + patience_s
    delay = FIRST_PAUSE_S
    tries = 0
    while True:
        try:
            return call()
        except Exception as error:
            failure = explain(error)
            if failure is None:
                raise
        tries += 1
        pause = delay * random.uniform(0.5, 1.0)  # noqa: S311 (spreads clients, guards nothing)
        delay = min(2 * delay, MAX_PAUSE_S)
        pause = max(pause, failure.pause_s or 0.0)
        stop: threading.Event | None = getattr(_LOCAL, "stop", None)
        if not failure.transient or clock() + pause > until or (stop is not None and stop.is_set()):
            often = f" after {tries} tries" if tries > 1 else ""
            raise ConnectorError(f"{what}{often}: {failure.message}", retryable=failure.transient)
        if stop is None:
            sleep(pause)
        else:
            stop.wait(pause)


def map_parallel(call: Callable[[A], T], items: Sequence[A], workers: int) -> list[T]:
    """Call a function for each item, several at a time, and return the results in order.

    After the first exception no further call starts, and calls that are being retried give up.

    >>> map_parallel(abs, [-1, 2, -3], workers=2)
    [1, 2, 3]
    """
    if workers < 2 or len(items) < 2:
        return [call(item) for item in items]
    stop = threading.Event()

    def one(item: A) -> T:
        _LOCAL.stop = stop
        return call(item)

    with ThreadPoolExecutor(min(workers, len(items))) as pool:
        futures = [pool.submit(one, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# -- one client per process ------------------------------------------------------------------------


class Client(Protocol):
    """An object with connections."""

    def close(self) -> None:
        """Close the connections; may be called twice."""


C = TypeVar("C", bound=Client)
_OPEN: dict[tuple[Hashable, ...], Any] = {}
_LOCK = threading.Lock()


def shared_client(factory: Callable[..., C], *arguments: Hashable, **options: Hashable) -> C:
    """Return the client that a function creates from its arguments; one per process, closed at exit."""
    # the value of a secret belongs to the key, since its environment variable may change
    key = (factory, *(a.reveal() if isinstance(a, Secret) else a for a in (*arguments, *options.items())))
    with _LOCK:
        if key not in _OPEN:
            _OPEN[key] = factory(*arguments, **options)
        client: C = _OPEN[key]
        return client


def close_shared_clients() -> None:
    """Close the shared clients of this process; the next use opens them again."""
    with _LOCK:
        clients = list(_OPEN.values())
        _OPEN.clear()
    for client in clients:
        client.close()


def _in_child() -> None:
    """Drop the clients in a forked process, which must neither use nor close the connections of its parent."""
    global _LOCK  # noqa: PLW0603 (another thread of the parent may hold the old lock)
    _LOCK = threading.Lock()
    _OPEN.clear()


atexit.register(close_shared_clients)
os.register_at_fork(after_in_child=_in_child)
