"""Streams to feed a dataflow with: generated, replayed from files, and paced."""

from riot_ops.streams import rates
from riot_ops.streams.catalog import CATALOG, generate
from riot_ops.streams.city import CitySource, city
from riot_ops.streams.fit import FitSource, fit
from riot_ops.streams.grid import GridSource, grid
from riot_ops.streams.pace import Paced, TimedSource
from riot_ops.streams.replay import ReplaySource, replay
from riot_ops.streams.taxi import TaxiSource, taxi
from riot_ops.streams.writer import write

__all__ = [
    "CATALOG",
    "CitySource",
    "FitSource",
    "GridSource",
    "Paced",
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
