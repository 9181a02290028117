"""The suite threat."""
