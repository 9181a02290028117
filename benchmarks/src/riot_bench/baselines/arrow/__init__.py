"""Baselines on batches with Arrow and NumPy."""
