"""The two runners: in process, and on Spark."""
