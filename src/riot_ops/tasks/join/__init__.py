"""Operators: several records to one."""
