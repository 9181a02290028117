"""Applications around the stream graphs of Neptune."""
