"""Baselines in plain PySpark."""
