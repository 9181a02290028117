"""XML as bytes."""
