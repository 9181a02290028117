"""Operators: text to records, records to text and to other fields."""
