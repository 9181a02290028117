"""Iceberg tables: a sink and a source."""
