"""Leaves the tests that need jars to ``make test-jars``, which says by ``RIOT_OPS_JARS`` where they are."""

import os

collect_ignore = [] if "RIOT_OPS_JARS" in os.environ else ["apache_kafka_suite.py"]
