"""The state of a bucket in Spark's store: a base and a chain of deltas, and the engines that a worker keeps.

A delta holds only the keys touched by a micro-batch; a *head* names the newest link. A worker whose copy lags (because
another worker ran the last micro-batch) reads only the missing links; one whose copy is not on the chain (after a
failed attempt) reads them all.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from riot_ops.core.errors import StateError
from riot_ops.runtime.engine import Engine

__all__ = ["ENDED_SOURCES", "HEAD_KEY", "CachedEngine", "Head", "Link", "StateChain", "cached_engines"]

#: Key of the ended sources among the states of a bucket.
ENDED_SOURCES = ""
#: The generation of the head, before those of all links.
HEAD_KEY = (-1,)

#: A worker keeps the engines of this many queries, and of all that it has run for within this many seconds.
CACHED_QUERIES, CACHED_SECONDS = 4, 60.0
#: Maximum number of links after a base.
MAX_DELTAS = 512
#: Approximate maximum size of a link; several copies exist on its way into Spark's store.
LINK_BYTES = 4 << 20

#: By stage and bucket.
Engines = dict[tuple[int, int], "CachedEngine"]


class Head(msgspec.Struct, array_like=True):
    """The newest link of a bucket's chain, and the first and last link of its base."""

    generation: int = -1
    base: int = -1
    base_end: int = -1
    delta_bytes: int = 0
    base_bytes: int = 0
    token: str = ""


class Link(msgspec.Struct, array_like=True):
    """The change of a micro-batch, or a part of it, by task, and the tokens of this link and the previous one."""

    previous: str
    token: str
    states: dict[str, bytes]


@dataclass
class CachedEngine:
    """A bucket's engine in this worker, and the link of its state."""

    engine: Engine
    generation: int = -1
    token: str = ""
    ended: frozenset[str] = frozenset()


ENGINE_CACHE: OrderedDict[str, tuple[float, dict[tuple[int, int], CachedEngine]]] = OrderedDict()
_LOCK = threading.Lock()


def cached_engines(run: str) -> dict[tuple[int, int], CachedEngine]:
    """Return the engines that this worker keeps for a query, by stage and bucket."""
    with _LOCK:
        now = time.monotonic()
        _, found = ENGINE_CACHE.pop(run, (now, {}))
        ENGINE_CACHE[run] = now, found
        while len(ENGINE_CACHE) > CACHED_QUERIES and next(iter(ENGINE_CACHE.values()))[0] < now - CACHED_SECONDS:
            ENGINE_CACHE.popitem(last=False)
        return found


class StateChain:
    """The chain of a bucket, from which its engine is loaded and to which it is saved.

    Parameters
    ----------
    variable : object
        Spark's state variable of the bucket: generation to link.
    engines : callable
        Returns the engines that this worker keeps for the query.
    place : (int, int)
        Stage and bucket.
    create_engine : callable
        Creates an engine without state.
    fit_engine : callable
        Called with an engine before it reads links.
    """

    def __init__(
        self,
        variable: Any,
        engines: Callable[[], Engines],
        place: tuple[int, int],
        create_engine: Callable[[], Engine],
        fit_engine: Callable[[Engine], None],
    ) -> None:
        self._variable = variable
        self._engines = engines
        self._place = place
        self._create_engine = create_engine
        self._fit_engine = fit_engine
        self.head = Head()

    def load(self) -> CachedEngine:
        """Return the bucket's engine, with the state of the chain's head."""
        stored = self._variable.getValue(HEAD_KEY)
        self.head = head = msgspec.msgpack.decode(stored[0], type=Head) if stored is not None else Head()
        cached = self._engines().pop(self._place, None)  # put back when the micro-batch is done
        if cached is not None and (cached.generation, cached.token) == (head.generation, head.token):
            return cached
        if cached is not None and head.base <= cached.generation < head.generation and self._catch_up(cached):
            return cached
        cached = CachedEngine(self._create_engine())
        if head.generation >= 0:
            cached.generation = head.base - 1
            if not self._catch_up(cached):
                stage, bucket = self._place
                raise StateError(f"the state of bucket {bucket} of stage {stage} lacks a link")
        return cached

    def _catch_up(self, cached: CachedEngine) -> bool:
        """Apply the links after the cached one; returns False if the cached one is not on the chain."""
        self._fit_engine(cached.engine)
        for generation in range(cached.generation + 1, self.head.generation + 1):
            stored = self._variable.getValue((generation,))
            if stored is None:
                return False
            link = msgspec.msgpack.decode(stored[0], type=Link)
            if generation > self.head.base and link.previous != cached.token:
                return False
            cached.ended = frozenset(msgspec.json.decode(link.states[ENDED_SOURCES], type=list[str]))
            cached.engine.restore(link.states)
            cached.generation, cached.token = generation, link.token
        return cached.token == self.head.token

    def save(self, cached: CachedEngine) -> None:
        """Add the change of a micro-batch to the chain, or a new base, and keep the engine."""
        head = self.head
        deltas = head.generation - head.base_end
        full = head.base < 0 or head.delta_bytes > head.base_bytes or deltas >= MAX_DELTAS
        ended = msgspec.json.encode(sorted(cached.ended))
        generation, token, size = head.generation, head.token, 0
        for states in cached.engine.pieces("full" if full else "delta", LINK_BYTES):
            link = Link(token, uuid.uuid4().hex, {**states, ENDED_SOURCES: ended})
            data = msgspec.msgpack.encode(link)
            generation, token, size = generation + 1, link.token, size + len(data)
            self._variable.updateValue((generation,), (data,))
        if full:
            for old in range(max(head.base, 0), head.generation + 1):
                self._variable.removeKey((old,))
            new = Head(generation, head.generation + 1, generation, 0, size, token)
        else:
            new = Head(generation, head.base, head.base_end, head.delta_bytes + size, head.base_bytes, token)
        self._variable.updateValue(HEAD_KEY, (msgspec.msgpack.encode(new),))
        cached.generation, cached.token = generation, token
        self._engines()[self._place] = cached
