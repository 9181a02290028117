"""Dataflows that come and go, and share what they have in common: each distinct step runs once."""
