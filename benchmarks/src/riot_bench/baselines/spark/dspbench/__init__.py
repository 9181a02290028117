"""The applications of DSPBench in plain PySpark.

A module has the function of its application's name, which takes streaming DataFrames of text lines by source and gives
the DataFrame of the results, and ``OPPONENT``, which says what it must be run with.
"""
