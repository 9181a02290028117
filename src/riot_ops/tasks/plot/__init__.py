"""Operators: charts."""
