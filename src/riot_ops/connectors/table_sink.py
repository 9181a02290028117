"""The common part of sinks that append streams to tables with versions: options, fields, and the steps of a run."""

from __future__ import annotations

import copy
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from riot_ops.connectors.delta.types import fits
from riot_ops.core.errors import ConfigError, ConnectorError, did_you_mean, value_text
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.secret import names_secret
from riot_ops.core.sink import Sink

__all__ = ["TableSink"]

#: How often a commit is tried that other writers of the table disturb.
MAX_COMMITS = 5

T = TypeVar("T", bound="TableSink")


class TableSink(Sink):
    """Appends each stream to a table of its own.

    Parameters
    ----------
    tables : mapping of str to str or None
        By stream, the name of its table.
    partition_by : tuple of str
        How a new table is divided.
    on_new_field : str
        What happens if a stream has fields that its table lacks: ``refuse`` or ``add``.
    properties : mapping of str to str or None
        Properties of new tables.
    """

    def __init__(
        self,
        tables: Mapping[str, str] | None,
        partition_by: str | Sequence[str],
        on_new_field: str,
        properties: Mapping[str, str] | None,
    ) -> None:
        if on_new_field not in ("refuse", "add"):
            raise ConfigError(f"on_new_field must be 'refuse' or 'add', got {on_new_field!r}")
        for name, given in (("tables", tables), ("properties", properties)):
            if given is not None and not _texts(given):
                raise ConfigError(f"{name} must be a mapping of text to text, got {value_text(given)}")
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if not all(isinstance(name, str) for name in self.partition_by):
            raise ConfigError(f"partition_by must be names of fields, got {partition_by!r}")
        self.tables = dict(tables or {})
        self.on_new_field = on_new_field
        self.properties = dict(properties or {})
        self._run = self._attempt = uuid.uuid4().hex
        self.schemas: dict[str, pa.Schema] = {}

    # -- what a kind of table defines ----------------------------------------------------------------

    @abstractmethod
    def label(self, stream: str) -> str:
        """Return the table of a stream in words, for messages."""

    @abstractmethod
    def divided_by(self, text: str) -> str:
        """Return the field of an item of ``partition_by``."""

    @abstractmethod
    def table_schema(self, stream: str, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a stream as its table holds it."""

    @abstractmethod
    def prepare(self, stream: str) -> Any:
        """Open or create the table of a stream, and note what its data files hold."""

    @abstractmethod
    def take_back(self, stream: str, table: Any, batch_id: int) -> None:
        """Remove the records of a batch that was committed, and of later ones, from the table."""

    @abstractmethod
    def _shown(self) -> dict[str, Any]:
        """Return the arguments for the repr, a positional one under the name ``""``."""

    def __repr__(self) -> str:
        common = {"tables": self.tables, "partition_by": self.partition_by, "properties": self.properties}
        given = {**self._shown(), **common}
        if self.on_new_field != "refuse":
            given["on_new_field"] = self.on_new_field
        texts = (f"{name}={_masked(v)!r}" if name else repr(v) for name, v in given.items() if v or not name)
        return f"{type(self).__name__}({', '.join(texts)})"

    # -- before a run --------------------------------------------------------------------------------

    def bind(self: T, schemas: Mapping[str, pa.Schema]) -> T:
        sink = copy.copy(self)
        for name in self.tables:
            if name not in schemas:
                raise ConfigError(
                    f"tables: no stream {name!r} ends in this sink{did_you_mean(name, schemas)}; there are "
                    f"{', '.join(schemas)}"
                )
        places: dict[str, str] = {}
        for stream, schema in schemas.items():
            label = self.label(stream)
            if (other := places.setdefault(label, stream)) != stream:
                raise ConfigError(f"the streams {other!r} and {stream!r} would share {label}")
            for name in map(self.divided_by, self.partition_by if stream != ERRORS_STREAM else ()):
                if name not in schema.names:
                    raise ConfigError(
                        f"partition_by: stream {stream!r} has no field {name!r}{did_you_mean(name, schema.names)}"
                    )
        sink.schemas = {stream: self.table_schema(stream, schema) for stream, schema in schemas.items()}
        return sink

    def identify(self, run: str) -> None:
        self._run, self._attempt = run, uuid.uuid4().hex[:12]

    def recover(self, batch_id: int) -> None:
        for stream in self.schemas:
            self.take_back(stream, self.prepare(stream), batch_id)

    def resume(self, batch_id: int) -> None:
        if batch_id == 0:  # Spark plans the first micro-batch again
            self.recover(0)
        for stream in self.schemas:
            self.prepare(stream)

    # -- fields --------------------------------------------------------------------------------------

    def new_fields(self, stream: str, schema: pa.Schema, known: Iterable[str]) -> list[pa.Field]:
        """Return the fields to add to a table with the columns ``known``; ConfigError if that is not wanted."""
        names = set(known)
        new = [f for f in schema if f.name not in names]
        if new and self.on_new_field == "refuse":
            raise ConfigError(
                f"{self.label(stream)} lacks the fields {', '.join(repr(f.name) for f in new)} of stream "
                f"{stream!r}: drop them in a task, or add them to the table with on_new_field='add'"
            )
        return new

    def check_columns(self, stream: str, schema: pa.Schema, columns: pa.Schema, divided: Iterable[str]) -> None:
        """Raise a ConfigError unless a table with these columns, divided by some, holds all values of a stream."""
        label, by = self.label(stream), set(divided)
        for f in schema:
            if not fits(f.type, columns.field(f.name).type):
                raise ConfigError(
                    f"the field {f.name!r} of stream {stream!r} is {f.type}, but in {label} "
                    f"{columns.field(f.name).type}: cast it in a task, or use another table"
                )
        for f in columns:
            if f.name not in schema.names and (not f.nullable or f.name in by):
                why = "does not allow null" if not f.nullable else "is divided by it"
                raise ConfigError(f"stream {stream!r} lacks the field {f.name!r}, but {label} {why}")

    def removed(self, stream: str) -> ConnectorError:
        """Return the error that a table is not there any more."""
        return ConnectorError(f"{self.label(stream)} was removed while this run wrote to it")


def _texts(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(one, str) for pair in given.items() for one in pair)


def _masked(given: Any) -> Any:
    """Return settings without the texts that may be secrets."""
    if not isinstance(given, Mapping):
        return given
    return {name: "***" if isinstance(v, str) and names_secret(name) else v for name, v in given.items()}
