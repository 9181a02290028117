"""The suites micro and app: RIoTBench's tasks and applications."""
