"""The loop that makes the readings of the FIT stream."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from riot_ops.kernels.jit import kernel
from riot_ops.streams.noise import key_of, mix, normal, ou, uniform
from riot_ops.streams.riotbench.regular_kernels import NULL

__all__ = ["activity_of", "fit_values"]

TWO_PI = 2.0 * math.pi
STEP_S = 0.02
#: Steps in which an activity ends; one of 13 times the next is the same one, so that a minute is the mean.
TURN = 2769
#: Half the width of a heartbeat in the ECG, seconds.
BEAT_S = 0.02
#: Of 2^16: nulls, and nulls and outliers.
NULLS, SPOILT = 655, 983


@kernel
def activity_of(key: Any, tick: Any) -> Any:
    """The activity (0 to 12) at a step: in each turn one begins, at a random step of it."""
    turn = tick // TURN
    h = mix(key ^ mix(np.uint64(turn) + np.uint64(0x2545F4914F6CDD1D)))
    begin = np.int64(h & np.uint64(0xFFFFFFFF)) * TURN >> 32
    if tick - turn * TURN < begin:
        h = mix(key ^ mix(np.uint64(turn) - np.uint64(1) + np.uint64(0x2545F4914F6CDD1D)))
    return np.int64(h >> np.uint64(32)) * 13 >> 32


@kernel
def fit_values(
    sensor: Any,
    tick: Any,
    key: Any,
    activity: Any,
    mean: Any,
    swing: Any,
    noise: Any,
    limits: Any,
    scales: Any,
    fast: Any,
    slow: Any,
    wanted: Any,
    dirt: Any,
    out: Any,
) -> None:
    """Readings (those wanted) of subjects at steps, scaled by the decimals of their column; and the label."""
    for i in range(sensor.size):
        t = tick[i]
        k = key_of(key, sensor[i])
        label = activity_of(k, t)
        pace = 0.9 + 0.2 * uniform(mix(k + np.uint64(1)))  # no two people move alike
        turns = t * (STEP_S * pace * activity[label, 0])
        angle = TWO_PI * (turns - np.floor(turns))
        up = activity[label, 1] * np.sin(angle)
        down = activity[label, 1] * np.cos(angle)
        heart = min(max(pace * activity[label, 2], 1.0), 2.0)
        beat = t * (STEP_S * heart) + uniform(mix(k + np.uint64(2)))
        beat -= np.floor(beat + 0.5)
        pulse = np.exp(-0.5 * (beat / (heart * BEAT_S)) ** 2)
        now = mix(k ^ mix(np.uint64(t) + np.uint64(0x8BB84B93962EACC9)))
        word = now
        seen = 0
        for c in range(23):
            if not wanted[c]:
                continue
            kc = k + np.uint64(16 + c)
            if 3 <= c <= 4:  # the ECG
                x = pulse + noise[c] * normal(mix(now + np.uint64(c)))
            else:
                table = slow if 8 <= c <= 13 or c >= 17 else fast  # gyroscopes and magnetometers
                x = mean[label, c] + up * swing[0, c] + down * swing[1, c] + noise[c] * ou(kc, t, table)
            x = min(max(x, limits[0, c]), limits[1, c])
            wide = limits[2, c]
            missing: Any = False
            if dirt and wide > 0.0:
                if seen & 3 == 0:  # four draws of 16 bits each from one hash
                    word = mix(now + np.uint64(128 + seen))
                part = np.int64(word & np.uint64(0xFFFF))
                word = word >> np.uint64(16)
                seen += 1
                missing = part < NULLS
                if NULLS <= part < SPOILT:
                    beyond = (0.1 + 0.4 * uniform(mix(now + np.uint64(64 + c)))) * wide
                    x = limits[1, c] + beyond if part & 1 else limits[0, c] - beyond
            out[i, c] = NULL if missing else np.int64(np.floor(x * scales[c] + 0.5))
        out[i, 23] = label
