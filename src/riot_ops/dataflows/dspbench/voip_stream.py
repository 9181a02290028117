"""VoIP stream: score callers by how much they behave like telemarketers."""

from __future__ import annotations

import math
import sys
from datetime import timedelta
from typing import Any, Literal

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Count, Positive, check_arguments
from riot_ops.core.secret import Secret
from riot_ops.dataflow import Dataflow, Stream, merge
from riot_ops.dataflows.dspbench import operators

__all__ = ["voip_stream"]

#: The halves of a call, ``caller,callee,time,caller;callee;time;seconds;established``: its cells up to the second
#: caller, and from it on. Each half has one kind of delimiter, so that each delimiter is valid only in its place.
HALVES = {"ends": ((0, 3), "string"), "record": ((3, 7), "string")}
ENDS = {"caller": (0, "string"), "callee": (1, "string"), "event_time": (2, "iso"), "timestamp": (2, "iso")}
RECORD = {"answered": (2, "iso"), "duration": (3, "double"), "established": (4, "bool")}
KEY, PAIR = ("caller",), ("caller", "callee")
#: Field with the result of each branch for a call, until the branches are joined.
VALUE = "value"
#: First calls, whose durations are averaged with equal weights.
WARMUP = 10


def voip_stream(
    *,
    exact: bool = True,
    variation_capacity: Count = 180_000,
    variation_error: Positive = 0.01,
    capacity: Count = 180_000,
    per_element: Count = 10,
    per_word: Count = 16,
    decay: Positive = 0.9672,
    decay24: Positive = 0.9917,
    fofir_ramp: tuple[float, float] = (2.0, 10.0),
    fofir_weight: float = 2.0,
    url_ramp: tuple[float, float] = (0.5, 1.0),
    url_weight: float = 3.0,
    acd_ramp: tuple[float, float] = (5.0, 10.0),
    acd_weight: float = 3.0,
    acd_span: Positive = 86_400.0,
    acd_mode: Literal["long", "short"] = "long",
    ramp: Literal["linear", "ratio"] = "linear",
    timeout: timedelta | str | None = "1h",
    threshold: float | None = None,
    secret: Secret | None = None,
) -> Dataflow:
    """Build VoIP stream (VS): calls → rates of the caller → three scores → total score, from 0 to 8 by default.

    For each established call, the caller's rates of established calls (``ecr``), of received calls (``rcr``) and of
    calls to new callees (``encr``) give two scores: ``fofir``, the ratio of outgoing to incoming calls, and ``url``,
    the share of outgoing calls to new callees. ``acd`` compares the duration of calls to new callees with the mean
    duration of all calls.

    The source is ``calls``, the result stream ``scores``, with the fields ``caller``, ``timestamp``, ``fofir``,
    ``url``, ``acd`` and ``score``.

    Parameters
    ----------
    exact : bool, default True
        Whether state is kept exactly, per number. Else it is kept in Bloom filters, as in the benchmark: of fixed size,
        but each filter serves all numbers and hence runs on one instance. The parameters up to ``per_word``
        configure the filters.
    variation_capacity, variation_error : int and float, default 180,000 and 0.01
        Number of caller-callee pairs that are remembered, and the share of new ones that count as repeated, see
        :class:`riot_ops.tasks.Deduplicate`.
    capacity, per_element, per_word : int, default 180,000, 10 and 16
        Sizes of the filters for rates, see :class:`~riot_ops.dataflows.dspbench.operators.DecayingRate`.
    decay, decay24 : float, default 0.9672 and 0.9917
        Decay per second of the rates of calls, and of the rates that ``acd`` compares.
    fofir_ramp, url_ramp, acd_ramp : pair of float, default (2, 10), (0.5, 1) and (5, 10)
        Ratio above which the score rises from 0, and ratio from which on it is 1.
    fofir_weight, url_weight, acd_weight : float, default 2, 3 and 3
        Weight of each score in the total.
    acd_span : float, default 86,400
        Number of calls that the mean duration of all calls spans.
    acd_mode : "long" or "short", default "long"
        Whether long calls score high, as in the benchmark, or short calls, as made by telemarketers: then ``acd`` is 1
        minus the ratio, and ``acd_ramp`` is ignored.
    ramp : "linear" or "ratio", default "linear"
        Whether a ratio is interpolated between the ends of its ramp, or divided by the upper end (as in the reference
        implementation).
    timeout : timedelta, text such as "1h", or None, default "1h"
        How long a score waits for the other scores of its call.
    threshold : float, optional
        Minimum score to emit.
    secret : Secret, optional
        With ``exact=False``: keys the hashes of the Bloom filters, see :class:`riot_ops.tasks.Deduplicate`.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.
    .. [2] G. Bianchi, N. d'Heureuse, S. Niccolini, *On-demand time-decaying Bloom filters for telemarketer detection*,
       ACM SIGCOMM Computer Communication Review 41(5), 2011.

    Examples
    --------
    >>> import pyarrow as pa
    >>> calls = [f"17,4{i},2024-05-01T12:00:0{i},17;4{i};2024-05-01T12:00:0{i};9;true".encode() for i in range(3)]
    >>> scores = voip_stream().run(pa.table({"payload": calls, "event_time": pa.nulls(3)}))["scores"]
    >>> [(row["caller"], row["fofir"], row["url"], row["score"]) for row in scores.to_pylist()]
    [('17', 1.0, 1.0, 5.0), ('17', 1.0, 1.0, 5.0), ('17', 1.0, 1.0, 5.0)]
    """
    check_arguments(voip_stream, locals())
    if secret is not None and exact:
        raise ConfigError("secret needs exact=False; exact state has no hashes")

    def rate(beta: float, key: str = "caller", **parameters: Any) -> operators.DecayingRate:
        if exact:
            return operators.DecayingRate(by=(key,), decay=beta, output=VALUE, **parameters)
        sizes: dict[str, Any] = {
            "capacity": capacity,
            "per_element": per_element,
            "per_word": per_word,
            "secret": secret,
        }
        return operators.DecayingRate(fields=(key,), decay=beta, output=VALUE, **sizes, **parameters)

    def joined(name: str, *pieces: str) -> Stream:
        streams = merge(*(flow.stream(f"{piece}_of_call") for piece in pieces)).partition_by(*KEY)
        return streams.to(t.AssembleMessage(schema=None, fields=pieces, by=("seq", *KEY), timeout=timeout), id=name)

    def score(
        name: str, ends: tuple[float, float], parts: tuple[str, ...], falling: bool = False, undefined: float = 0.0
    ) -> None:
        """Score the ratio of the first part to the others on a linear ramp from 0 to 1."""
        low, high = (0.0, ends[1]) if ramp == "ratio" and not falling else ends
        if not (low < high and math.isfinite(high - low)):
            raise ConfigError(f"{name}_ramp must rise, and by a finite number, got {ends}")
        ratio = f"min(max(({' / '.join(parts)} - ({low!r})) / {high - low!r}, 0.0), 1.0)"
        zero = " or ".join(f"{part} == 0.0" for part in parts[1:])
        scored = t.Compute({VALUE: f"{undefined!r} if {zero} else {'1.0 - ' if falling else ''}{ratio}"})
        _piece(joined(f"{name}_parts", *parts).to(scored, id=name))

    flow = Dataflow("voip_stream")
    halves = flow.source("calls").to(t.ParseLines(schema=HALVES, delimiter=",;", cells=8), id="halves")
    ends = halves.to(t.ParseLines(field="ends", schema=ENDS, cells=4, keep=("record",)), id="ends_parse")
    record = t.ParseLines(field="record", schema=RECORD, delimiter=";", cells=5, keep=("caller", "callee", "timestamp"))
    parsed = ends.to(record, id="parse")
    lengths = t.RangeFilter(bounds={"duration": (0.0, sys.float_info.max)}, by=None, on_error="reject")
    pair: dict[str, Any] = (
        {"by": PAIR}
        if exact
        else {"fields": PAIR, "capacity": variation_capacity, "error": variation_error, "secret": secret}
    )
    calls = parsed.to(lengths, id="records") >> t.Project(fields=(*PAIR, "timestamp", "duration", "established"))
    varied = calls.partition_by(*PAIR).to(t.Deduplicate(flag="new_callee", **pair), "variation")
    established = t.Filter("established")
    outgoing = varied.to(established, id="established")

    _piece(outgoing.partition_by(*KEY).to(rate(decay), id="ecr"))
    _piece(
        _received(outgoing, rate(decay, "number", flag="called"))
        if exact
        else outgoing.to_single().to(rate(decay, "callee", asks=KEY), id="rcr")
    )
    _piece(outgoing.partition_by(*KEY).to(rate(decay, flag="new_callee"), id="encr"))
    _piece(outgoing.partition_by(*KEY).to(rate(decay24), id="ecr24"))
    _piece(outgoing.partition_by(*KEY).to(rate(decay24, flag="new_callee", weight="duration"), id="ct24"))
    mean = t.ExponentialAverage(value="duration", output=VALUE, span=acd_span, warmup=WARMUP)
    lasted = (
        varied.to_single()
        .to(mean, id="global_acd")
        .to(t.Project(fields=("caller", "timestamp", "established", VALUE)), "lasted")
    )
    _piece(lasted.to(established, id="lasted_established"), "global_acd")

    score("fofir", fofir_ramp, ("ecr", "rcr"), undefined=1.0)
    score("url", url_ramp, ("encr", "ecr"))
    short = acd_mode == "short"
    score("acd", (0.0, 1.0) if short else acd_ramp, ("ct24", "ecr24", "global_acd"), falling=short)
    weights = {"fofir": fofir_weight, "url": url_weight, "acd": acd_weight}
    scores = joined("scores_parts", *weights).to(
        t.Compute({"score": " + ".join(f"({weight!r}) * {name}" for name, weight in weights.items())}),
        id="scores" if threshold is None else "totals",
    )
    if threshold is not None:
        scores = scores.to(t.RangeFilter(bounds={"score": (threshold, sys.float_info.max)}, by=None), id="scores")
    return flow.sink("scores_sink", scores)


def _piece(stream: Stream, name: str = "") -> None:
    """Label a node's result for a call, so that it can be joined with the others."""
    name = name or stream.id
    label = t.Project(fields=("caller", "timestamp", VALUE), constants=(("obs_type", name),))
    stream.to(label, id=f"{name}_of_call")


def _received(outgoing: Stream, rate: operators.DecayingRate) -> Stream:
    """Build the rate of received calls: each call first counts for the callee, then queries the caller's rate."""
    ends = t.Unpivot(
        fields=("callee", "caller"),
        labels=(True, False),
        variable_name="called",
        value_name="number",
        keep=("caller", "timestamp"),
    )
    rates = outgoing.to(ends, id="ends").partition_by("number").to(rate, id="ends_rcr")
    return rates.to(t.Filter("not called"), id="rcr")
