"""Sketches as data: build, merge, save and load them outside of a stream."""

from riot_ops.sketches.bloom import BloomFilter
from riot_ops.sketches.hyperloglog import HyperLogLog

__all__ = ["BloomFilter", "HyperLogLog"]
