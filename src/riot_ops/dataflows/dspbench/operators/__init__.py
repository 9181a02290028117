"""Operators that one application of this suite needs."""
