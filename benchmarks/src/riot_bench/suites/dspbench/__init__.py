"""The suite dspbench: applications of DSPBench against plain Python and plain PySpark."""
