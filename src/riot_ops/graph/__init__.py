"""Dataflow graphs: nodes and edges, validation, JSON, diagrams, and the plan of stages."""
