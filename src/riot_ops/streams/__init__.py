"""Streams to feed a dataflow with: generated, replayed from files, and paced."""

from riot_ops.streams import rates
from riot_ops.streams.city import city

__all__ = ["city", "rates"]
