"""Streams to feed a dataflow with: generated, replayed from files, and paced."""

from typing import TYPE_CHECKING

from riot_ops.core.lazy import lazy_names

if TYPE_CHECKING:
    from riot_ops.ingest import rates
    from riot_ops.ingest.line_time import LineTime
    from riot_ops.ingest.pace import PacedSource, TimedSource
    from riot_ops.ingest.replay import ReplaySource, replay
    from riot_ops.streams.catalog import CATALOG, generate
    from riot_ops.streams.files import write
    from riot_ops.streams.riotbench.city import CitySource, city
    from riot_ops.streams.riotbench.fit import FitSource, fit
    from riot_ops.streams.riotbench.grid import GridSource, grid
    from riot_ops.streams.riotbench.taxi import TaxiSource, taxi

__all__ = [
    "CATALOG",
    "CitySource",
    "FitSource",
    "GridSource",
    "LineTime",
    "PacedSource",
    "ReplaySource",
    "TaxiSource",
    "TimedSource",
    "city",
    "fit",
    "generate",
    "grid",
    "rates",
    "replay",
    "taxi",
    "write",
]

#: By name, the module that defines it.
_MODULES = {
    "CATALOG": "riot_ops.streams.catalog",
    "CitySource": "riot_ops.streams.riotbench.city",
    "FitSource": "riot_ops.streams.riotbench.fit",
    "GridSource": "riot_ops.streams.riotbench.grid",
    "LineTime": "riot_ops.ingest.line_time",
    "PacedSource": "riot_ops.ingest.pace",
    "ReplaySource": "riot_ops.ingest.replay",
    "TaxiSource": "riot_ops.streams.riotbench.taxi",
    "TimedSource": "riot_ops.ingest.pace",
    "city": "riot_ops.streams.riotbench.city",
    "fit": "riot_ops.streams.riotbench.fit",
    "generate": "riot_ops.streams.catalog",
    "grid": "riot_ops.streams.riotbench.grid",
    "rates": "riot_ops.ingest.rates",
    "replay": "riot_ops.ingest.replay",
    "taxi": "riot_ops.streams.riotbench.taxi",
    "write": "riot_ops.streams.files",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
