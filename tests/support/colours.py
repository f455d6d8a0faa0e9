"""Contrast of the colours of pictures."""

import numpy as np

LUMINANCE = np.array([0.2126729, 0.7151522, 0.0721750])


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    dark, light = sorted(float(LUMINANCE @ linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)
