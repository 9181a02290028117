"""Kernels over Arrow columns: hashing, ordering, selecting and indexing rows."""
