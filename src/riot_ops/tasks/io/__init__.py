"""Operators: stores, brokers, archives."""
