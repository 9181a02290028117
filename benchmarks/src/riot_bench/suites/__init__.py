"""The suites, one module or package each."""
