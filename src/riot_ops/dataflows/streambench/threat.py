"""Threat detection: classify the flows of a network as normal or attacks."""

from __future__ import annotations

import functools
from datetime import timedelta
from importlib.resources import files
from typing import Any

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Natural, check_arguments, duration
from riot_ops.dataflow import Dataflow, Stream
from riot_ops.models import NetworkModel, fit_network
from riot_ops.streams.streambench.flow_packets import CLASSES, ICMP, TCP, UDP
from riot_ops.streams.streambench.flows import FEATURES, FLAGS, SMALL, FlowsSource

__all__ = ["packaged_model", "threat", "train_model"]

#: File of the default model, written by ``tools/train_threat.py``.
MODEL_FILE = "threat.model"
#: Numeric cells of a packet line, by position.
PACKET_FIELDS = {"sport": 3, "dport": 4, "proto": 5, "length": 6, "flags": 7, "ttl": 8}
#: The values that these fields of a header can have.
PACKET_BOUNDS = {
    **dict.fromkeys(("sport", "dport", "length"), (0, 0xFFFF)),
    **dict.fromkeys(("proto", "flags", "ttl"), (0, 0xFF)),
}
KEY = ("src", "dst")

#: Aggregates of a window of packets that describe a flow; rates are derived from them afterwards.
FLOW_AGGREGATES: dict[str, Any] = {
    "packets": "count",
    "bytes": ("length", "sum"),
    "length_mean": ("length", "mean"),
    "length_std": ("length", "std", 0.0),
    "length_min": ("length", "min"),
    "length_max": ("length", "max"),
    "gap_mean": (None, "mean_gap", 0.0),
    "gap_std": (None, "std_gap", 0.0),
    "duration": "duration",
    "source_ports": ("sport", "unique"),
    "target_ports": ("dport", "unique"),
    **{f"{name}_share": ("proto", "share", "==", number) for name, number in (("tcp", TCP), ("udp", UDP))},
    "icmp_share": ("proto", "share", "==", ICMP),
    **{name: ("flags", "matches", "&", bit) for name, bit in FLAGS.items()},
    "ttl_mean": ("ttl", "mean"),
    "small_share": ("length", "share", "<", SMALL),
}


def threat(
    *,
    from_packets: bool = False,
    model: str | None = None,
    training_flows: Natural = 0,
    seed: int = 1,
    labelled: bool = True,
    window: timedelta | str = "2s",
    allowed_lateness: timedelta | str = "0s",
) -> Dataflow:
    """Build threat detection: flows → features → a neural network → class of each flow: normal, dos or scan.

    Twenty-four features describe a flow. The source is ``flows``, whose lines have these features; or ``packets``,
    whose headers are aggregated by source and destination over windows of two seconds; a header with a value that its
    field cannot have, such as a port of 70,000, is an error. The result stream is
    ``threats``, a record per flow with ``src``, ``dst``, ``class``, ``class_index``, ``class_probability``, and, where
    the input has it, the index of the true class as ``label``.

    Parameters
    ----------
    from_packets : bool, default False
        Whether a line is a packet, as in the stream ``traffic``, or a flow, as in ``flows``.
    model : str, optional
        Path of a network's file, or its JSON. By default the model that comes with the library, trained on 7,000
        generated flows.
    training_flows : int >= 0, default 0
        Instead of using a model, train a network on this number of generated flows when the dataflow is built (needs
        the extra ``ml``).
    seed : int, default 1
        Seed of these flows and of the training.
    labelled : bool, default True
        Whether the last cell has the true class; without labels, further cells of a line are ignored.
    window : timedelta or text, default "2s"
        With packets: length of a window.
    allowed_lateness : timedelta or text, default "0s"
        With packets: how far a packet may lag behind the others.

    References
    ----------
    .. [1] M. Andreoni Lopez, A. Lobato, O. Duarte, *A performance comparison of open-source stream processing
       platforms*, GLOBECOM 2016.

    Examples
    --------
    >>> from riot_ops.streams.streambench import FlowsSource
    >>> found = threat().run(FlowsSource(messages=3))["threats"].to_pylist()
    >>> [(row["src"], row["class"], row["label"]) for row in found]
    [('10.0.0.0', 'normal', 0.0), ('10.0.158.55', 'normal', 0.0), ('10.0.60.110', 'dos', 1.0)]
    """
    check_arguments(threat, locals())
    if training_flows and model is not None:
        raise ConfigError(f"model = {model!r} is trained already; leave out training_flows = {training_flows!r}")
    for name, value, usual, used, where in (
        ("seed", seed, 1, training_flows, "training_flows > 0"),
        ("window", window, "2s", from_packets, "from_packets = True"),
        ("allowed_lateness", allowed_lateness, "0s", from_packets, "from_packets = True"),
    ):
        standard = value in (usual, duration(usual) if isinstance(usual, str) else usual)
        if not standard and not used:
            raise ConfigError(f"{name} = {value!r} needs {where}; otherwise it must be {usual!r}")
    if model is None:
        model = train_model(training_flows, seed) if training_flows else packaged_model()
    flow = Dataflow("threat")
    vectors = _from_packets(flow, labelled, window, allowed_lateness) if from_packets else _from_lines(flow, labelled)
    judge = t.Classify(inputs=FEATURES, classes=CLASSES, model=model, probability=True)
    result_fields = (*KEY, "class", "class_index", "class_probability", *(("label",) if labelled else ()))
    threats = vectors.to(judge, id="judge").to(t.Project(fields=result_fields), id="threats")
    return flow.sink("threats_sink", threats)


def _from_lines(flow: Dataflow, labels: bool) -> Stream:
    """Build the steps that read flows from lines."""
    fields: dict[str, Any] = {"event_time": (0, "s"), "src": (1, "string"), "dst": (2, "string")}
    fields |= {name: (3 + i, "double") for i, name in enumerate(FEATURES)}
    return flow.source("flows").shuffle().to(_parser(fields, labels, 3 + len(FEATURES)), id="parse")


def _from_packets(flow: Dataflow, labels: bool, length: Any, allowed_lateness: Any) -> Stream:
    """Build the steps that aggregate packets to flows."""
    fields: dict[str, Any] = {"event_time": (0, "us"), "src": (1, "string"), "dst": (2, "string")}
    fields |= {name: (cell, "int64") for name, cell in PACKET_FIELDS.items()}
    aggregates = FLOW_AGGREGATES | ({"label": ("label", "max")} if labels else {})
    window, ordered = (
        t.Window(by=KEY, aggregates=aggregates, frame=length),
        t.SortByEventTime(by=KEY, allowed_lateness=allowed_lateness),
    )
    valid = t.RangeFilter(by=None, bounds=PACKET_BOUNDS, on_error="reject")
    headers = flow.source("packets").shuffle().to(_parser(fields, labels, 9), id="parse").to(valid, id="check")
    packets = headers.partition_by(*KEY)
    if ordered.allowed_lateness:  # gaps are measured between packets in the order in which they were sent
        packets = packets.to(ordered, id="ordered")
    flows = packets.to(window, id="flows")
    rates = {f"{unit}_rate": f"0.0 if duration == 0.0 else {unit}s / duration" for unit in ("packet", "byte")}
    return flows.to(t.Compute(rates), id="rates")


def _parser(fields: dict[str, Any], labels: bool, cells: int) -> t.ParseLines:
    return t.ParseLines(
        schema=fields | ({"label": (cells, "double")} if labels else {}), cells=cells + labels, more=not labels
    )


@functools.lru_cache(maxsize=4)
def train_model(flows: int, seed: int) -> str:
    """Train a network on generated flows, and return its JSON."""
    x, label = FlowsSource(seed=seed, records=flows).vectors()
    names = [CLASSES[i] for i in label]
    return fit_network(x, names, FEATURES, "threat", classes=CLASSES, seed=seed).to_json()


@functools.cache
def packaged_model() -> str:
    """Return the JSON of the network that comes with the library."""
    found = files("riot_ops.dataflows.streambench").joinpath(MODEL_FILE)
    return NetworkModel.from_bytes(found.read_bytes(), f" {MODEL_FILE}").to_json()
