"""Kernels of statistics: windows, sums, medians, ranks and sketches."""
