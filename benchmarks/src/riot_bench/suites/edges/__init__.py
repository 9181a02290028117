"""Sources and sinks, against bare clients of the same systems."""
