"""Compiled loops over arrays, and their conversion from and to Arrow columns."""
