"""Tasks that parse text into records, write records as text, and derive fields from others."""
