"""The sources and sinks of a submitted dataflow, as text and as JSON.

A source is a generated stream (``{"stream": "city", "rate": 500}``), a file (``{"file": "readings.csv"}``) or a
subscription (``{"mqtt": {"url": …, "topics": […]}}``); a sink is a folder of files (``{"folder": "out"}``), a
broker (``{"mqtt": {"url": …, "topic": …}}``) or nothing (``{"discard": true}``). A plain text names a stream or a
file; for a sink it names a folder, or is ``discard``. Secrets must be ``{"env": NAME}``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from riot_ops import streams
from riot_ops.connectors.mqtt.sink import MQTTSink
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.parameters import parameters_from_json
from riot_ops.core.paths import local_path
from riot_ops.core.schema import RAW
from riot_ops.core.sink import CallbackSink, Sink
from riot_ops.core.source import Source, WrappedSource
from riot_ops.core.text_sinks import FILE_SINKS
from riot_ops.ingest.files import read
from riot_ops.ingest.pace import paced

__all__ = ["DISCARD", "make_sink", "make_source", "parse_endpoint"]

DISCARD = "discard"


def parse_endpoint(value: Any, name: str, kind: str) -> dict[str, Any]:
    """Parse a source or sink into an object, with absolute paths.

    Parameters
    ----------
    value : text or dict
        A text that begins with ``{`` is JSON.
    name : str
        Name of the source or sink, for errors.
    kind : "source" or "sink"

    Examples
    --------
    >>> parse_endpoint("city", "in", "source"), parse_endpoint("/data/a.csv", "in", "source")
    ({'stream': 'city'}, {'file': '/data/a.csv'})
    >>> parse_endpoint("/results", "out", "sink")
    {'folder': '/results'}
    >>> parse_endpoint('{"stream": "taxi", "rate": 100}', "in", "source")
    {'stream': 'taxi', 'rate': 100}
    """
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError as error:  # the message leaves out the text, which may contain a password
            raise ConfigError(f"{kind} {name}: not JSON: {error}") from None
    if isinstance(value, str):
        if kind == "source":
            value = {"stream" if value in streams.CATALOG else "file": value}
        else:
            value = {"discard": True} if value == DISCARD else {"folder": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{kind} {name} must be a text or an object, got {type(value).__name__}")
    endpoint = dict(value)
    for key in ("file", "folder"):
        if key in endpoint:
            endpoint[key] = str(local_path(endpoint[key], name).absolute())
    return endpoint


def make_source(name: str, endpoint: Mapping[str, Any], schema: pa.Schema, spools: Path) -> Source:
    """Make a source; messages of a broker are spooled to files in ``spools``."""
    forms: dict[str, Callable[..., Source]] = {
        "stream": _generated,
        "file": lambda file, **more: _file(file, schema, **more),
        "mqtt": lambda mqtt: _subscription(mqtt, spools),
    }
    source: Source = _make(f"source {name}", endpoint, forms)
    return source


def make_sink(name: str, endpoint: Mapping[str, Any]) -> Sink:
    """Make a sink."""
    forms: dict[str, Callable[..., Sink]] = {
        "folder": _folder,
        "mqtt": lambda mqtt: MQTTSink(**parameters_from_json(MQTTSink, "mqtt", mqtt)),
        "discard": lambda discard: CallbackSink(_discard),
    }
    sink: Sink = _make(f"sink {name}", endpoint, forms)
    return sink


def _make(label: str, endpoint: Mapping[str, Any], forms: Mapping[str, Callable[..., Any]]) -> Any:
    chosen = [name for name in forms if name in endpoint]
    if len(chosen) != 1:
        hint = did_you_mean(next(iter(endpoint), ""), forms)
        raise ConfigError(f"{label} must have one of {', '.join(forms)}, got {', '.join(endpoint) or 'nothing'}{hint}")
    try:
        return forms[chosen[0]](**endpoint)
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None
    except TypeError as error:
        raise ConfigError(f"{label}: {value_text(str(error).partition(') ')[2] or str(error))}") from None


def _folder(folder: str, format: str = "parquet", **options: Any) -> Sink:
    if format not in FILE_SINKS:
        raise ConfigError(f"format must be {' or '.join(FILE_SINKS)}, got {format!r}")
    return FILE_SINKS[format](folder, **options)


def _generated(stream: str, rate: float | None = None, speed: float | None = None, **options: Any) -> Source:
    return paced(streams.generate(stream, **options), speed, rate)


def _file(
    file: str, schema: pa.Schema, rate: float | None = None, speed: float | None = None, **options: Any
) -> Source:
    path = Path(file)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ConfigError(f"file must be a file or a folder, got {file!r}, which cannot be read twice")
    lines = set(schema.names) == set(RAW.names) and path.suffix != ".parquet"
    source: Source = streams.replay(file, **options) if lines else read(file, **options)
    return paced(source, speed, rate)


def _subscription(settings: Any, spools: Path) -> Source:
    """Make a subscription with a client id and a spool that follow from its settings, so a restart finds them."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"mqtt must be an object, got {type(settings).__name__}")
    source = MQTTSource(
        **parameters_from_json(MQTTSource, "mqtt", {"client_id": "riot_ops", "spool": str(spools), **settings})
    )
    chosen = {name: getattr(source, name) for name in ("client_id", "spool") if name in settings}
    identity = json.dumps([source.description(), chosen], sort_keys=True)
    name = "riot_ops-" + hashlib.sha256(identity.encode()).hexdigest()[:16]
    subscription = replace(source, **{"client_id": name, "spool": str(spools / name), **chosen})
    return _ExplicitSubscription(subscription, chosen) if chosen else subscription


class _ExplicitSubscription(WrappedSource):
    """A subscription with a chosen client id or spool, shared only by dataflows that chose the same."""

    def __init__(self, source: Source, chosen: Mapping[str, Any]) -> None:
        super().__init__(source)
        self.chosen = chosen

    def description(self) -> dict[str, Any] | None:
        known = self.source.description()
        return None if known is None else {**known, **self.chosen}


def _discard(stream: str, batch: pa.RecordBatch) -> None:
    pass
