"""Spam filter: classify messages, with word counts learned from labelled messages."""

from __future__ import annotations

from typing import Any

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow, merge
from riot_ops.dataflows.dspbench import operators

__all__ = ["spam_filter"]


def spam_filter(
    *,
    table: str | None = None,
    training: bool = True,
    max_words: int = 15,
    threshold: float = 0.9,
    unknown: float = 0.4,
    min_probability: float = 0.01,
    emit_empty: bool = False,
    keep_table: bool = False,
) -> Dataflow:
    """Build the spam filter (SF): messages → words → spam counts of each word → classification of each message.

    It has two sources, ``training`` and ``analysis``: all training messages precede those to analyse. Its result stream
    is ``results``, with the fields ``id``, ``spam_probability`` and ``is_spam``.

    Parameters
    ----------
    table : str, optional
        Path of an initial table of words, see :class:`riot_ops.models.WordTable`.
    training : bool, default True
        Whether there is a source ``training``; without it, only the table is used.
    max_words : int >= 1, default 15
        Number of words of a message that count, the most significant ones.
    threshold : float, in (0, 1), default 0.9
        A message is spam if its probability exceeds the threshold.
    unknown : float, in (0, 1), default 0.4
        Probability of an unknown word.
    min_probability : float, in (0, 0.5), default 0.01
        Minimum probability of a known word; the maximum is ``1 - min_probability``.
    emit_empty : bool, default False
        Whether messages without a word get a result (0.5, not spam); else they go to the errors stream.
    keep_table : bool, default False
        Whether to add a stream ``table``: at the end, the counts of each word (``word``, ``count_bad``,
        ``count_good``), from which :meth:`riot_ops.models.WordTable.of` builds a table to save.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> def mails(*lines):
    ...     return pa.table({"payload": [line.encode() for line in lines], "event_time": pa.nulls(len(lines))})
    >>> known = ['{"id": "1", "message": "win cash", "spam": true}', '{"id": "2", "message": "we meet", "spam": false}']
    >>> asked = ['{"id": "3", "message": "Win, win!"}', '{"id": "4", "message": "shall we?"}']
    >>> result = spam_filter().run({"training": mails(*known), "analysis": mails(*asked)})["results"]
    >>> [(row["id"], round(row["spam_probability"], 2), row["is_spam"]) for row in result.to_pylist()]
    [('3', 0.99, True), ('4', 0.01, False)]
    """
    check_arguments(spam_filter, locals())
    if not training and table is None:
        raise ConfigError("training = False needs table, the path of a table of words")
    flow = Dataflow("spam_filter", merging="sequence")
    message: dict[str, Any] = {"id": ("id", "string"), "message": ("message", "quoted")}
    bag = operators.BagOfWords(field="message", keep=("spam",), whole=("id",), coded=True)
    streams = []
    if training:
        parse = t.ParseJSON(schema={**message, "spam": ("spam", "bool")})
        known = flow.source("training").shuffle().to(parse, id="parse_training")
        known = known.to(t.Project(fields=("message", "spam"), nulls={"id": "string"}), id="unnamed")
        streams.append(known.shuffle().to(bag, id="tokens_training"))
    asked = flow.source("analysis").shuffle().to(t.ParseJSON(schema=message), id="parse_analysis")
    asked = asked.to(t.Project(fields=("id", "message"), nulls={"spam": "bool"}), id="unlabelled")
    streams.append(asked.shuffle().to(bag, id="tokens_analysis"))
    tokens = merge(*streams).partition_by("word")
    counts = tokens.to(operators.CountSpamWords(table=table), id="counts")
    judge = operators.BayesScore(
        max_words=max_words,
        threshold=threshold,
        unknown=unknown,
        min_probability=min_probability,
        emit_empty=emit_empty,
    )
    flow.sink("results_sink", counts.partition_by("seq").to(judge, id="results"))
    if keep_table:
        flow.sink("table_sink", tokens.to(operators.CountSpamWords(table=table, emit="final"), id="table"))
    return flow
