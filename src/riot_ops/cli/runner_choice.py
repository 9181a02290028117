"""The choice between the two runners where ``riot-ops run`` is given none."""

from __future__ import annotations

import glob
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from riot_ops.core.storage import Address

__all__ = ["MAX_LOCAL_BYTES", "MAX_LOCAL_MESSAGES", "RUNNERS", "choose_runner", "is_small"]

RUNNERS = ("auto", "spark", "local")
#: The largest input that runs in this process unless Spark is asked for. Such a run takes seconds, as the start of
#: Spark does.
MAX_LOCAL_MESSAGES, MAX_LOCAL_BYTES = 1_000_000, 256 << 20
#: Packed and columnar files count as so many times their bytes.
EXPANSION = 8
PACKED = (".gz", ".parquet")


def choose_runner(
    small: bool | None, *, option: str | None = None, earlier: str | None = None, address: bool = False
) -> tuple[str, str]:
    """Return the runner, and a sentence that says why it is that one.

    Parameters
    ----------
    small : bool or None
        Whether the input is small; None if its size is not known.
    option : str, optional
        An option that only Spark has.
    earlier : str, optional
        The runner of the run that is continued.
    address : bool, default False
        Whether the checkpoint is in a store, where only a run in process keeps its own.

    Examples
    --------
    >>> choose_runner(True)
    ('local', 'running in this process, as the input is small (--runner spark: on Spark)')
    >>> choose_runner(True, earlier="spark")
    ('spark', 'continuing on Spark')
    """
    here, there = "running in this process, as", "running on Spark, as"
    if option is not None:
        return "spark", f"{there} {option} is for it"
    if earlier in ("spark", "local"):
        return earlier, f"continuing {'on Spark' if earlier == 'spark' else 'in this process'}"
    if address:
        return "local", f"{here} --checkpoint is in a store"
    if importlib.util.find_spec("pyspark") is None:
        return "local", f"{here} Spark is not installed"
    if small:
        return "local", f"{here} the input is small (--runner spark: on Spark)"
    reason = "the input's size is unknown" if small is None else "the input is large"
    return "spark", f"{there} {reason} (--runner local: in process)"


def is_small(inputs: Sequence[Path | Address]) -> bool | None:
    """Return whether files, folders and patterns of files are small; None if one of them is in a store."""
    size = 0
    for one in inputs:
        if isinstance(one, Address):
            return None
        for path in _files(one):
            try:
                size += os.path.getsize(path) * (EXPANSION if path.endswith(PACKED) else 1)
            except OSError:  # the run says what is wrong with it
                continue
            if size > MAX_LOCAL_BYTES:
                return False
    return True


def _files(path: Path) -> Iterator[str]:
    if path.is_file():
        yield str(path)
    elif path.is_dir():
        yield from (str(file) for file in path.rglob("*") if file.is_file())
    else:
        yield from glob.iglob(str(path))
