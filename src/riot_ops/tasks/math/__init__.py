"""Operators: work for its own sake."""
