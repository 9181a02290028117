"""Measuring: runs, probes, trials, clusters and what they give."""
