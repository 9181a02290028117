"""Kernels over XML documents."""
