"""Tasks that draw charts."""
