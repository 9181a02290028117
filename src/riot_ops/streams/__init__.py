"""Streams to feed a dataflow with: generated, replayed from files, and paced."""

from riot_ops.streams import rates
from riot_ops.streams.city import CitySource, city
from riot_ops.streams.pace import Paced, TimedSource
from riot_ops.streams.replay import ReplaySource, replay
from riot_ops.streams.taxi import TaxiSource, taxi
from riot_ops.streams.writer import write

__all__ = [
    "CitySource",
    "Paced",
    "ReplaySource",
    "TaxiSource",
    "TimedSource",
    "city",
    "rates",
    "replay",
    "taxi",
    "write",
]
