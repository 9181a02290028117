"""Operators that only the applications of DSPBench need."""
