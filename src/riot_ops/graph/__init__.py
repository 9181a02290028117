"""Dataflows as data: nodes, edges, what is valid; as JSON, as pictures, as stages."""
