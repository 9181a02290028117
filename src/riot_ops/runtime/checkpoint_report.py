"""What a checkpoint holds and whether it can be read, without running anything; for both runners.

Nothing is unpickled: offsets and manifests are JSON, states Arrow IPC, and files of Spark's state store are compared
with their checksums only.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from operator import eq
from pathlib import Path
from typing import Any

import msgspec

from riot_ops.core.errors import ConfigError, RiotError, StateError, excerpt
from riot_ops.core.paths import check_regular
from riot_ops.runtime.checkpoint import MANIFEST, Checkpoint
from riot_ops.runtime.snapshot import unpack_snapshot

__all__ = ["checkpoint_problems", "describe_checkpoint"]

#: Beginning of the files in which Hadoop keeps checksums of blocks.
CRC_MAGIC = b"crc\0"
#: Deepest nesting of a position that is shown, and its longest text.
MAX_DEPTH, MAX_TEXT = 20, 1000
#: Names of Spark's micro-batches and operators: numbers of Java.
NUMBER = re.compile(r"[0-9]{1,19}")
#: Spark's logs begin with their version.
LOG_VERSION = re.compile(r"v\d+")


def describe_checkpoint(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint holds, as JSON-able data.

    Parameters
    ----------
    folder : Path
        The folder given as ``checkpoint=``.

    Returns
    -------
    dict
        ``runner`` (``in process`` or ``spark``), ``committed`` (epochs or micro-batches), ``bytes``, ``dataflow`` (its
        parts), ``positions`` of the sources, ``steps`` with their state, and more of the runner.

    Raises
    ------
    ConfigError
        If the folder is no checkpoint.
    StateError
        If the newest checkpoint is damaged.
    """
    kind = _kind(folder)
    found = _describe_local(folder) if kind == "in process" else _describe_spark(folder)
    return {"runner": kind, "folder": str(folder), "bytes": _size(folder), **found}


def checkpoint_problems(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the files of a checkpoint, each with its path; nothing if all can be read."""
    if _kind(folder) == "in process":
        checkpoint = Checkpoint(folder)
        for path in checkpoint.paths():
            try:
                saved = checkpoint.read(path)
                for step, data in saved.state.items():
                    unpack_snapshot(data, f" of step {step!r} in {path}")
            except RiotError as error:
                yield str(error)
        return
    yield from dict.fromkeys(_spark_problems(folder))  # a file may fail its own sum and Hadoop's


def _kind(folder: Path) -> str:
    if (folder / MANIFEST).exists() or (folder / "offsets").is_dir():
        return "spark"
    if Checkpoint(folder).exists():
        return "in process"
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; give that of checkpoint=")
    raise ConfigError(f"{folder} is no checkpoint: it has neither state-*.msgpack nor offsets of a query on Spark")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# -- in process ----------------------------------------------------------------------------------------


def _describe_local(folder: Path) -> dict[str, Any]:
    checkpoint = Checkpoint(folder)
    paths = checkpoint.paths()
    saved = checkpoint.read(paths[-1])
    steps = {}
    for step, data in saved.state.items():
        identity, _, time, _, rows, _ = unpack_snapshot(data, f" of step {step!r} in {paths[-1]}")
        steps[step] = {"task": identity.get("task", ""), "state_rows": rows.num_rows, "bytes": len(data)}
        if time:
            steps[step]["stream_time_us"] = time[0]
    return {
        "file": paths[-1].name,
        "committed": saved.epoch,
        "ended": saved.ended,
        "dataflow": sorted(saved.flow),
        "positions": {name: _json_safe(offset) for name, offset in saved.offsets.items()},
        "steps": steps,
    }


def _json_safe(value: Any, depth: int = 0) -> Any:
    """Return an offset as JSON-able data: bytes, as the positions in files, by their size; long texts are cut."""
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, str):
        return excerpt(value, MAX_TEXT)
    if isinstance(value, dict | list | tuple) and depth == MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {excerpt(str(name), MAX_TEXT): _json_safe(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_safe(one, depth + 1) for one in value]
    return value


# -- Spark ---------------------------------------------------------------------------------------------


def _describe_spark(folder: Path) -> dict[str, Any]:
    committed, planned = _numbers(folder / "commits"), _numbers(folder / "offsets")
    manifest = _manifest(folder) if (folder / MANIFEST).exists() else {}
    ends: list[Any] = []
    if planned:
        last = committed[-1] if committed else planned[-1]
        ends = [_parsed(line) for line in _log(folder / "offsets" / str(last))[2:]]
    state = folder / "state"
    operators = [state / str(number) for number in _numbers(state)]
    flow = manifest.get("flow", {})
    keyed = [re.sub(r"^state of step '(.*)'$", r"\1", part) for part in manifest.get("state", {})]
    sources = [re.sub(r"^source '(.*)'$", r"\1", part) for part in flow if part.startswith("source ")]
    named = sources if len(sources) == len(ends) else [str(i) for i in range(len(ends))]
    return {
        "committed": committed[-1] + 1 if committed else 0,
        "planned": planned[-1] + 1 if planned else 0,
        "partitions": manifest.get("partitions"),
        "order": manifest.get("order"),
        "dataflow": sorted(flow),
        "positions": dict(zip(named, ends, strict=True)),
        "steps": {step: {"task": _task_of(flow.get(f"step {step!r}"))} for step in keyed},
        "state_bytes": {path.name: _size(path) for path in operators},
    }


def _task_of(step: Any) -> str:
    return str(step.get("task", "")) if isinstance(step, dict) else ""


def _parsed(line: str) -> Any:
    try:
        return _json_safe(json.loads(line))
    except (ValueError, RecursionError):
        return excerpt(line, MAX_TEXT)


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if NUMBER.fullmatch(path.name))


def _log(path: Path) -> list[str]:
    """Return the lines of a file of Spark's logs."""
    try:
        check_regular(path)
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"{path} cannot be read: {error}") from None
    if not LOG_VERSION.fullmatch(lines[0]):
        raise StateError(f"{path} is damaged: it does not begin with its version")
    return lines


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        check_regular(path)
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(f"{path} is damaged: {error}") from None
    parts = (found.get("flow", {}), found.get("state", {})) if isinstance(found, dict) else (None,)
    if not all(isinstance(part, dict) for part in parts) or "checksum" not in found:
        raise StateError(f"{path} is damaged: it is no manifest of a query")
    checksum, found["checksum"] = found["checksum"], 0
    later = ("run", "steps", "layout", "sources", "base")  # summed only if they hold something
    plain = {name: value for name, value in found.items() if value or name not in later}
    if zlib.crc32(msgspec.json.encode(plain)) != checksum:
        raise StateError(f"{path} is damaged: the checksum does not fit")
    return dict(found)


def _spark_problems(folder: Path) -> Iterator[str]:
    if (folder / MANIFEST).exists():
        try:
            _manifest(folder)
        except StateError as error:
            yield str(error)
    committed, planned = _numbers(folder / "commits"), _numbers(folder / "offsets")
    missing = sorted(set(committed) - set(planned))
    if missing and missing[-1] >= min(planned, default=0):
        yield f"{folder / 'offsets'} lacks micro-batch {missing[-1]}, which commits has"
    for name, numbers in (("offsets", planned), ("commits", committed)):
        for number in numbers:
            try:
                for line in _log(folder / name / str(number))[1:2]:
                    json.loads(line or "{}")
            except StateError as error:
                yield str(error)
            except (ValueError, RecursionError) as error:
                yield f"{folder / name / str(number)} is damaged: {error}"
    for path in sorted(folder.rglob("*")):
        try:
            if path.name.startswith(".") and path.suffix == ".crc":
                yield from _crc_problems(path)
            elif path.suffix == ".zip":
                yield from _zip_problems(path)
        except OSError as error:
            yield f"{path} cannot be read: {error}"


def _crc_problems(sums: Path) -> Iterator[str]:
    """Compare a file with the checksums of its blocks that Hadoop has written beside it."""
    path = sums.with_name(sums.name.removeprefix(".").removesuffix(".crc"))
    if not path.exists():
        return  # Spark removes a file before its checksums
    check_regular(path)
    check_regular(sums)
    known = sums.read_bytes()
    if not known.startswith(CRC_MAGIC) or len(known) < 8:
        yield f"{sums} is damaged: it holds no checksums"
        return
    (block,) = struct.unpack(">i", known[4:8])
    wanted = [one for (one,) in struct.iter_unpack(">I", known[8 : 8 + (len(known) - 8) // 4 * 4])]
    blocks = -(-path.stat().st_size // block) if block > 0 else -1
    if blocks != len(wanted) or not all(map(eq, _block_sums(path, block), wanted)):
        yield f"{path} is damaged: the checksum does not fit"


def _block_sums(path: Path, block: int) -> Iterator[int]:
    with open(path, "rb") as file:
        while data := file.read(block):
            yield zlib.crc32(data)


def _zip_problems(path: Path) -> Iterator[str]:
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    # an entry that is encrypted, packed in a way that Python lacks, or cut
    except (OSError, zipfile.BadZipFile, RuntimeError, EOFError, ValueError, struct.error, zlib.error) as error:
        yield f"{path} is damaged: {error}"
        return
    if broken is not None:
        yield f"{path} is damaged: the checksum of {broken} does not fit"
