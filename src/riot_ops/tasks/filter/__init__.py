"""Operators: what may pass."""
