"""The suite neptune: the experiments of the thesis on Neptune."""
