"""Expressions over the fields of a record, in Python's syntax, compiled to NumPy and Arrow functions."""
