"""Shared dataflows on Spark: queries that hand streams to each other through topics."""
