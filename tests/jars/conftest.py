"""Leaves the tests that need jars to ``make test-jars``, which says by variables where they are."""

import os

#: What a file of tests needs.
NEEDED = {"apache_kafka_suite.py": "RIOT_OPS_JARS", "spark_ends_suite.py": "RIOT_OPS_SPARK_JARS"}
collect_ignore = [name for name, variable in NEEDED.items() if variable not in os.environ]
