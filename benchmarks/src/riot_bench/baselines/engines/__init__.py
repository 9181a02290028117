"""The same programs on other Python engines, each run in a virtual environment that has the engine."""
