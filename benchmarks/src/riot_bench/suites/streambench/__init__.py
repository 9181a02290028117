"""The suite streambench: programs and suites of StreamBench against plain PySpark."""
