"""The suite riotbench."""
