"""Sentiment analysis: classify tweets as positive or negative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.dspbench import operators
from riot_ops.dataflows.dspbench.trending_topics import TWEET, WRAPPER

__all__ = ["sentiment_analysis"]


def sentiment_analysis(
    *,
    lexicon: str | Mapping[str, float] | None = None,
    mode: Literal["basic", "counts"] = "basic",
    phrases: bool = False,
    stop_words: str | Sequence[str] | None = None,
    neutral: bool = False,
    languages: Sequence[str] | None = ("en",),
    keep_unknown: bool = True,
) -> Dataflow:
    """Build sentiment analysis (SA): tweets → tweets in given languages → positive or negative.

    Its result stream is ``sentiment``, with the fields ``id``, ``sentiment`` and ``score``, and the fields ``text`` and
    ``lang`` of the tweet. Its event time is the tweet's time of creation. A tweet has an ``id``, ``text``, which must
    be a string, and ``created_at``, an ISO 8601 time or a time such as ``Wed Oct 10 20:19:24 +0000 2018``, and may have
    a language, a string; all of them in the line itself, or in its object ``data``. Any other line goes to the errors
    stream.

    Parameters
    ----------
    lexicon : str or mapping of str to float, optional
        Values of terms, or path of a file of lines ``term<TAB>value``, such as AFINN; by default the library's
        small lexicon.
    mode : "basic" or "counts", default "basic"
        Whether the score is the sum of the words' values, or the number of positive minus the number of negative words,
        see :class:`~riot_ops.dataflows.dspbench.operators.LexiconSentiment`.
    phrases : bool, default False
        Whether terms of several words count.
    stop_words : str or sequence of str, optional
        Words to ignore, or the path of a file of them; by default, with ``counts``, the library's list.
    neutral : bool, default False
        With ``counts``: whether a score of 0 is neutral.
    languages : sequence of str or None, default ("en",)
        Languages to score; None: all.
    keep_unknown : bool, default True
        Whether to score tweets without a language.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> tweet = '{"id": "7", "created_at": "2020-11-20T04:30:00.097Z", "text": "What a great day!", "lang": "en"}'
    >>> lines = pa.table({"payload": [tweet.encode()], "event_time": pa.nulls(1)})
    >>> row = sentiment_analysis().run(lines)["sentiment"].to_pylist()[0]
    >>> row["id"], row["sentiment"], row["score"]
    ('7', 'Positive', 3.0)
    """
    check_arguments(sentiment_analysis, locals())
    flow = Dataflow("sentiment_analysis")
    fields = {**TWEET, "lang": ("lang", "quoted", None)}
    tweets = flow.source("tweets").to(t.ParseJSON(schema=fields, wrapper=WRAPPER), id="parse").shuffle()
    if languages is not None:
        known = f"lang in {tuple(languages)!r}"
        language = t.Filter(f"{known} or lang is None" if keep_unknown else known)
        tweets = tweets.to(language, id="language").shuffle()
    judge = operators.LexiconSentiment(
        mode=mode, lexicon=lexicon, phrases=phrases, stop_words=stop_words, neutral=neutral
    )
    return flow.sink("sentiment_sink", tweets.to(judge, id="sentiment"))
