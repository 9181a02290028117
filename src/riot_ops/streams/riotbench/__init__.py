"""The streams of RIoTBench, generated."""
