"""Sentiment analysis: which tweets are glad, and which are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["sentiment_analysis"]


def sentiment_analysis(
    *,
    lexicon: str | None = None,
    mode: Literal["basic", "counts"] = "basic",
    phrases: bool = False,
    stop_words: str | Sequence[str] | None = None,
    neutral: bool = False,
    languages: Sequence[str] | None = ("en",),
    keep_unknown: bool = True,
) -> Dataflow:
    """Build sentiment analysis (SA): tweets → those in some languages → whether each is positive or negative.

    Its result stream is ``sentiment``, with the fields ``id``, ``sentiment`` and ``score``, and those of the tweet:
    ``text`` and ``lang``. Its event time is when the tweet was made.

    Parameters
    ----------
    lexicon : str, optional
        Path of a file of lines ``term<TAB>value``, such as AFINN; by default a small one of this library's own.
    mode : "basic" or "counts", default "basic"
        Whether the score is the sum of what the words are worth, or the number of positive words less that of negative
        ones, see :class:`riot_ops.tasks.LexiconSentiment`.
    phrases : bool, default False
        Whether terms of several words count as well.
    stop_words : str or sequence of str, optional
        Words that are left out, or the path of a file of them; by default those of the library with ``counts``.
    neutral : bool, default False
        With ``counts``: whether a score of 0 is neutral.
    languages : sequence of str or None, default ("en",)
        Languages that are judged; None: all.
    keep_unknown : bool, default True
        Whether tweets that do not tell their language are judged as well.

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
    fields = {
        "id": (("data.id", "id"), "string"),
        "event_time": (("data.created_at", "created_at"), "iso"),
        "text": (("data.text", "text"), "string"),
        "lang": (("data.lang", "lang"), "string", None),
    }
    tweets = flow.source("tweets").to(t.ParseJSON(fields=fields), id="parse").shuffle()
    if languages is not None:
        language = t.ValueFilter(field="lang", values=tuple(languages), keep_null=keep_unknown)
        tweets = tweets.to(language, id="language").shuffle()
    judge = t.LexiconSentiment(mode=mode, lexicon=lexicon, phrases=phrases, stop_words=stop_words, neutral=neutral)
    return flow.sink("sentiment_sink", tweets.to(judge, id="sentiment"))
