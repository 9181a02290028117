"""Tasks that run a user's Python function."""
