"""The programs of StreamBench in plain PySpark, in up to four forms.

A module has ``FORMS``: by the name of a form what it is and the function that makes the results of a DataFrame with
the columns ``seq`` and ``value``, the numbers of the lines and the lines. The names are ``expressions`` (Spark's own,
in the JVM), ``udf`` (a function of Python for each record), ``state`` (a Python object per key) and ``arrow`` (Arrow's
functions over whole batches in ``mapInArrow``).
"""
