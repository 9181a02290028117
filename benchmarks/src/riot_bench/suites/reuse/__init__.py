"""The suite reuse: dataflows with shared steps against separate ones."""
