"""Compiled loops over arrays, and what brings Arrow columns to them."""
