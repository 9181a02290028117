"""The programs of StreamBench in plain Python: what they are measured against and validated by."""
