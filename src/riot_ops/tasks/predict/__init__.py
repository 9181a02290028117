"""Operators: models that predict, and that are learnt."""
