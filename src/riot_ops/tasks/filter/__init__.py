"""Tasks that pass some records and drop or reject the others."""
