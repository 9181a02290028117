"""The programs of StreamBench in plain Python, as baselines and for validation."""
