"""Sources of files: CSV, Parquet and JSON lines."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.castable import PER_SECOND
from riot_ops.core.casting import Problem, can_cast, cast
from riot_ops.core.checks import check_count, check_encoding, check_flag
from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.file_paths import StorageOptions, absolute_path, is_remote, path_in_store, readable_path
from riot_ops.core.schema import TIMESTAMP
from riot_ops.core.secret import Secret
from riot_ops.core.source import Offset, Source, Split
from riot_ops.ingest.file_formats import CSVFormat, FileFormat, JSONLinesFormat, ParquetFormat, naming_file
from riot_ops.ingest.file_positions import FilePosition, ReadFile, describe_origin, parts_between, read_file
from riot_ops.ingest.notation import Ambiguous, Notation
from riot_ops.ingest.partitions import Partitions, find_partitioned_files, partition_schema
from riot_ops.ingest.step import mark_rejected
from riot_ops.ingest.stream_source import StreamSource
from riot_ops.ingest.tables import Numbering
from riot_ops.kernels.arrays.arrow import byte_spans, readonly
from riot_ops.kernels.text.fast_values import EPOCH, GOOD, NO_VALUE, ROOM, read_values

__all__ = ["FileSource", "file_format", "read"]

FORMATS = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
COMPRESSED = (".gz", ".bz2", ".zst")


def read(
    path: str | Path | Sequence[str | Path],
    *,
    format: Literal["csv", "parquet", "jsonl"] | None = None,
    time: str | None = None,
    time_unit: Literal["s", "ms", "us", "ns"] | None = None,
    header: Sequence[str] | None = None,
    delimiter: str = ",",
    null_values: Sequence[str] = ("",),
    quoted_nulls: bool = False,
    encoding: str = "utf-8",
    skip_rows: int = 0,
    comment: str | None = None,
    decimal: Literal[".", ","] = ".",
    thousands: str | None = None,
    time_format: str | None = None,
    tz: str | None = None,
    ambiguous: Ambiguous = "reject",
    storage_options: Mapping[str, str | Secret] | None = None,
) -> FileSource:
    r"""Read files of records; the result is a source for :meth:`riot_ops.Dataflow.run` and ``start``.

    The run reads the files incrementally; with a checkpoint the next run continues where the last one stopped. Records
    are numbered over all files (``seq``). CSV cells are texts that are cast to the types that the dataflow declares; a
    cell that cannot be cast, a row with too many or too few cells, and a line that is not a JSON object go to the
    errors stream.

    Parameters
    ----------
    path : str, Path, folder, glob pattern, address such as ``s3://bucket/folder``, or a list of those
        Files are read in sorted order within a pattern or folder. CSV and JSON lines may be compressed
        (``.gz``, ``.bz2``, ``.zst``). In a folder with folders such as ``day=2024-05-01`` their files are read as well,
        with a text field ``day``.
    format : "csv", "parquet" or "jsonl", optional
        By default inferred from the name: ``.csv``, ``.parquet``, ``.jsonl`` or ``.ndjson``.
    time : str, optional
        Name of the column with the event time; it becomes ``event_time``.
    time_unit : "s", "ms", "us" or "ns", optional
        Unit of the numbers in the column ``time``, which count from 1970. By default times are ISO 8601 (in UTC if they
        have no zone), and whole numbers count microseconds.
    header : sequence of str, optional
        Names of the columns of CSV files without a header.
    delimiter : str, default ","
        Separator of CSV cells.
    null_values : sequence of str, default ``("",)``
        CSV cells that mean null.
    quoted_nulls : bool, default False
        Whether a quoted cell may mean null, such as ``""``; by default it is always text.
    encoding : str, default "utf-8"
        Encoding of CSV files, by a name that Python knows, such as "latin-1". A cell that is not in it is rejected.
    skip_rows : int, default 0
        Number of lines before the header, or before the first row, of each CSV file.
    comment : str, optional
        Character with which lines of CSV begin that are ignored; not within a quoted cell.
    decimal : "." or ",", default "."
        Decimal mark of CSV cells that are declared as floating-point or decimal numbers. With a comma, a cell with a
        point is rejected.
    thousands : str, optional
        Separator of thousands, such as ".", in CSV cells that are declared as numbers: one character, between groups of
        two or three digits, the last one of three. A cell with it at another place is rejected.
    time_format : str, optional
        Format of times and dates in CSV, as for :meth:`datetime.datetime.strptime`: ``"%d.%m.%Y %H:%M"``. By default
        ISO 8601.
    tz : str, optional
        Time zone of CSV times that have none, such as ``"Europe/Berlin"``, in fields that are declared with a zone; by
        default UTC.
    ambiguous : "reject", "earliest" or "latest", default "reject"
        What a local time means that occurs twice because clocks are set back. One that does not occur is rejected.
    storage_options : mapping of str to str or Secret, optional
        Settings of the object store by name, such as ``aws_region``; by default those of the environment. They travel
        to the workers with the source, and nothing shows them.

    Returns
    -------
    FileSource
        Its ``schema`` has the fields. CSV declares no types: until a dataflow does, they are those that the first rows
        of the first file spell, up to 4 MB. The log has them with the number of rows (level INFO). A number with
        leading zeros is text.

    Raises
    ------
    ConfigError
        For parameters that do not apply to the format, or to the place of the files.
    ConnectorError
        For a missing or malformed file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import riot_ops as ro
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "readings.csv"
    >>> _ = file.write_text("device,at,value\na,1000,1.5\na,2000,warm\n")
    >>> flow = ro.Dataflow("read")
    >>> schema = {"device": "string", "event_time": "timestamp[us, tz=UTC]", "value": "double"}
    >>> _ = flow.sink("out", flow.source("readings", schema=schema))
    >>> result = flow.run(ro.read(file, time="at", time_unit="ms"))
    >>> result["readings"].to_pylist()[0]["event_time"].isoformat(), result.errors["message"].to_pylist()
    ('1970-01-01T00:00:01+00:00', ["value = 'warm' (str) is not of type double"])
    """
    options = {name: value for name, value in locals().items() if name in CSV_OPTIONS}
    paths, partitions = find_partitioned_files(path, storage_options)
    if time_unit is not None and time_unit not in PER_SECOND:
        raise ConfigError(f"time_unit must be s, ms, us or ns, got {time_unit!r}")
    if time_unit is not None and time is None:
        raise ConfigError("time_unit applies to the column named by time; give time as well")
    files = file_format(paths[0], format, **options)
    named = [path] if isinstance(path, str | Path) else path
    origin = describe_origin(map(readable_path, named))
    return FileSource(paths, files, time, time_unit, origin, partitions, storage_options)


#: The parameters of :func:`read` that apply to CSV only, with their defaults.
CSV_OPTIONS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(read).parameters.items()
    if name not in ("path", "format", "time", "time_unit", "storage_options")
}


def file_format(path: str, format: Literal["csv", "parquet", "jsonl"] | None = None, **csv_options: Any) -> FileFormat:
    """Return the format of a file, which is not opened; see :func:`read` for the parameters and errors."""
    options = {**CSV_OPTIONS, **csv_options}
    header, delimiter, null_values, comment = (options[n] for n in ("header", "delimiter", "null_values", "comment"))
    name = format or _format_of(path)
    if name not in FORMATS.values():
        raise ConfigError(f"format must be csv, parquet or jsonl, got {name!r}{did_you_mean(name, FORMATS.values())}")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ConfigError(f"delimiter must be one ASCII character other than a quote or line break, got {delimiter!r}")
    if header is not None and (isinstance(header, str) or not header or len(set(header)) < len(header)):
        raise ConfigError(f"header must name each column once, got {header!r}")
    if isinstance(null_values, str):
        raise ConfigError(f"null_values must be a list of texts, got {null_values!r}")
    options["null_values"] = tuple(null_values)
    for option, value in options.items():
        if name != "csv" and value != CSV_OPTIONS[option]:
            raise ConfigError(f"{option} applies to CSV only, the files are {name}")
    check_encoding(options["encoding"])
    check_count(0, skip_rows=options["skip_rows"])
    check_flag(quoted_nulls=options["quoted_nulls"])
    if comment is not None and (
        not isinstance(comment, str) or len(comment) != 1 or not comment.isascii() or comment in f'"\r\n{delimiter}'
    ):
        raise ConfigError(
            f"comment must be one ASCII character other than a quote, a line break and the delimiter, got {comment!r}"
        )
    options["header"] = None if header is None else tuple(header)
    notation = Notation(**{one.name: options.pop(one.name) for one in fields(Notation)})
    csv = CSVFormat(**options, notation=notation)
    formats: dict[str, FileFormat] = {"csv": csv, "parquet": ParquetFormat(), "jsonl": JSONLinesFormat()}
    return formats[name]


def _format_of(path: str) -> str:
    name = path.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    suffix = os.path.splitext(name)[1]
    if suffix not in FORMATS:
        raise ConfigError(
            f"cannot infer the format of {path} from its name; pass format='csv', 'parquet' or 'jsonl'. To read a "
            "recorded stream with a time before each message use riot_ops.streams.replay"
        )
    return FORMATS[suffix]


class FileSource(StreamSource):
    """The records of a sequence of files, see :func:`read`."""

    def __init__(
        self,
        paths: Sequence[str],
        files: FileFormat,
        time: str | None,
        time_unit: str | None,
        origin: str,
        partitions: Partitions | None = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self.paths: list[str] = list(paths)
        self.files: FileFormat = files
        self.time: str | None = time
        self.time_unit: str | None = time_unit
        self._origin = origin
        self._storage_options = storage_options
        self.partitions: Partitions = partitions or {}
        self._folder_fields = partition_schema(self.partitions)
        with naming_file(self.paths[0]):
            schema = files.fields(self.paths[0])
        if twice := sorted({*schema.names} & {*self._folder_fields.names}):
            raise ConfigError(f"{self.paths[0]} has a column {twice[0]!r}, which its folder also names")
        schema = pa.schema([*schema, *self._folder_fields])
        if time is not None:
            if schema.names.count(time) != 1:
                raise ConfigError(
                    f"{self.paths[0]} lacks the column {time!r}, named by time; it has "
                    f"{', '.join(schema.names)}{did_you_mean(time, schema.names)}"
                )
            dtype = schema.field(time).type
            if time_unit is not None and (pa.types.is_timestamp(dtype) or not can_cast(dtype, pa.float64())):
                raise ConfigError(f"time_unit is for numbers, the column {time!r} of {self.paths[0]} holds {dtype}")
            if "event_time" in schema.names and time != "event_time":
                raise ConfigError(f"{self.paths[0]} has a column 'event_time' beside {time!r}, named by time")
        self._typed = type(files).fields is FileFormat.fields
        super().__init__(self._batches_from, self._renamed(schema))

    @property
    def schema(self) -> pa.Schema:
        if not self._typed:  # a dataflow, which declares the types, does not need them
            with naming_file(self.paths[0]):
                schema = self.files.schema(self.paths[0])
            self._fields = self._renamed(pa.schema([*schema, *self._folder_fields]))
            self._typed = True
        return super().schema

    def local_files(self) -> list[str]:
        return [path for path in self.paths if not is_remote(path)]

    def description(self) -> dict[str, Any]:
        files = {"format": type(self.files).__name__, **vars(self.files)}
        return {
            "source": self.name(),
            "paths": [absolute_path(path) for path in self.paths],
            "files": {name: str(value) for name, value in files.items()},
            "time": self.time,
            "time_unit": self.time_unit,
        }

    def project(self, schema: pa.Schema) -> Source:
        """Return the source for the declared fields alone; JSON is read with the declared types."""
        projected = copy.copy(self)
        original = {"event_time": self.time} if self.time is not None else {}
        declared = pa.schema([f.with_name(original.get(f.name) or f.name) for f in schema])
        if self.time_unit is not None and self.time in declared.names:
            number = pa.field(self.time, pa.int64() if self.time_unit == "ns" else pa.float64())
            declared = declared.set(declared.get_field_index(self.time), number)
        projected._folder_fields = pa.schema([f for f in self._folder_fields if f.name in declared.names])  # noqa: SLF001
        in_files = pa.schema([f for f in declared if f.name not in projected._folder_fields.names])  # noqa: SLF001
        projected.files = self.files.project(self.paths[0], in_files)
        projected._open_batches = projected._batches_from  # noqa: SLF001 (of the copy)
        with naming_file(self.paths[0]):
            found = pa.schema([*projected.files.fields(self.paths[0]), *projected._folder_fields])  # noqa: SLF001
        projected._fields, projected._typed = projected._renamed(found), True  # noqa: SLF001
        projected._reset()  # noqa: SLF001
        return projected

    def _reset(self) -> None:
        super()._reset()
        #: The files to read, with the rows of each that were read before.
        self._unread: list[tuple[str, int]] = []
        #: The position that they follow, and by first row the opened ones.
        self._before = FilePosition(self._origin, {})
        self._opened: list[tuple[int, str, ReadFile]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_open_batches": None, "_unread": [], "_opened": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open_batches = self._batches_from

    # -- positions -------------------------------------------------------------------------------------

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        row = start["row"]
        first = self._held[0][0] if self._held else self._end
        if self._batches is None or not first <= row <= self._end:
            self._reset()
            position = FilePosition.from_offset(start, self._origin)
            self._unread = position.unread(self.paths, self._origin)
            # the current file is the first of the unread ones
            self._before = FilePosition(self._origin, position.done)
            self._batches, self._end = self._from(row), row
        end = super().latest(start, limit)["row"]
        return start if end == row else {"row": end, **self._position(end).to_offset()}

    def _position(self, row: int) -> FilePosition:
        """Return the position at a row."""
        opened = [one for one in self._opened if one[0] <= row]
        ends = [*(first for first, *_ in opened[1:]), row]
        read = [replace(one, read=one.read + end - first) for (first, _, one), end in zip(opened, ends, strict=True)]
        if not read or (self._over and row == self._end):
            return self._before.after(read)
        return replace(self._before.after(read[:-1]), path=opened[-1][1], current=read[-1])

    def _batches_from(self, row: int) -> Iterator[pa.RecordBatch]:
        for path, skipped in self._unread:
            self._opened.append((row, path, read_file(path, read=skipped)))
            for batch in self._batches_of(path, skipped):
                row += batch.num_rows
                yield batch

    def _batches_of(self, path: str, row: int) -> Iterator[pa.RecordBatch]:
        """Read the batches of a file from a row on."""
        with naming_file(path):
            seeks = self.files.count(path) is not None
            for batch in self.files.batches(path, row if seeks else 0):
                skipped = 0 if seeks else min(row, batch.num_rows)
                row -= skipped
                if skipped < batch.num_rows:
                    yield self._timed(self._with_folder_fields(path, batch.slice(skipped)))

    def _with_folder_fields(self, path: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        for field in self._folder_fields:
            value = pa.scalar(self.partitions[path][field.name], field.type)
            batch = batch.append_column(field, pa.repeat(value, batch.num_rows))
        return batch

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        parts, row = [], start["row"]
        for path, skipped, read in parts_between(start, end, self.paths, self._origin):
            parts.append((row, path, skipped, read - skipped))
            row += read - skipped
        found = super().splits(start, end, n)
        for split in found:
            split["files"] = [
                [str(path), skipped + max(0, split["start"] - row)]
                for row, path, skipped, rows in parts
                if row < split["end"] and split["start"] < row + rows
            ]
        return found

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        row, end = split["start"], split["end"]
        if self._held and self._held[0][0] <= row and end <= self._end:
            yield from super().read(split)
            return
        number = Numbering(row)
        for path, skipped in split["files"]:
            for batch in self._batches_of(path_in_store(path, self._storage_options), skipped):
                yield number(batch.slice(0, end - number.rows))
                if number.rows >= end:
                    return

    def _renamed(self, schema: pa.Schema) -> pa.Schema:
        if self.time is None:
            return schema
        dtype = schema.field(self.time).type
        if self.time_unit is not None or can_cast(dtype, TIMESTAMP):
            dtype = TIMESTAMP
        return schema.set(schema.get_field_index(self.time), pa.field("event_time", dtype))

    def _timed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        place = -1 if self.time is None else batch.schema.get_field_index(self.time)
        if place < 0:
            return batch
        column = batch.column(place)
        problems: dict[int, Problem] = {}
        if self.time_unit is not None:
            column, problems = _times_of_unit(column, self.time_unit, str(self.time))
        return mark_rejected(batch, problems).set_column(place, pa.field("event_time", column.type), column)


def _times_of_unit(column: pa.Array, unit: str, name: str) -> tuple[pa.Array, dict[int, Problem]]:
    """Convert numbers of a unit since 1970, with or without a fraction, to times.

    Decimal fractions in text are exact, digits below a microsecond are cut off; numbers with an exponent, and floats,
    are rounded to microseconds.
    """
    problems: dict[int, Problem] = {}
    if pa.types.is_floating(column.type):
        odd = list(range(len(column)))
        times = pa.nulls(len(column), TIMESTAMP)
    elif pa.types.is_string(column.type) and pc.any(pc.match_substring(column, ".")).as_py():
        times, odd = _decimal_times(pc.utf8_trim_whitespace(column), unit)
    else:
        whole, wrong = cast(column, pa.int64())
        odd = sorted(wrong)
        times, problems = cast(whole.cast(pa.timestamp(unit, "UTC")), TIMESTAMP)
    if odd:
        numbers, wrong = cast(column.take(pa.array(odd)), pa.float64())
        micros, beyond = cast(pc.round(pc.multiply(numbers, PER_SECOND["us"] / PER_SECOND[unit])), pa.int64())
        mask = np.zeros(len(column), np.bool_)
        mask[odd] = True
        times = pc.replace_with_mask(times, pa.array(mask), micros.cast(TIMESTAMP))
        problems.update({odd[i]: problem for i, problem in {**beyond, **wrong}.items()})
    return times, {i: p._replace(text=f"{name} {p.text}") for i, p in problems.items()}


def _decimal_times(texts: pa.Array, unit: str) -> tuple[pa.Array, list[int]]:
    """Convert decimal numbers of a unit since 1970 to times; and the rows that are none, or out of range."""
    data, starts, ends, valid = byte_spans(texts)
    expected = valid if valid.size else np.ones(len(texts), np.bool_)
    sizes = np.where(expected & (ends > starts), ends - starts, NO_VALUE)
    data = readonly(np.append(data, np.zeros(ROOM, np.uint8)))
    micros, states = read_values(data, starts, sizes, EPOCH, PER_SECOND["us"] // PER_SECOND[unit])
    good = (sizes != NO_VALUE) & (states == GOOD)
    return pa.array(micros, mask=~good).view(TIMESTAMP), np.flatnonzero(expected & ~good).tolist()
