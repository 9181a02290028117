"""Tasks that look up values for a record in a table."""
