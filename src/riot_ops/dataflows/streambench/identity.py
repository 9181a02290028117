"""Identity: records passed through unchanged."""

from __future__ import annotations

from riot_ops import tasks as t
from riot_ops.core.parameters import check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["identity"]


def identity() -> Dataflow:
    r"""Build Identity: lines → the same lines; measures the cost of reading and writing alone.

    Its result stream is ``records``, with the field ``payload``: the bytes of the line, unchanged.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench: towards benchmarking modern distributed stream computing
       frameworks*, UCC 2014.

    Examples
    --------
    >>> identity().run([{"payload": b"7\triver"}])["records"]["payload"].to_pylist()
    [b'7\triver']
    """
    check_arguments(identity, locals())
    flow = Dataflow("identity")
    return flow.sink("records_sink", flow.source("lines").shuffle().to(t.NoOp(), id="records"))
