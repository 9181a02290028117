"""Comma-separated values as bytes."""
