"""Losses of messages that sensors are expected to send: single losses, and outages."""

from __future__ import annotations

import bisect
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from riot_ops.kernels.arrays.arrow import readonly
from riot_ops.kernels.jit import kernel
from riot_ops.streams.noise import derive_key, hash64, threshold

__all__ = ["BLOCK", "LossModel"]

#: Slots (expected messages) within which the number of delivered ones is exact.
BLOCK = 4096
MILLION = 1_000_000


class LossModel:
    """The delivered slots of a stream, where a slot is a message that a sensor is expected to send.

    The share that is delivered changes from step to step and starts again after the last one. Half of
    the losses are in outages of a sensor, the others are single; the latter cause the changes. How many
    slots of a block are delivered is fixed, so that the number of messages before any slot is known
    without counting.

    Parameters
    ----------
    outages : float, 0 <= outages < 1
        Share of slots that are lost in outages.
    shares : sequence of float, > 0, <= 1
        Share of slots that are delivered in each step.
    ticks : int
        Periods in a step.
    key : uint64
        Seed.
    order : array
        The sensor of each slot of a period, in the order of their offsets.
    """

    def __init__(
        self,
        outages: float,
        shares: npt.NDArray[np.float64],
        ticks: int,
        key: np.uint64,
        order: npt.NDArray[np.int64],
    ) -> None:
        self._outages = outages
        self._key = key
        self._order = order
        # whole numbers of any size: a sum of floats would depend on how long the stream has run
        self._shares: list[int] = [max(1, round(s * MILLION)) for s in shares.tolist()]
        self._step: int = ticks * order.size
        self._sums = [0, *itertools.accumulate(s * self._step for s in self._shares)]
        self._cache: dict[int, npt.NDArray[np.int64]] = {}

    def _quota(self, block: int) -> int:
        """Messages before a block of slots."""
        rounds, rest = divmod(block * BLOCK, len(self._shares) * self._step)
        i, within = divmod(rest, self._step)
        return (rounds * self._sums[-1] + self._sums[i] + within * self._shares[i]) // MILLION

    def _delivered_in(self, block: int) -> npt.NDArray[np.int64]:
        """Return the delivered slots of a block, counted from its start."""
        found = self._cache.get(block)
        if found is None:
            quota = self._quota(block + 1) - self._quota(block)
            found = np.empty(quota, np.int64)
            if quota == BLOCK:
                found[:] = np.arange(BLOCK)
            else:
                single = max(0.0, 1 - quota / BLOCK / (1 - self._outages))
                flags = np.empty(BLOCK, np.uint8)
                with np.errstate(over="ignore"):
                    select_delivered(
                        block, self._order, self._key, threshold(self._outages), threshold(single), quota, flags, found
                    )
            if len(self._cache) >= 8:
                self._cache.pop(next(iter(self._cache)))
            self._cache[block] = found
        return found

    def _block_of(self, message: int) -> int:
        rounds, rest = divmod(message * MILLION, self._sums[-1])
        i = bisect.bisect_right(self._sums, rest) - 1
        slot = (rounds * len(self._shares) + i) * self._step + (rest - self._sums[i]) // self._shares[i]
        block = slot // BLOCK
        while self._quota(block + 1) <= message:
            block += 1
        while self._quota(block) > message:
            block -= 1
        return block

    def slots(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """Return the slots of a range of messages."""
        if start >= end:
            return readonly(np.empty(0, np.int64))
        parts = []
        block = self._block_of(start)
        while start < end:
            before = self._quota(block)
            part = self._delivered_in(block)[start - before : end - before]
            parts.append(part + block * BLOCK)
            start += len(part)
            block += 1
        return readonly(np.concatenate(parts) if len(parts) != 1 else parts[0])

    def delivered(self, slot: int) -> int:
        """Return the number of messages before a slot."""
        block, within = divmod(slot, BLOCK)
        return self._quota(block) + int(np.searchsorted(self._delivered_in(block), within))


@kernel
def _refreshed(key: Any, word: Any) -> Any:
    """64 bits, each set with probability 5/256: the ticks at which a sensor may change its state."""
    k = key + np.uint64(word) * np.uint64(0x8CB92BA72F3D8DD7)
    m = hash64(k) & hash64(k + np.uint64(1))
    m = (m | hash64(k + np.uint64(2))) & hash64(k + np.uint64(3)) & hash64(k + np.uint64(4))
    return m & hash64(k + np.uint64(5)) & hash64(k + np.uint64(6)) & hash64(k + np.uint64(7))


@kernel
def _is_out(key: Any, tick: Any, limit: Any) -> Any:
    """Whether a sensor is in an outage: a Markov chain with two states.

    At each tick the state is drawn again with probability 5/256; so outages have a geometric length,
    and the state at any tick is found by walking back to the last draw.
    """
    word = tick >> 6
    m = _refreshed(key, word) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(63 - (tick & 63)))
    while m == np.uint64(0) and word > 0:
        word -= 1
        m = _refreshed(key, word)
    bit = 0
    for shift in (32, 16, 8, 4, 2, 1):
        if m >> np.uint64(shift) != np.uint64(0):
            m = m >> np.uint64(shift)
            bit += shift
    return hash64(key ^ hash64(np.uint64(word * 64 + bit) + np.uint64(0x5851F42D4C957F2D))) < limit


@kernel
def select_delivered(
    block: Any, order: Any, key: Any, out_limit: Any, lost_limit: Any, quota: Any, flags: Any, delivered: Any
) -> None:
    """Choose the slots of a block that are delivered, exactly ``quota``, in order.

    Slots are lost in outages or one by one; a surplus or a deficit is then corrected at
    places in pseudo-random order, single losses first.
    """
    size = flags.size
    sensors = order.size
    first = block * size
    tick = first // sensors
    rank = first - tick * sensors
    n = 0
    for j in range(size):
        sensor_key = derive_key(key, order[rank])
        lost = 0
        if hash64(sensor_key ^ hash64(np.uint64(tick) + np.uint64(0x2545F4914F6CDD1D))) < lost_limit:
            lost = 1
        if _is_out(sensor_key, tick, out_limit):
            lost = 2
        flags[j] = lost
        n += lost == 0
        rank += 1
        if rank == sensors:
            rank = 0
            tick += 1
    for max_flag in range(1, 3):
        at: Any = np.int64(hash64(key + np.uint64(block)) & np.uint64(size - 1))
        for _ in range(size):
            if n == quota:
                break
            at = (at * 1_664_525 + 1_013_904_223) & (size - 1)
            if n > quota and flags[at] == 0:
                flags[at] = 3
                n -= 1
            elif n < quota and 0 < flags[at] <= max_flag:
                flags[at] = 0
                n += 1
    i = 0
    for j in range(size):
        if flags[j] == 0:
            delivered[i] = j
            i += 1
