"""Baselines in plain Python."""
