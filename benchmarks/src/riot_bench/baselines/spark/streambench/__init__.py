"""The programs of StreamBench in plain PySpark, in up to five implementations.

Each module has ``IMPLEMENTATIONS`` by name. An implementation maps a DataFrame with the columns ``seq`` (line number)
and ``value`` (line) to the results. The names are ``expressions`` (Spark's own, in the JVM), ``udf`` (a Python function
per line), ``pickled`` (the same, with lines transferred as pickles), ``state`` (a Python object per key) and ``arrow``
(Arrow functions over whole batches in ``mapInArrow``).
"""
