"""Kernels over text: SenML, JSON, CSV, XML, lines, numbers and times."""
