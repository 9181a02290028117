"""Measurements of a run: latency, rates, CPU time, memory."""
