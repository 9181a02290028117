"""The applications of DSPBench in plain Python, as baselines and for validation."""
