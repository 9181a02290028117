"""The suite dspbench."""
