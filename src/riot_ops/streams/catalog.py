"""The four RIoTBench streams: their sensors, periods, message sizes and rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.schema import SCHEMAS, StreamSchema
from riot_ops.core.source import Source
from riot_ops.ingest import rates
from riot_ops.streams import dspbench, streambench
from riot_ops.streams.riotbench.city import city
from riot_ops.streams.riotbench.fit import fit
from riot_ops.streams.riotbench.grid import grid
from riot_ops.streams.riotbench.taxi import taxi
from riot_ops.streams.text_lines import TextLineSource

__all__ = ["CATALOG", "LINES", "CatalogEntry", "catalog_entry", "generate"]

#: The generated streams of lines by name.
LINES: dict[str, Callable[..., TextLineSource]] = {
    kind.stream: kind for suite in (dspbench, streambench) for kind in map(vars(suite).__getitem__, suite.__all__)
}
#: Maximum number of messages whose gaps are measured.
MAX_GAPS = 5_000_000


@dataclass(frozen=True)
class CatalogEntry:
    """A generated stream and how the benchmark drives it.

    Parameters
    ----------
    name : str
        Name of the stream and of its schema.
    generator : function
        Builds the source.
    counted : str
        The generator's parameter with the number of sensors.
    sensors : int
        The number that the benchmark's rates belong to. (It does not say how many meters there are:
        6,000 that report within ten minutes make its peak rate.)
    domain, period, distribution : str
        The measured quantity, the interval of reports, and the distribution of the message rate.
    curve : function of the speed-up
        Message rate over time in the benchmark.
    speed : float
        Event time per wall time in the benchmark.
    senml_bytes, csv_bytes : int
        Mean size of a message in the wire format (its time in front included) and as CSV.
    """

    name: str
    generator: Callable[..., Source]
    counted: str
    sensors: int
    domain: str
    period: str
    distribution: str
    curve: Callable[[float], rates.Curve]
    speed: float
    senml_bytes: int
    csv_bytes: int

    @property
    def schema(self) -> StreamSchema:
        """Columns, units, kinds and valid ranges."""
        return SCHEMAS[self.name]

    def describe(self, speed: float | None = None) -> dict[str, Any]:
        """Describe the stream as JSON-able data, with rates (per second) and gaps (ms) at a speed-up.

        >>> figures = CATALOG["fit"].describe()
        >>> figures["rate"]["mean"], figures["gap_ms"]["median"]
        (500.0, 2.0)
        """
        schema, at = self.schema, self.speed if speed is None else speed
        curve = self.curve(at)
        gaps = np.diff(rates.arrivals(curve, min(round(curve.total) + 1, MAX_GAPS))) * 1000
        shares = {"median": 50, "p95": 95, "p99": 99, "max": 100}
        return {
            "name": self.name,
            "domain": self.domain,
            "sensors": self.sensors,
            "parameter": self.counted,
            "period": self.period,
            "distribution": self.distribution,
            "bytes": {"senml": self.senml_bytes, "csv": self.csv_bytes},
            "rate": {
                "speed": at,
                "mean": round(curve.mean, 3),
                "std": round(float(curve.rates.std()), 3),
                "min": round(float(curve.rates.min()), 3),
                "max": round(float(curve.rates.max()), 3),
                "seconds": round(curve.duration, 3),
                "messages": round(curve.total),
            },
            "gap_ms": {
                "mean": round(float(gaps.mean()), 4),
                **{k: round(float(np.percentile(gaps, q)), 4) for k, q in shares.items()},
            },
            "fields": [
                {
                    "name": name,
                    "unit": schema.true_units.get(name, unit),
                    "label": unit,
                    "kind": kind,
                    "observed": name in schema.observed,
                    "bounds": list(schema.bounds[name]) if name in schema.bounds else None,
                }
                for name, unit, kind in zip(schema.columns, schema.units, schema.kinds, strict=True)
            ],
        }


CATALOG: dict[str, CatalogEntry] = {
    entry.name: entry
    for entry in (
        CatalogEntry(
            "city",
            city,
            "sensors",
            90,
            "urban sensing in seven cities",
            "10 s, 29 % lost",
            "narrow normal",
            rates.city,
            1000,
            381,
            85,
        ),
        CatalogEntry(
            "taxi",
            taxi,
            "taxis",
            20_355,
            "taxi trips in New York",
            "end of a trip",
            "bimodal: night and day",
            rates.taxi,
            1000,
            870,
            185,
        ),
        CatalogEntry(
            "fit",
            fit,
            "subjects",
            10,
            "body-worn sensors",
            "20 ms",
            "constant",
            rates.fit,
            1,
            1228,
            214,
        ),
        CatalogEntry(
            "grid",
            grid,
            "meters",
            6000,
            "smart electricity meters",
            "30 min",
            "bursts",
            rates.grid,
            1000,
            126,
            24,
        ),
    )
}


def catalog_entry(name: str) -> CatalogEntry:
    """Return a stream of the catalogue by its name.

    >>> catalog_entry("grid").counted
    'meters'
    """
    return _entry(name, CATALOG)


def _entry(name: str, known: Iterable[str]) -> CatalogEntry:
    """Return a stream of the catalogue; otherwise raise an error that lists the known names."""
    if name not in CATALOG:
        raise ConfigError(
            f"there is no generated stream {name!r}; there are {', '.join(known)}{did_you_mean(name, known)}"
        )
    return CATALOG[name]


def generate(name: str, sensors: int | None = None, **options: Any) -> Source:
    """Return a generated stream by its name; the options are those of its own function.

    Parameters
    ----------
    name : str
        city, taxi, fit or grid; or one of :data:`LINES`, lines of text.
    sensors : int, >= 1
        Number of sensors (taxis, subjects, meters) of the first four; default: that stream's own.

    >>> generate("grid", 100, messages=7)
    GridSource(burst_seconds=600.0, messages=7, seed=0, format='senml', meters=100, dirt=True)
    """
    if name in LINES:
        if sensors is not None:
            raise ConfigError(f"the stream {name!r} has no sensors; got {sensors!r}")
        return LINES[name](**options)
    entry = _entry(name, (*CATALOG, *LINES))
    return entry.generator(**({} if sensors is None else {entry.counted: sensors}), **options)
