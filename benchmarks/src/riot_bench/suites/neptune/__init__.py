"""The suite neptune."""
