"""Dataflows and tasks on Spark Structured Streaming."""

from riot_ops.runtime.spark.session import configure, session

__all__ = ["configure", "session"]
