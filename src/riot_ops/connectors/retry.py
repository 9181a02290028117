"""What clients of stores share: trying again, several calls at once, one client per process."""

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

__all__ = ["Failure", "close_shared", "in_parallel", "retrying", "shared"]

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0

T = TypeVar("T")
A = TypeVar("A")
_LOCAL = threading.local()


class Failure(NamedTuple):
    """Why a call failed, in words without secrets, and whether another try can help."""

    message: str
    transient: bool


def retrying(
    what: str,
    call: Callable[[], T],
    explain: Callable[[Exception], Failure | None],
    patience_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What the call returns; it is made again while it fails for a passing reason.

    The pauses double from 0.1 s to 5 s, less a random part so that clients do not come back all at once.

    Parameters
    ----------
    what : str
        What the call does, for the error: ``blob 'a' of azure-blob://models cannot be read``.
    explain : function
        The failure behind an exception; None lets the exception out as it is.
    patience_s : float
        For how long to try, in seconds.

    Raises
    ------
    ConnectorError
        With the explanation. The exception itself, which may quote an address with a token, is
        not chained.

    Examples
    --------
    >>> tries = []
    >>> def call():
    ...     tries.append(1)
    ...     return len(tries) if len(tries) > 2 else [][0]
    >>> retrying("it cannot be read", call, lambda error: Failure("gone", True), 9.0, sleep=lambda s: None)
    3
    """
    until = clock() + patience_s
    delay = FIRST_PAUSE
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
        delay = min(2 * delay, LONGEST_PAUSE)
        stop: threading.Event | None = getattr(_LOCAL, "stop", None)
        if not failure.transient or clock() + pause > until or (stop is not None and stop.is_set()):
            often = f" after {tries} tries" if tries > 1 else ""
            raise ConnectorError(f"{what}{often}: {failure.message}", retryable=failure.transient)
        if stop is None:
            sleep(pause)
        else:
            stop.wait(pause)


def in_parallel(call: Callable[[A], T], items: Sequence[A], workers: int) -> list[T]:
    """The results of a call for each item, in order, several waiting for their answers at once.

    After the first exception no more calls are made, and those that are being tried again give up.

    >>> in_parallel(abs, [-1, 2, -3], workers=2)
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
    """What is kept open."""

    def close(self) -> None:
        """Let go of connections; may be called twice."""


C = TypeVar("C", bound=Client)
_OPEN: dict[tuple[Hashable, ...], Any] = {}
_LOCK = threading.Lock()


def shared(opener: Callable[..., C], *arguments: Hashable, **options: Hashable) -> C:
    """The client that a function makes of its arguments, made once per process and closed at its end."""
    given = (*arguments, *options.items())
    # a variable may have been set anew
    key = (opener, *(a.reveal() if isinstance(a, Secret) else a for a in given))
    with _LOCK:
        if key not in _OPEN:
            _OPEN[key] = opener(*arguments, **options)
        client: C = _OPEN[key]
        return client


def close_shared() -> None:
    """Close the clients of this process; the next use opens them again."""
    with _LOCK:
        clients = list(_OPEN.values())
        _OPEN.clear()
    for client in clients:
        client.close()


def _in_child() -> None:
    """A forked process must not use the connections of its parent, nor close them."""
    global _LOCK  # noqa: PLW0603 (another thread of the parent may hold it)
    _LOCK = threading.Lock()
    _OPEN.clear()


atexit.register(close_shared)
os.register_at_fork(after_in_child=_in_child)
