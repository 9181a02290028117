"""Word count of StreamBench: words are separated by white space and not normalised."""

from __future__ import annotations

from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["wordcount"]


def wordcount(*, emit: Literal["each", "update"] = "each", encoding: str = "utf-8") -> Dataflow:
    r"""Build StreamBench's word count: lines → words between white space → running count of each word.

    Unlike DSPBench's word count, punctuation is part of a word. Its result stream is ``counts``, with the fields
    ``word`` and ``count``.

    Parameters
    ----------
    emit : "each" or "update", default "each"
        Emit the count at every word, or at the last occurrence of each word in a batch, see
        :class:`riot_ops.tasks.RunningCount`.
    encoding : str, default "utf-8"
        Encoding of the lines, by a name that Python knows. A line that is not in it goes to the errors stream.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> counts = wordcount().run([{"payload": b"river, river,\tcloud"}])["counts"]
    >>> [(row["word"], row["count"]) for row in counts.to_pylist()]
    [('river,', 1), ('river,', 2), ('cloud', 1)]
    """
    check_arguments(wordcount, locals())
    flow = Dataflow("wordcount")
    words = flow.source("lines").shuffle().to(t.Tokenize(split="spaces", encoding=encoding), id="split")
    counts = words.partition_by("word").to(t.RunningCount(by=("word",), emit=emit), id="counts")
    return flow.sink("counts_sink", counts)
