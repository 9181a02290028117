"""Delta Lake tables: a sink and a source."""
