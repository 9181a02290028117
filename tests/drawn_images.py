"""Decoded content of PNG files."""

from __future__ import annotations

from typing import Any

import numpy as np


def decode(file: Any) -> Any:
    """The pixels of a PNG file as red, green and blue between 0 and 1, the first row at the top."""
    from matplotlib.image import imread

    pixels = imread(file)
    assert pixels.ndim == 3 and np.ptp(pixels[..., :3]) > 0.5, "the image is blank"
    return pixels[..., :3]


def shows(pixels: Any, colour: Any, tolerance: float = 0.25) -> bool:
    """Whether some pixel has a colour of matplotlib; a translucent colour lies on white, and thin lines are paler."""
    from matplotlib.colors import to_rgba

    *rgb, alpha = to_rgba(colour)
    expected = np.array(rgb) * alpha + 1 - alpha
    return bool((np.abs(pixels - expected).max(axis=2) < tolerance).any())


def pixel_at(pixels: Any, axes: Any, x: float, y: float) -> Any:
    """The pixel at a point in the data coordinates of an axes whose figure was saved as this image."""
    height, width = pixels.shape[:2]
    across, up = axes.transData.transform((x, y)) / axes.figure.bbox.size
    return pixels[round((1 - up) * height), round(across * width)]
