"""Grep: the records that contain a text."""

from __future__ import annotations

from riot_ops import tasks as t
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["grep"]


def grep(*, text: str = "ihiza", invert: bool = False) -> Dataflow:
    """Build Grep: lines → lines that contain a text.

    Its result stream is ``matches``, with the field ``payload``.

    Parameters
    ----------
    text : str, default "ihiza"
        Text to find, case-sensitive; every line contains the empty text. The default is a word that about one in a
        hundred generated searches contain.
    invert : bool, default False
        Whether to keep the lines that do not contain it.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> lines = [{"payload": line} for line in (b"red river", b"River", b"rivers")]
    >>> grep(text="river").run(lines)["matches"]["payload"].to_pylist()
    [b'red river', b'rivers']
    """
    check_arguments(grep, locals())
    flow = Dataflow("grep")
    condition = f"{text!r} {'not in' if invert else 'in'} payload"
    found = flow.source("lines").shuffle().to(t.Filter(condition), id="matches")
    return flow.sink("matches_sink", found)
