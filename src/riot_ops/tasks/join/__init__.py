"""Tasks that join records of streams."""
