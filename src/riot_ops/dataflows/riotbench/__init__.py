"""The applications of RIoTBench."""
