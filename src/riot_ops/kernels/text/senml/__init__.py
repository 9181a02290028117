"""Kernels over SenML messages."""
