"""Tasks that look records up in a table."""
