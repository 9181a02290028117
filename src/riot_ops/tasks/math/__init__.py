"""Operators for arithmetic, filtering, sketches and synthetic load."""
