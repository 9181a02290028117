"""Operators that train models and predict with them."""
