"""Sketches as data: build, merge, store and load them outside of a stream."""
