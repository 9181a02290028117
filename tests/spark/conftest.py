"""Files that pytest must not collect here."""

# can be imported by a pipeline only
collect_ignore = ["pipeline_job.py"]
