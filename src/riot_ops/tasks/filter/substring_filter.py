"""Substring filter: pass records whose text contains another text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.text.strings import contains
from riot_ops.task import Case, FilterTask, Requirement, register

__all__ = ["SubstringFilter"]


@register
@dataclass(frozen=True, kw_only=True)
class SubstringFilter(FilterTask):
    """Pass records whose text contains a given text, or those whose text does not.

    Parameters
    ----------
    text : str
        Text to search for, literally and case-sensitively. Every text contains the empty text.
    field : str, default "payload"
        Field with the text.
    invert : bool, default False
        Whether to pass the records that do not contain it instead.
    keep_null : bool, default False
        Whether records with a null text pass.

    Shapes and rates
    ----------------
    text[n] -> text[m], 1:0/1; O(bytes) time, no state.

    Missing values
    --------------
    Null passes iff ``keep_null``.

    Errors
    ------
    None: the search is for bytes, so binary fields need not be valid text.

    References
    ----------
    .. [1] R. Lu, G. Wu, B. Xie, J. Hu, *StreamBench*, UCC 2014: the program Grep.

    Examples
    --------
    >>> grep = SubstringFilter(text="err", field="line").session()
    >>> [line for line in ("an error", "Error", "ok") if grep.push({"line": line})]
    ['an error']
    """

    code: ClassVar[str] = "SBF"
    category: ClassVar[str] = "Filter"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    text: str
    field: str = "payload"
    invert: bool = False
    keep_null: bool = False

    def validate(self) -> None:
        try:
            self.text.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"text must be Unicode text, got {self.text!r}") from None

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text"}

    def passes(self, batch: pa.RecordBatch, dead: DeadLetters) -> npt.NDArray[np.bool_]:
        column = batch.column(self.field)
        if pa.types.is_null(column.type):
            return np.full(batch.num_rows, self.keep_null)
        passes = contains(column, self.text)
        if self.invert:
            passes = ~passes
        if column.null_count:
            passes = np.where(column.is_valid(), passes, self.keep_null)
        return passes

    @classmethod
    def cases(cls) -> Iterable[Case]:
        lines = ["a river", "", None, "River", "ünter", "über", "a\0b", "rriver"]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(8), pa.int64()), "payload": lines, "n": range(8)})
        yield Case(cls(text="river"), batch)
        yield Case(cls(text="ü", invert=True), batch, "others")
        yield Case(cls(text="", keep_null=True), batch, "all")
