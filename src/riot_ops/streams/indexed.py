"""Streams whose records are functions of their number."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from riot_ops.core.checks import check_count
from riot_ops.core.errors import ConfigError
from riot_ops.core.source import Offset, Source, Split, row_splits
from riot_ops.ingest.pace import TimedSource

__all__ = ["AHEAD", "IndexedSource", "NumberedSource"]

#: Maximum number of records of one read of a stream without end, if the caller sets no limit.
AHEAD = 1 << 20


class NumberedSource(Source):
    """A source whose offsets are numbers of messages; it ends after ``messages``, unless that is None."""

    messages: int | None

    def initial(self) -> Offset:
        return {"message": 0}

    def finished(self, offset: Offset) -> bool:
        return self.messages is not None and bool(offset["message"] >= self.messages)

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        return row_splits(start, end, n, "message")

    def count(self, start: Offset, end: Offset) -> int | None:
        return int(end["message"] - start["message"])


class IndexedSource(NumberedSource, TimedSource):
    """A stream whose record *i* is a function of the parameters, the seed and *i* alone."""

    def __init__(self, messages: int | None, seed: int) -> None:
        if messages is not None:
            check_count(0, messages=messages)
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ConfigError(f"seed must be a whole number, got {seed!r}")
        self.messages = messages
        self.seed = seed

    def description(self) -> dict[str, Any]:
        parameters = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {"source": f"{type(self).__module__}:{type(self).__qualname__}", **parameters}

    @abstractmethod
    def _time_of(self, message: int) -> int:
        """Return the event time of a message in ms."""

    @abstractmethod
    def _messages_until(self, time_ms: int) -> int:
        """Return the number of messages not later than a time."""

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        end = start["message"] + (
            AHEAD if limit is None and self.messages is None else self.messages if limit is None else limit
        )
        return {"message": end if self.messages is None else max(start["message"], min(end, self.messages))}

    def time_at(self, offset: Offset) -> int | None:
        return None if self.finished(offset) else self._time_of(offset["message"]) * 1000

    def until(self, start: Offset, event_time: int, limit: int | None = None) -> Offset:
        end = max(start["message"], self._messages_until(event_time // 1000))
        if limit is not None:
            end = min(end, start["message"] + limit)
        return {"message": end if self.messages is None else max(start["message"], min(end, self.messages))}

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters only: tables are built where they are needed."""
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def __repr__(self) -> str:
        parameters = ", ".join(f"{k}={v!r}" for k, v in self.__getstate__().items())
        return f"{type(self).__name__}({parameters})"
