"""Operators: a user's own function."""
