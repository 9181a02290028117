"""Records come in: what they are cast to, and which are rejected."""
