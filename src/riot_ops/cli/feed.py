"""The input of ``riot-ops run``: a generated stream, or files, which are checked before the run."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from riot_ops import streams
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, did_you_mean, excerpt
from riot_ops.core.schema import StreamSchema, stream_schema
from riot_ops.core.source import Source
from riot_ops.core.storage import Address
from riot_ops.dataflow import Dataflow
from riot_ops.graph.nodes import Edge
from riot_ops.ingest.pace import paced as at_pace
from riot_ops.streams.catalog import catalog_entry

__all__ = ["Feed", "guess_delimiter"]

#: Lines that are read before a run to check the input.
SAMPLE_LINES = 100
DELIMITERS = ",;\t|"
#: How a time begins: milliseconds of this century, or a date.
TIME_PATTERN = r"\d{12,13}$|\d{4}-\d\d-\d\d"
#: Id of the step that converts CSV lines to SenML.
CSV_STEP = "csv"

_log = logging.getLogger("riot_ops")


@dataclass
class Feed:
    """The options of ``riot-ops run`` that describe its input.

    ``schema`` is the schema that the application is built for: that of the stream, or of a CSV file.
    """

    stream: str
    messages: int
    sensors: int
    seed: int = 0
    input: Path | Address | None = None
    format: str | None = None
    encoding: str = "utf-8"
    time: str | None = None
    key: str | None = None
    rate: float | None = None
    speed: float | None = None
    curve: str | None = None

    def __post_init__(self) -> None:
        self.schema: StreamSchema = stream_schema(self.stream)
        self._csv: t.CSVToSenML | None = None
        self._header = False
        self._check_pace()
        self.format = self.format or "senml"
        if self.format not in ("senml", "csv"):
            raise ConfigError(f"--format must be senml or csv, got {self.format!r}")
        if self.format == "senml" and (self.time or self.key):
            raise ConfigError("--time and --key name columns and need --format csv")
        if self.input is None and self.format == "csv":
            raise ConfigError("--format csv needs --input: generated messages are SenML")
        if self.format == "csv":
            if (self.time is None) != (self.key is None):
                raise ConfigError("--time and --key must be given together")
            if self.speed is not None and self.curve is None:
                raise ConfigError("--speed needs messages that begin with their time; with --format csv use --rate")
            self._read_header()

    def _check_pace(self) -> None:
        if self.curve is not None:
            catalog_entry(self.curve)
            if self.rate is not None:
                raise ConfigError(f"--curve {self.curve} and --rate {self.rate:g} both set the pace: leave one out")

    @property
    def has_custom_columns(self) -> bool:
        """Whether the input has columns of its own, not those of a benchmark's stream."""
        return self.schema is not stream_schema(self.stream)

    def source(self, *, paced: bool) -> Source:
        """Return the source of messages, with or without the pace of the options."""
        if self.input is not None:
            source = streams.replay(str(self.input), has_header=self._header, encoding=self.encoding)
        else:
            source = streams.generate(self.stream, self.sensors, messages=self.messages, seed=self.seed)
        return self.at_pace(source) if paced else source

    def at_pace(self, source: Source) -> Source:
        """Return a source at the pace of the options."""
        if self.curve is None:
            return at_pace(source, self.speed, self.rate)
        entry = catalog_entry(self.curve)
        return at_pace(source, None, None, entry.curve(self.speed or entry.speed))

    def describe(self) -> str:
        """Describe the input in words."""
        generated = f"{self.messages:,} messages of {self.sensors:,} generated {self.stream} sensors"
        return str(self.input) if self.input is not None else generated

    def total(self) -> int | None:
        """Return the number of messages, if it is known."""
        if self.input is None:
            return self.messages
        source = self.source(paced=False)
        start = source.initial()
        return source.count(start, source.latest(start))

    def first(self, n: int) -> pa.RecordBatch | None:
        """Return the first messages, unchanged; None if there are none."""
        source = self.source(paced=False)
        start = source.initial()
        batches = [b for split in source.splits(start, source.latest(start, n), 1) for b in source.read(split)]
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if batches else None

    def parsed(self, task: t.Task) -> Iterator[pa.RecordBatch]:
        """Yield the messages parsed by a task, without a pace."""
        source = self.source(paced=False)
        to_senml = None if self._csv is None else self._csv.session()
        session = task.session()
        offset = source.initial()
        while (end := source.latest(offset, 65_536)) != offset:
            for split in source.splits(offset, end, 1):
                for batch in source.read(split):
                    yield session.push_batch(batch if to_senml is None else to_senml.push_batch(batch))
            offset = end
        source.close()

    def adapt(self, flow: Dataflow) -> Dataflow:
        """Return a dataflow with one source; add a step that converts CSV lines to SenML if the input is CSV."""
        if self._csv is not None:
            (source,) = flow.nodes_of_kind("source")
            flow.edges = [Edge(CSV_STEP, e.target, e.distribution) if e.source == source.id else e for e in flow.edges]
            flow.add(self._csv, flow.stream(source.id), id=CSV_STEP)
        return flow

    # -- check ----------------------------------------------------------------------------

    def check(self) -> None:
        """Raise :class:`ConfigError` unless one of the first lines can be read; the message shows the first."""
        if self.input is None:
            return
        first = self.first(SAMPLE_LINES)
        if first is None:
            raise ConfigError(f"--input {self.input} is empty")
        messages = first if self._csv is None else self._check_csv(first, self._csv)
        parse = t.ParseSenML(schema=self.schema, layout="wide").session()
        if parse.push_batch(messages).num_rows:
            return
        error = parse.errors[0]
        raise ConfigError(
            f"none of the first {first.num_rows} lines of {self.input} is a message of the stream {self.stream}: "
            f"{error['reason']} ({error['message']})\n"
            f"  the first line: {_first_line(first)}\n"
            f"  expected: {_example(self.schema)}\n"
            f"  {self._advice(first)}"
        )

    def _check_csv(self, first: pa.RecordBatch, task: t.CSVToSenML) -> pa.RecordBatch:
        session = task.session()
        messages = session.push_batch(first)
        if not messages.num_rows:
            error = session.errors[0]
            raise ConfigError(
                f"none of the first {first.num_rows} lines of {self.input} can be read: "
                f"{error['reason']} ({error['message']})\n  the first line: {_first_line(first)}\n"
                f"  expected columns: {', '.join(self.schema.columns)}; "
                f"{self.schema.time_field} in milliseconds since 1970 or as an ISO date-time"
            )
        return messages

    def _advice(self, first: pa.RecordBatch) -> str:
        table = _split_table(_lines(first))
        if bytes(first.column("payload")[0].as_py() or b"").startswith(b"\x1f\x8b"):
            return "the file is compressed with gzip: its name must end in .gz"
        if any(b"\0" in bytes(line or b"") for line in first.column("payload").to_pylist()):
            return "the file is not text"
        if table is None or self._csv is not None:
            return "--stream must name the stream of these messages: city, taxi, fit or grid"
        header, rows = table
        if list(header) == list(self.schema.columns):
            return "the file has the columns of the stream: add --format csv"
        time, key = _guess_columns(header, rows)
        return (
            f"the file looks like CSV with the columns {', '.join(header)}; for statistics of its columns use\n"
            f"  riot-ops run stats --input {self.input} --format csv --time {time} --key {key}"
        )

    def _read_header(self) -> None:
        first = self.first(SAMPLE_LINES)
        if first is None:
            raise ConfigError(f"--input {self.input} is empty")
        lines = _lines(first)
        delimiter = guess_delimiter(lines)
        header = [_strip_quotes(name) for name in lines[0].split(delimiter)]
        if self.time is None:
            columns = self.schema.columns
            self._header = header == list(columns)
            self._csv = t.CSVToSenML(schema=self.schema, delimiter=delimiter)
            return
        for option, name in (("--time", self.time), ("--key", self.key)):
            if name not in header:
                raise ConfigError(
                    f"{option} {name}: {self.input} has the columns {', '.join(header)}"
                    f"{did_you_mean(str(name), header)}"
                )
        if len(set(header)) < len(header) or "" in header:
            raise ConfigError(f"{self.input} must have a different name for each column, got {', '.join(header)}")
        self._header = True
        rows = [line.split(delimiter) for line in lines[1:] if line != lines[0]]  # each file has the header
        rows = [row for row in rows if len(row) == len(header)]
        observed = []
        for i, name in enumerate(header):
            others = [row[i] for row in rows if not _is_number(row[i])]
            if name in (self.time, self.key) or 2 * len(others) > len(rows):
                continue
            observed.append(name)
            if others:
                _log.warning(
                    "--input %s: the column %s has no number (n/a) but %r in %d of its first %d rows; such values are "
                    "rejected",
                    self.input, name, _strip_quotes(others[0]), len(others), len(rows),
                )  # fmt: skip
        if not observed:
            raise ConfigError(f"{self.input} has no numeric column besides --time and --key")
        name = re.sub(r"[^\w.-]", "_", (self.input or Path(CSV_STEP)).name.partition(".")[0])
        assert self.time is not None
        assert self.key is not None
        self.schema = StreamSchema(
            re.sub(r"^[^A-Za-z0-9]+|^csv$", "", name) or "readings",
            tuple(header),
            ("",) * len(header),
            tuple("v" if column in observed else "sv" for column in header),
            self.key,
            self.time,
            tuple(column for column in header if column not in observed),
        )
        self._csv = t.CSVToSenML(schema=self.schema, delimiter=delimiter)
        times = [_strip_quotes(row[header.index(self.time)]) for row in rows if len(row) == len(header)]
        if times and all(re.fullmatch(r"[1-4]\d{9}", value) for value in times):
            _log.warning("--time %s is read as milliseconds since 1970, but looks like seconds", self.time)


def _lines(batch: pa.RecordBatch) -> list[str]:
    return [
        bytes(line or b"").decode("utf-8", "backslashreplace").removeprefix("\ufeff").rstrip("\r\n")
        for line in batch.column("payload").to_pylist()
    ]


def _first_line(batch: pa.RecordBatch) -> str:
    return repr(excerpt(_lines(batch)[0], 100))


def _strip_quotes(text: str) -> str:
    return text.strip().strip('"')


def _is_number(text: str) -> bool:
    text = _strip_quotes(text)
    if text in ("", "null"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def guess_delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter that splits the first lines into the most columns."""
    return max(DELIMITERS, key=lambda d: min(line.count(d) for line in lines[:10]))


def _split_table(lines: Sequence[str]) -> tuple[list[str], list[list[str]]] | None:
    """Return header and rows if the lines look like a table, else None."""
    delimiter = guess_delimiter(lines)
    rows = [line.split(delimiter) for line in lines if line]
    if len(rows) < 2 or len(rows[0]) < 2 or "{" in lines[0] or "\\x" in lines[0]:
        return None
    if len({len(row) for row in rows[:10]}) > 1 or any(_is_number(name) for name in rows[0]):
        return None
    return [_strip_quotes(name) for name in rows[0]], rows[1:]


def _guess_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[str, str]:
    """Guess the columns of the time and of the sensor's id."""
    text = [name for i, name in enumerate(header) if not all(_is_number(row[i]) for row in rows if i < len(row))]
    full = [row for row in rows if len(row) == len(header)]
    times = [
        name for i, name in enumerate(header) if all(re.match(TIME_PATTERN, _strip_quotes(row[i])) for row in full)
    ]
    time = _first_match(r"time|date|stamp|^ts$", header) or next(iter(times), "COLUMN")
    others = [name for name in header if name != time]
    key = _first_match(r"sensor|device|station|meter|source|name|(^|_)id$", others) or next(
        (name for name in text if name != time), "COLUMN"
    )
    return time, key


def _first_match(pattern: str, names: Sequence[str]) -> str | None:
    return next((name for name in names if re.search(pattern, name, re.IGNORECASE)), None)


def _example(schema: StreamSchema) -> str:
    entries = f'{{"n":"{schema.id_field}","sv":"s1"}},{{"n":"{schema.numeric[0]}","v":20.5}}'
    return f'lines of <ms since 1970>,<SenML>, such as 1422748800000,{{"e":[{entries}],"bt":1422748800000}}'
