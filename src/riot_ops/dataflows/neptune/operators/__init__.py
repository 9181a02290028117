"""Operators that only the applications of Neptune need."""
