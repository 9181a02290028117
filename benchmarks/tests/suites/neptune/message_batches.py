"""Batches of Neptune's messages, for tests."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa


def batch_of(numbers, sent_ms_ago=0.0):
    sent = np.full(len(numbers), time.time_ns() - int(1e6 * sent_ms_ago))
    return pa.record_batch({"seq": pa.array(numbers, pa.int64()), "sent": sent})
