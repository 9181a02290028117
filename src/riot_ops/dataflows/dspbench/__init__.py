"""The applications of DSPBench."""
