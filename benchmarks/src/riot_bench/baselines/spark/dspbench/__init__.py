"""The applications of DSPBench in plain PySpark.

Each module has a function named for its application, which maps streaming DataFrames of text lines by source to the
DataFrame of the results, and ``BASELINE``, which describes how to run it.
"""
