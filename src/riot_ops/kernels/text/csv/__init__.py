"""Kernels over lines of comma-separated values."""
