"""The input of a dataflow whose source declares fields: files of records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from riot_ops.cli.feed import Feed, guess_delimiter
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.file_paths import input_stream
from riot_ops.core.schema import stream_schema
from riot_ops.core.source import Source
from riot_ops.ingest.file_formats import CSVFormat, naming_file
from riot_ops.ingest.files import FileSource, file_format, read
from riot_ops.ingest.partitions import find_partitioned_files
from riot_ops.ingest.step import check_source_fields

__all__ = ["RecordFeed"]

#: Bytes at the start of a CSV file that are read to guess its delimiter.
SAMPLE_BYTES = 1 << 16


@dataclass
class RecordFeed(Feed):
    """CSV with a header, JSON lines or Parquet, read with the types that a dataflow's source declares.

    ``source_id`` and ``fields`` are the id and the declared fields of that source; ``read`` are further options of
    :func:`riot_ops.read`, each as ``NAME=VALUE``.
    """

    source_id: str = ""
    fields: pa.Schema | None = None
    time_unit: str | None = None
    read: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._check_pace()
        assert self.fields is not None
        names = ", ".join(name for name in self.fields.names if name != "seq")
        if self.input is None:
            raise ConfigError(
                f"the source {self.source_id!r} declares the fields {names}: --input must name a file with them, since "
                "generated messages are text"
            )
        if self.key is not None:
            raise ConfigError("--key is for applications: the dataflow's JSON file names its own keys")
        if self.speed is not None and self.curve is None:
            raise ConfigError("--speed needs messages that begin with their time; with files of records use --rate")
        self.schema = stream_schema(self.stream)
        self._csv, self._header = None, False

    def source(self, *, paced: bool) -> Source:
        source = self._read()
        return self.at_pace(source) if paced else source

    def total(self) -> None:
        """Return None: the number of rows is not known before they are read."""

    def check(self) -> None:
        """Raise :class:`ConfigError` unless there are records with the declared fields."""
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
        options: dict[str, Any] = {"format": self.format, "encoding": self.encoding, **_read_options(self.read)}
        paths, _ = find_partitioned_files(str(self.input))
        form = file_format(paths[0], **options)
        if isinstance(form, CSVFormat) and "delimiter" not in options:
            options["delimiter"] = _delimiter(paths[0], form)
        return read(str(self.input), time=self.time, time_unit=self.time_unit, **options)  # type: ignore[arg-type]


def _read_options(given: Sequence[str]) -> dict[str, Any]:
    """Parse options of :func:`riot_ops.read` for CSV; ``null_values`` may come several times, ``header`` is a list."""
    options: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or name not in READ_OPTIONS:
            raise ConfigError(
                f"--read must be NAME=VALUE with a NAME of {', '.join(READ_OPTIONS)}, got {one!r}"
                f"{did_you_mean(name, READ_OPTIONS)}"
            )
        if name == "null_values":
            options[name] = [*options.get(name, []), text]
        else:
            options[name] = READ_OPTIONS[name](text)
    return options


def _whole(text: str) -> int | str:
    return int(text) if text.isdecimal() else text  # a text is refused by name


def _flag(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text, text)


#: The options of :func:`riot_ops.read` for CSV that have no option of their own, and what parses their text.
READ_OPTIONS: dict[str, Callable[[str], Any]] = {
    "header": lambda text: text.split(","),
    "delimiter": str,
    "null_values": str,
    "quoted_nulls": _flag,
    "skip_rows": _whole,
    "comment": str,
    "decimal": str,
    "time_format": str,
    "tz": str,
    "ambiguous": str,
}


def _delimiter(path: str, form: CSVFormat) -> str:
    """Guess the delimiter from the first lines of a file; a comma if it has none."""
    with naming_file(path), input_stream(path) as file:
        text = file.read(SAMPLE_BYTES).decode(form.encoding, "replace")
    lines = text.splitlines()[form.skip_rows :]
    table = [line for line in lines if line and not (form.comment and line.startswith(form.comment))]
    return guess_delimiter(table) if table else form.delimiter
