"""The suite streambench."""
