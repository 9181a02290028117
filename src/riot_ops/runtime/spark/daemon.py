"""The process that Spark forks its Python workers from, having read what each of them would read for itself.

Spark's own one reads nothing beforehand, as what is read might start threads, which do not live on in a fork. Arrow and
NumPy know of forks.
"""

from __future__ import annotations

import numba  # noqa: F401
import pandas as pd  # noqa: F401
from pyspark.daemon import manager

from riot_ops.runtime.spark import adapters, source, stage  # noqa: F401

if __name__ == "__main__":
    manager()
