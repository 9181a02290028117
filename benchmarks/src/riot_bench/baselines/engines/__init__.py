"""The same programs in other engines of Python, each run by an environment of its own that has the engine."""
