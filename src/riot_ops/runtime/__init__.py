"""The runtime: engine, state and checkpoints of both runners, and the runner in this process."""
