"""The suite stats."""
