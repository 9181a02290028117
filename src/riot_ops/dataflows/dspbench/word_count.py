"""Word count: the running count of each word."""

from __future__ import annotations

from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["word_count"]


def word_count(
    *,
    lowercase: bool = False,
    unicode: bool = False,
    emit: Literal["each", "update"] = "each",
    encoding: str = "utf-8",
) -> Dataflow:
    """Build word count (WC): lines of text → words → running count of each word.

    Its result stream is ``counts``, with the fields ``word`` and ``count``.

    Parameters
    ----------
    lowercase : bool, default False
        Whether "River" and "river" are one word.
    unicode : bool, default False
        Whether words consist of Unicode letters and digits; else of ASCII letters, digits and underscores.
    emit : "each" or "update", default "each"
        Emit the count at every word, as in the benchmark, or at the last occurrence of each word in a batch, see
        :class:`riot_ops.tasks.RunningCount`.
    encoding : str, default "utf-8"
        Encoding of the lines, by a name that Python knows; "latin-1" reads any bytes. A line that is not in it goes to
        the errors stream.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lines = pa.table({"payload": [b"River cloud, river.", b"", b"a river"], "event_time": pa.nulls(3)})
    >>> counts = word_count(lowercase=True).run(lines)["counts"]
    >>> [(row["word"], row["count"]) for row in counts.to_pylist()]
    [('river', 1), ('cloud', 1), ('river', 2), ('a', 1), ('river', 3)]
    """
    check_arguments(word_count, locals())
    flow = Dataflow("word_count")
    words = (
        flow.source("lines")
        .shuffle()
        .to(t.Tokenize(lowercase=lowercase, unicode=unicode, encoding=encoding), id="split")
    )
    counts = words.partition_by("word").to(t.RunningCount(by=("word",), emit=emit), id="counts")
    return flow.sink("counts_sink", counts)
