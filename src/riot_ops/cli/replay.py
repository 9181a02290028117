"""Rejected records of an earlier run, sent through a mended dataflow again."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from riot_ops.core.errors import ConfigError, ConnectorError, StateError, read_error
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.order import is_ordinal
from riot_ops.core.paths import check_regular, make_folder, safe_file_name, sync
from riot_ops.core.schema import ERRORS
from riot_ops.dataflow import Dataflow

__all__ = ["Replay", "replay_errors"]

#: File beside the records that says which were replayed.
MARKS = "replayed.json"
ERRORS_FOLDER = "errors"


@dataclass
class Replay:
    """What a replay did: records by step that were sent again, results by stream, and the folder of the results."""

    folder: Path
    sent: dict[str, int]
    results: dict[str, int]
    stateful: list[str]


def replay_errors(folder: Path, flow: Dataflow, out: Path | None = None) -> Replay:
    """Send the rejected records in a folder through a dataflow, from the step that rejected them.

    For each such step the results lie in a folder of its name below ``out``, as Parquet files by stream, with the
    original ``seq`` and event times. Files whose records were sent are noted in ``replayed.json`` beside them, once all
    results are on disk. A replay that was interrupted writes the same folder again, which it has noted there; any other
    folder must be new, so that the results of one replay never take the place of others.

    A step with state begins empty: its results are those of the replayed records alone.

    Parameters
    ----------
    folder : Path
        The folder of the stream ``errors``, or the one above it.
    flow : Dataflow
        The mended dataflow, with a step of the same id for each that has rejected records.
    out : Path, optional
        A new folder; by default ``replayed-N`` beside the folder of the errors.
    """
    folder = folder / ERRORS_FOLDER if (folder / ERRORS_FOLDER).is_dir() else folder
    marks, started = _read_marks(folder)
    known = {name: tuple(found) for one in marks for name, found in one["files"].items()}
    files = {path.name: _identity(path) for path in sorted(folder.glob("part-*.parquet"))}
    new = [folder / name for name, found in files.items() if known.get(name) != found]
    out = _place(out, started, folder.parent, len(marks) + 1)
    by_step: dict[str, list[dict[str, Any]]] = {}
    for path in new:
        for row in _read(path):
            by_step.setdefault(row["task"], []).append(row)
    parts = {step: _from_step(flow, step) for step in by_step}  # all, before anything is written
    replay = Replay(out, {}, {}, sorted({name for part, _ in parts.values() for name in _stateful(part)}))
    if new:
        _write_marks(folder, marks, str(out.absolute()))
    for step, rows in by_step.items():
        part, schema = parts[step]
        records = list(_records(sorted(rows, key=lambda r: (r["seq"] is None, r["seq"])), schema, _field(flow, step)))
        place = out / safe_file_name(step)
        summary = part.run(records, sinks=ParquetSink(place), overwrite=True).summary
        replay.sent[step] = len(rows)
        for stream, n in summary.rows.items():
            replay.results[stream] = replay.results.get(stream, 0) + n
    if new:
        _write_marks(folder, [*marks, {"out": str(out), "files": {path.name: files[path.name] for path in new}}])
    return replay


def _place(given: Path | None, started: Path | None, beside: Path, number: int) -> Path:
    """Return the folder of the results: that of a replay that was interrupted, or else a new one."""
    if started is not None and started.exists():
        if given is not None and given.absolute() != started:
            raise ConfigError(
                f"a replay into {started} was interrupted: leave --out out to repeat it there, or remove that folder"
            )
        return started
    if given is None:
        while (beside / f"replayed-{number}").exists():
            number += 1
        return beside / f"replayed-{number}"
    if given.exists() and (not given.is_dir() or any(given.iterdir())):
        raise ConfigError(f"--out: {given} is there already, and may hold results: give a new folder")
    return given


def _identity(path: Path) -> tuple[int, int]:
    """Return size and checksum of a file: a later run may use its name again."""
    try:
        check_regular(path)
        data = path.read_bytes()
    except OSError as error:
        raise read_error(path, error) from None
    return len(data), zlib.crc32(data)


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ConnectorError(f"the rejected records in {path} cannot be read: {error}") from error
    for name in ("seq", "event_time", "task", "raw"):
        if name not in table.schema.names:
            raise ConfigError(f"{path} holds no rejected records: it lacks the column {name!r} of {ERRORS.names}")
        found, wanted = table.schema.field(name).type, ERRORS.field(name).type
        if found.id != wanted.id and not pa.types.is_null(found):
            raise ConfigError(f"{path} holds no rejected records: its column {name!r} is {found} instead of {wanted}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _read_marks(folder: Path) -> tuple[list[dict[str, Any]], Path | None]:
    """Return what was replayed, and the folder of a replay that has not come to its end."""
    path = folder / MARKS
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; give that of the stream errors")
    if not path.exists():
        return [], None
    try:
        check_regular(path)
        found = msgspec.json.decode(path.read_bytes(), type=_Marks)
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise StateError(
            f"{path}, which says what was replayed, is damaged: {error}; remove it to replay all records again"
        ) from None
    return found.replays, None if found.started is None else Path(found.started)


def _write_marks(folder: Path, marks: list[dict[str, Any]], started: str | None = None) -> None:
    hidden = folder / f".{MARKS}"
    make_folder(folder)
    more = {} if started is None else {"started": started}
    hidden.write_text(json.dumps({"replays": marks, **more}, indent=1), encoding="utf-8")
    sync(hidden)
    os.replace(hidden, folder / MARKS)
    sync(folder)


class _Marks(msgspec.Struct):
    """The content of ``replayed.json``: for each replay its folder and, by file, size and checksum."""

    replays: list[dict[str, Any]]
    started: str | None = None

    def __post_init__(self) -> None:
        for one in self.replays:
            msgspec.convert(one.get("files"), dict[str, tuple[int, int]])


# -- the part of a dataflow from a step on -------------------------------------------------------------


def _from_step(flow: Dataflow, step: str) -> tuple[Dataflow, pa.Schema]:
    """Return the part of a dataflow that begins with a step, and the schema of the records that the step reads."""
    if step not in flow.nodes:
        raise ConfigError(
            f"the dataflow {flow.name!r} has no step {step!r}, which has rejected records; its steps are "
            f"{', '.join(flow.nodes)}"
        )
    if flow.nodes[step].kind == "source":
        first, origin = step, step
    else:
        first, origin = step, flow.inputs(step)[0].source
    kept, waiting = {first}, [first]
    while waiting:
        reached = [edge.target for edge in flow.edges if edge.source == waiting[-1]]
        waiting.pop()
        waiting += [name for name in reached if name not in kept]
        kept.update(reached)
    schema = flow.schemas()[origin]
    described = flow.to_dict()
    nodes = [node for node in described["nodes"] if node["id"] in kept]
    if origin not in kept:
        fields = [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in schema]
        declared = next(node for node in described["nodes"] if node["id"] == origin)
        nodes.insert(
            0, declared if declared["kind"] == "source" else {"id": origin, "kind": "source", "schema": fields}
        )
    edges = [
        e
        for e in described["edges"]
        if e["to"] in kept and (e["from"] in kept or (e["to"], e["from"]) == (first, origin))
    ]
    return Dataflow.from_dict({**described, "nodes": nodes, "edges": edges}), schema


def _stateful(flow: Dataflow) -> list[str]:
    return [node.id for node in flow.nodes.values() if isinstance(node.task, KeyedOperator)]


def _field(flow: Dataflow, step: str) -> str | None:
    """Return the field whose text a step that parses has rejected."""
    field = getattr(flow.nodes[step].task, "field", None)
    return field if isinstance(field, str) else None


def _records(rows: list[dict[str, Any]], schema: pa.Schema, field: str | None) -> Iterator[dict[str, Any]]:
    """Yield the records that a step had read: their fields as JSON, or the text of the field that it parses."""
    unknown = dict.fromkeys(_own_fields(schema))
    for row in rows:
        found = unknown | _fields(row["raw"], schema, field)
        found |= {"seq": row["seq"]} if row["seq"] is not None and "seq" in schema.names else {}
        if "event_time" in schema.names and row["event_time"] is not None:
            found["event_time"] = row["event_time"]
        yield {name: _value(value, schema.field(name).type) for name, value in found.items() if name in schema.names}


def _own_fields(schema: pa.Schema) -> list[str]:
    """Return the fields of records without their numbers and times."""
    return [n for n in schema.names if n not in ("seq", "event_time") and not is_ordinal(n)]


def _fields(raw: str | None, schema: pa.Schema, field: str | None) -> dict[str, Any]:
    wanted = set(_own_fields(schema))
    try:
        found = json.loads(raw or "null")
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, Mapping) and (field is None or wanted <= found.keys()):
        return dict(found)
    texts = (
        [field]
        if field is not None and field in wanted
        else [n for n in wanted if pa.types.is_string(schema.field(n).type)]
    )
    if raw is not None and len(texts) == 1:
        return {texts[0]: raw}
    return {}


def _value(value: Any, dtype: pa.DataType) -> Any:
    """Return a value of JSON in a form that the ingest step takes for the type; itself where there is none."""
    if not isinstance(value, str):
        return value
    try:
        if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
            return value.encode("utf-8", "surrogatepass")
        if pa.types.is_timestamp(dtype):
            return datetime.fromisoformat(value)
        if pa.types.is_date(dtype):
            return date.fromisoformat(value)
        if pa.types.is_time(dtype):
            return time.fromisoformat(value)
        if pa.types.is_decimal(dtype):
            return Decimal(value)
    except (ValueError, ArithmeticError):
        return value
    return value
