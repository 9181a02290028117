"""Write generated streams to files, which :func:`~riot_ops.ingest.replay.replay` reads."""

from __future__ import annotations

import gzip
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from riot_ops.core.errors import ConfigError
from riot_ops.core.paths import local_path
from riot_ops.core.source import Source
from riot_ops.ingest.pace import PacedSource
from riot_ops.streams.generator import GeneratedSource
from riot_ops.streams.indexed import IndexedSource

__all__ = ["write"]


@contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    """Open a file that takes its name when it is complete; a device or a pipe is written directly."""
    direct = path.exists() and not path.is_file()
    target = path if direct else path.resolve()
    hidden = target if direct else target.with_name(f".{target.name}.{uuid.uuid4().hex}.new")
    try:
        with open(hidden, "wb") as file:
            if path.suffix == ".gz":
                with gzip.GzipFile(path.name.removesuffix(".gz"), "wb", fileobj=file) as packed:
                    yield packed
            else:
                yield file
        if not direct:
            os.replace(hidden, target)
    except BaseException:
        if not direct:
            hidden.unlink(missing_ok=True)
        raise


def write(source: Source, path: str | Path, messages: int | None = None) -> int:
    """Write a stream's messages to a file, one line each; returns their number.

    Parameters
    ----------
    source : generated source, or one whose records have a ``payload``
        A paced source is written without waiting.
    path : str or Path
        The file, replaced if it exists; compressed if its name ends in ``.gz``.
    messages : int, optional
        Maximum number of messages; required for a stream without end.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from riot_ops.streams.riotbench.city import city
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "city.csv"
    >>> write(city(sensors=90), file, messages=1000), len(file.read_bytes().splitlines())
    (1000, 1000)
    """
    while isinstance(source, PacedSource):
        source = source.source
    start = source.initial()
    if messages is None and isinstance(source, IndexedSource) and source.messages is None:
        raise ConfigError("the stream has no end: say how many messages to write")
    if not isinstance(source, GeneratedSource) and "payload" not in source.schema.names:
        raise ConfigError("only text can be written: the source has no field 'payload'")
    written = 0
    path = local_path(path)
    with _replacing(path) as file:
        if isinstance(source, GeneratedSource):
            end = source.latest(start, messages)["message"]
            step = source.rows_per_batch["senml"]
            for first in range(0, end, step):
                batch = source.lines(first, min(first + step, end), newline=True)
                file.write(batch.column("payload").buffers()[2])
            return int(end)
        while messages is None or written < messages:
            following = source.latest(start, 65_536 if messages is None else min(65_536, messages - written))
            if following == start:
                break
            for split in source.splits(start, following, 1):
                for batch in source.read(split):
                    lines = [line.rstrip(b"\r\n") for line in batch.column("payload").to_pylist() if line is not None]
                    file.write(b"\n".join([*lines, b""]))
                    written += batch.num_rows
            start = following
    return written
