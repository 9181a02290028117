"""Operators: averages, filters of noise, moments, distinct counts."""
