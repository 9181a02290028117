"""The suite reuse."""
