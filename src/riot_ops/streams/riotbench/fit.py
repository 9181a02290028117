"""FIT: body-worn sensors of people who change their activity."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from riot_ops.core.parameters import Duration
from riot_ops.core.schema import FIT
from riot_ops.core.source import Source
from riot_ops.ingest.pace import paced
from riot_ops.ingest.rates import Curve
from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.streams.generator import Format
from riot_ops.streams.noise import derive_key, hash64, normal, ornstein_uhlenbeck, ornstein_uhlenbeck_table, uniform
from riot_ops.streams.riotbench.regular import I64, NULL, RegularSource

__all__ = ["ACTIVITIES", "BASE_MS", "FitSource", "fit"]

BASE_MS = 1_417_890_600_000  # 2014-12-07T00:00:00 local, read as UTC+5:30; where the sample begins
PERIOD_MS = 20

# label: activity, movements per second, amplitude (m/s²), posture, heartbeats per second
ACTIVITIES = (
    ("none", 1.0, 0.2, "upright", 1.1),
    ("standing", 1.0, 0.0, "upright", 1.1),
    ("sitting", 1.0, 0.0, "sitting", 1.05),
    ("lying", 1.0, 0.0, "lying", 1.0),
    ("walking", 1.8, 2.0, "moving", 1.4),
    ("climbing stairs", 1.5, 2.5, "moving", 1.6),
    ("waist bends", 1.0, 2.0, "moving", 1.3),
    ("arm elevation", 1.0, 1.5, "moving", 1.3),
    ("crouching", 1.0, 2.5, "moving", 1.5),
    ("cycling", 1.4, 1.5, "sitting", 1.5),
    ("jogging", 2.5, 4.0, "moving", 1.8),
    ("running", 3.0, 5.0, "moving", 2.0),
    ("jumping", 2.0, 4.5, "moving", 1.9),
)
#: Gravity at chest, ankle and arm. Upright as measured on the sample's standing person; moving people bend the arms.
POSTURES = {
    "upright": (-9.32, -0.77, 2.12, -0.38, -9.78, -1.58, -2.12, -9.58, -0.59),
    "moving": (-9.0, -0.6, 1.8, -0.4, -9.2, -1.2, -4.0, -7.0, 0.5),
    "sitting": (-9.0, -0.4, 3.0, 1.6, -9.3, -1.8, -3.4, -8.3, 2.2),
    "lying": (-2.2, 0.5, 7.6, 3.0, -2.4, 7.8, -4.6, -3.4, 7.3),
}
ACC, ECG = (0, 1, 2, 5, 6, 7, 14, 15, 16), (3, 4)
GYRO, MAGNETOMETER = (8, 9, 10, 17, 18, 19), (11, 12, 13, 20, 21, 22)
GYRO_MEAN = (-0.15, -0.17, 0.77, -0.69, -0.28, -0.44)
MAGNETOMETER_MEAN = (-0.43, 0.25, 0.15, 0.24, 0.47, -1.08)


# -- kernels

TWO_PI = 2.0 * math.pi
STEP_S = 0.02
#: Steps in which an activity ends; one of 13 times the next is the same one, so that a minute is the mean.
TURN = 2769
#: Half the width of a heartbeat in the ECG, seconds.
BEAT_S = 0.02
#: Of 2^16: nulls, and nulls and outliers.
NULLS, NULLS_OR_OUTLIERS = 655, 983


@kernel
def activity_of(key: Any, tick: Any) -> Any:
    """Return the activity (0 to 12) at a step: in each turn one begins, at a random step of it."""
    turn = tick // TURN
    h = hash64(key ^ hash64(np.uint64(turn) + np.uint64(0x2545F4914F6CDD1D)))
    begin = np.int64(h & np.uint64(0xFFFFFFFF)) * TURN >> 32
    if tick - turn * TURN < begin:
        h = hash64(key ^ hash64(np.uint64(turn) - np.uint64(1) + np.uint64(0x2545F4914F6CDD1D)))
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
        k = derive_key(key, sensor[i])
        label = activity_of(k, t)
        pace = 0.9 + 0.2 * uniform(hash64(k + np.uint64(1)))  # no two people move alike
        turns = t * (STEP_S * pace * activity[label, 0])
        angle = TWO_PI * (turns - np.floor(turns))
        up = activity[label, 1] * np.sin(angle)
        down = activity[label, 1] * np.cos(angle)
        heart = min(max(pace * activity[label, 2], 1.0), 2.0)
        beat = t * (STEP_S * heart) + uniform(hash64(k + np.uint64(2)))
        beat -= np.floor(beat + 0.5)
        pulse = np.exp(-0.5 * (beat / (heart * BEAT_S)) ** 2)
        now = hash64(k ^ hash64(np.uint64(t) + np.uint64(0x8BB84B93962EACC9)))
        word = now
        seen = 0
        for c in range(23):
            if not wanted[c]:
                continue
            kc = k + np.uint64(16 + c)
            if 3 <= c <= 4:  # the ECG
                x = pulse + noise[c] * normal(hash64(now + np.uint64(c)))
            else:
                table = slow if 8 <= c <= 13 or c >= 17 else fast  # gyroscopes and magnetometers
                x = mean[label, c] + up * swing[0, c] + down * swing[1, c] + noise[c] * ornstein_uhlenbeck(kc, t, table)
            x = min(max(x, limits[0, c]), limits[1, c])
            wide = limits[2, c]
            missing: Any = False
            if dirt and wide > 0.0:
                if seen & 3 == 0:  # four draws of 16 bits each from one hash
                    word = hash64(now + np.uint64(128 + seen))
                part = np.int64(word & np.uint64(0xFFFF))
                word = word >> np.uint64(16)
                seen += 1
                missing = part < NULLS
                if NULLS <= part < NULLS_OR_OUTLIERS:
                    beyond = (0.1 + 0.4 * uniform(hash64(now + np.uint64(64 + c)))) * wide
                    x = limits[1, c] + beyond if part & 1 else limits[0, c] - beyond
            out[i, c] = NULL if missing else np.int64(np.floor(x * scales[c] + 0.5))
        out[i, 23] = label


# -- source


class FitSource(RegularSource):
    """The FIT stream of RIoTBench, generated: 23 readings of each subject's sensors, 50 times a second.

    Message *i* is a function of the parameters and *i* alone. The statistics of the original are
    unknown (its sample holds three different rows), so this is a model that meets them. A subject
    changes between 13 activities (label 0 to 12), each for a minute on average. Accelerations are the
    activity's posture, plus a periodic movement of 1-3 Hz and up to 5 m/s², plus AR(1) noise (0.9 per
    step, deviation 0.3); the ECG is a train of pulses of 1 mV, 1-2 per second, in white noise of
    0.05 mV; gyroscopes stay within ±1.5; magnetometers walk at random in steps of about 0.2, drawn
    back to their mean.

    Parameters
    ----------
    subjects : int, >= 1, default 10
        Number of people, called subject1, subject2 and so on.
    messages : int or None
        Length; None: without end.
    duration : timedelta > 0 or text such as "7d", or None
        Length in event time, instead of ``messages``.
    seed : int, default 0
    format : "senml", "csv", "observations" or "wide", default "senml"
        As for :class:`~riot_ops.streams.riotbench.city.CitySource`. Observed are the 11 readings of
        accelerations and ECG. The base time is text, as in the sample.
    dirt : bool, default True
        1 % of the observed values null (text ``null``), 0.5 % farther beyond their valid range than
        the 10 % of its width at which all others are cut.

    Shapes and rates
    ----------------
    A message has about 1,228 bytes (1,214 without time; 214 as CSV), or 11 observations; 50 messages
    per second and subject, all at the same multiples of 20 ms.

    Examples
    --------
    >>> source = FitSource(messages=100, format="wide")
    >>> rows = next(source.read({"start": 0, "end": 20})).to_pylist()
    >>> rows[9]["subjectId"], (rows[10]["event_time"] - rows[9]["event_time"]).microseconds
    ('subject10', 20000)
    """

    stream = FIT
    rows_per_batch: ClassVar = {"senml": 4096, "csv": 8192, "observations": 8192, "wide": 16384}
    counted = "subjects"
    subjects: int
    base_ms = BASE_MS
    period_ms = PERIOD_MS
    id_prefix = "subject"
    quoted_time = True
    decimals = (*(4,) * 3, 6, 6, *(4,) * 3, *(5,) * 6, *(4,) * 3, *(5,) * 6, 0)

    def __init__(
        self,
        subjects: int = 10,
        messages: int | None = None,
        duration: Duration | None = None,
        seed: int = 0,
        format: Format = "senml",
        dirt: bool = True,
    ) -> None:
        super().__init__(subjects, messages, duration, seed, format, dirt)

    def _offsets(self) -> I64:
        return np.zeros(self.subjects, np.int64)

    def _build(self) -> dict[str, Any]:
        mean, swing, noise = _model()
        low, high = np.full(23, -1.5), np.full(23, 1.5)
        low[list(MAGNETOMETER)], high[list(MAGNETOMETER)] = -99.0, 99.0
        wide, watched = np.zeros(23), np.zeros(23, np.bool_)
        for name, (a, b) in FIT.bounds.items():
            column = self._values_of.index(name)
            wide[column], watched[column] = b - a, True
            low[column], high[column] = a - 0.1 * (b - a), b + 0.1 * (b - a)
        return {
            **super()._build(),
            "mean": readonly(mean),
            "swing": readonly(swing),
            "noise": readonly(noise),
            "activity": readonly(np.array([(rate, size, heart) for _, rate, size, _, heart in ACTIVITIES])),
            "limits": readonly(np.stack([low, high, wide])),
            "watched": readonly(watched),
            "all": readonly(np.ones(23, np.bool_)),
            "fast": readonly(ornstein_uhlenbeck_table(0.9)),
            "slow": readonly(ornstein_uhlenbeck_table(0.99)),
        }

    def _fill(self, sensor: I64, tick: I64, observed: bool, values: I64) -> None:
        t = self._tables
        key = np.uint64(self.seed & 0xFFFFFFFFFFFFFFFF) ^ np.uint64(0xF17F17F17F17F17F)
        fit_values(
            sensor,
            tick,
            key,
            t["activity"],
            t["mean"],
            t["swing"],
            t["noise"],
            t["limits"],
            t["scales"],
            t["fast"],
            t["slow"],
            t["watched"] if observed else t["all"],
            self.dirt,
            values,
        )


def _model() -> tuple[npt.NDArray[np.float64], ...]:
    """By activity and column: means. By column: sine and cosine of the movement, and the noise."""
    mean, swing, noise = np.zeros((len(ACTIVITIES), 23)), np.zeros((2, 23)), np.zeros(23)
    for label, (_, _, _, posture, _) in enumerate(ACTIVITIES):
        mean[label, ACC] = POSTURES[posture]
    mean[:, GYRO], mean[:, MAGNETOMETER] = GYRO_MEAN, MAGNETOMETER_MEAN
    for i, column in enumerate(ACC):  # up and down swings the chest most, forward the limbs
        size, shift = (1.0, 0.5, 0.7, 0.8, 1.0, 0.6, 0.8, 0.6, 0.7)[i], 0.7 * i
        swing[:, column] = size * np.cos(shift), size * np.sin(shift)
    for i, column in enumerate(GYRO):
        swing[:, column] = 0.12 * np.cos(0.7 * i + 1), 0.12 * np.sin(0.7 * i + 1)
    # the steps of an AR(1) process are sqrt(2 (1 - phi)) deviations: 0.2 of the magnetometers are 1.4 of them
    noise[list(ACC)], noise[list(ECG)] = 0.3, 0.05
    noise[list(GYRO)], noise[list(MAGNETOMETER)] = 0.05, 0.2 / np.sqrt(2 * (1 - 0.99))
    return mean, swing, noise


def fit(
    subjects: int = 10,
    messages: int | None = None,
    duration: Duration | None = None,
    seed: int = 0,
    format: Format = "senml",
    rate: float | None = None,
    speed: float | None = None,
    curve: Curve | None = None,
    dirt: bool = True,
) -> Source:
    """Return the FIT stream, generated; see :class:`FitSource` for the parameters.

    ``rate`` (messages per second), ``speed`` (event time per wall time) or ``curve`` (a rate over time,
    such as :func:`~riot_ops.ingest.rates.fit`) paces it, see :class:`~riot_ops.ingest.pace.PacedSource`.

    >>> fit(subjects=3, messages=7).finished({"message": 7})
    True
    """
    return paced(FitSource(subjects, messages, duration, seed, format, dirt), speed, rate, curve)
