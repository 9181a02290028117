"""The applications of DSPBench in plain Python: what they are measured against and validated by."""
