"""Sampling by a hash, with the same result in every run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.xxhash import SPARK_SEED, xxh64
from riot_ops.task import Case, FilterTask, Requirement, register

__all__ = ["SampleByHash"]


@register
@dataclass(frozen=True, kw_only=True)
class SampleByHash(FilterTask):
    """Pass a share of the records, chosen by a hash: the same records in each run, and in any engine with the hash.

    A record passes iff ``H(seed, field) < share 2^64``, where H is XXH64 of the eight bytes of the number, seeded with
    the hash of ``seed``, like Spark's ``xxhash64(seed, field)``. So a smaller sample is a subset of a larger one, and
    records with the same number (those of one message, or of one customer) pass together or not at all.

    Parameters
    ----------
    share : float, 0 to 1, default 0.1
        Expected share of distinct numbers that pass.
    field : str, default "seq"
        Integer field by which records are chosen.
    seed : int of 64 bits, default 0
        Seed of the hash; samples with different seeds are independent.

    Shapes and rates
    ----------------
    any[n] -> any[m], 1:0/1; O(1) time, no state. Of n numbers ``share n ± √(share (1 - share) n)`` pass.

    Missing values
    --------------
    A record with a null number does not pass.

    Errors
    ------
    No record is rejected.

    References
    ----------
    .. [1] Y. Collet, *xxHash fast digest algorithm*, version 0.1.1, XXH64.
    .. [2] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench*, UCC 2014: the program Sample.

    Examples
    --------
    >>> half = SampleByHash(share=0.5, field="customer").session()
    >>> [c for c in range(10) if half.push({"customer": c})]
    [1, 2, 4, 5, 8, 9]
    """

    code: ClassVar[str] = "SMP"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    field: str = "seq"
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = 0

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "any"}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        dtype = schema.field(self.field).type
        if not pa.types.is_integer(dtype) and not pa.types.is_null(dtype):
            raise ConfigError(f"{self.name()} needs integers in the field {self.field!r}, it has {dtype}")

    def passes(self, batch: pa.RecordBatch, errors: RejectedRecords) -> npt.NDArray[np.bool_]:
        column = batch.column(self.field)
        below = math.ceil(self.share * 2.0**64)  # the product is exact
        if pa.types.is_null(column.type) or not below:
            return np.zeros(batch.num_rows, np.bool_)
        if pa.types.is_uint64(column.type):
            column = column.view(pa.int64())
        hashes = xxh64(int_column(column), xxh64(np.array([self.seed]), SPARK_SEED)[0])
        passes: npt.NDArray[np.bool_] = hashes <= np.uint64(below - 1)
        if column.null_count:
            passes &= np.asarray(column.is_valid())
        return passes

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(9), pa.int64()),
                "key": ["a", "b", "a", "ü", None, "", "a", "b", "c"],
                "n": pa.array([0, -(2**63), None, 1, 2**63 - 1, 7, 7, 8, 9], pa.int64()),
            }
        )
        yield Case(cls(share=0.5), batch)
        yield Case(cls(share=0.4, field="n", seed=-3), batch, "by a number")
        yield Case(cls(share=1.0), batch, "all")
        yield Case(cls(share=0.0), batch, "none")
