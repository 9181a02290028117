"""What a run of a dataflow of one's own reads, where its source declares fields: files of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from riot_ops.cli.feed import Feed, guess_delimiter
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import stream_schema
from riot_ops.core.source import Source
from riot_ops.ingest.file_formats import CSVFormat, naming_file
from riot_ops.ingest.files import FileSource, read
from riot_ops.ingest.step import check_source_fields

__all__ = ["RecordFeed"]

#: Bytes at the beginning of a CSV file that are looked at for what stands between its cells.
SAMPLE_BYTES = 1 << 16


@dataclass
class RecordFeed(Feed):
    """CSV with a header, JSON lines or Parquet, read as the source of a dataflow declares; see :func:`riot_ops.read`.

    ``source_id`` and ``fields`` are that source's.
    """

    source_id: str = ""
    fields: pa.Schema | None = None
    time_unit: str | None = None

    def __post_init__(self) -> None:
        self._check_pace()
        assert self.fields is not None
        names = ", ".join(name for name in self.fields.names if name != "seq")
        if self.input is None:
            raise ConfigError(
                f"the source {self.source_id!r} declares the fields {names}: give a file that has them as --input; "
                "generated messages are text"
            )
        if self.key is not None:
            raise ConfigError("--key is for the applications: a dataflow of one's own says itself what its keys are")
        if self.speed is not None and self.curve is None:
            raise ConfigError("--speed needs messages that begin with their time; use --rate with files of records")
        self.schema = stream_schema(self.stream)
        self._csv, self._header = None, False

    def source(self, *, paced: bool) -> Source:
        source = self._read()
        return self.at_pace(source) if paced else source

    def total(self) -> None:
        """Rows are counted as they are read."""

    def check(self) -> None:
        """Raise :class:`ConfigError` unless there are records, which have the fields that the dataflow declares."""
        assert self.fields is not None
        source = self._read().project(self.fields)
        try:
            check_source_fields(self.source_id, source.schema, self.fields)
        except ConfigError as error:
            if self.time is None and "event_time" in {*self.fields.names} - {*source.schema.names}:
                raise ConfigError(f"{error}; --time names the column with the time") from None
            raise
        if source.latest(source.initial(), 1) == source.initial():
            raise ConfigError(f"--input {self.input} has no records")
        source.close()

    def _read(self) -> FileSource:
        assert self.input is not None
        given: dict[str, Any] = {"format": self.format}
        files = read(self.input, **given)
        if isinstance(files.files, CSVFormat):
            given["delimiter"] = _delimiter(files.paths)
        return read(self.input, time=self.time, time_unit=self.time_unit, **given)  # type: ignore[arg-type]


def _delimiter(paths: Sequence[str]) -> str:
    with naming_file(paths[0]), pa.input_stream(paths[0], compression="detect") as file:
        text = file.read(SAMPLE_BYTES).decode("utf-8", "replace")
    return guess_delimiter([line for line in text.splitlines() if line])
