"""Sample: a random share of the records."""

from __future__ import annotations

from riot_ops import tasks as t
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["sample"]


def sample(*, share: float = 0.1, seed: int = 0) -> Dataflow:
    """Build Sample: lines → a share of the lines, chosen by a hash of their number.

    Its result stream is ``records``, with the field ``payload``. The sample depends neither on the runner nor on how
    the stream is cut: every engine with the same hash draws the same sample.

    Parameters
    ----------
    share : float, 0 to 1, default 0.1
        Expected share of the lines to keep. A smaller sample is a subset of a larger one.
    seed : int, default 0
        Seed of the hash, see :class:`riot_ops.tasks.SampleByHash`.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> lines = [{"payload": bytes([65 + i])} for i in range(26)]
    >>> b"".join(sample(share=0.3).run(lines)["records"]["payload"].to_pylist())
    b'JKMPRU'
    """
    check_arguments(sample, locals())
    flow = Dataflow("sample")
    chosen = flow.source("lines").shuffle().to(t.SampleByHash(share=share, seed=seed), id="records")
    return flow.sink("records_sink", chosen)
