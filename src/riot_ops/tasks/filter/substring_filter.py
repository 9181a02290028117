"""Pass records whose text has another text in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.text.strings import contain
from riot_ops.task import Case, FilterTask, Requirement, register

__all__ = ["SubstringFilter"]


@register
@dataclass(frozen=True, kw_only=True)
class SubstringFilter(FilterTask):
    """Pass the records whose text contains another one, letter by letter; or those whose text does not.

    Parameters
    ----------
    text : str
        What is looked for, as it stands: capitals matter, and no character has a meaning of its own. An empty one is in
        every text.
    field : str, default "payload"
        Field with the text.
    invert : bool, default False
        Whether the others pass.
    keep_null : bool, default False
        Whether records without a text pass.

    Shapes and rates
    ----------------
    text[n] -> text[m], 1:0/1; O(bytes) time, no state.

    Missing values
    --------------
    Null as ``keep_null`` says.

    Errors
    ------
    None: the bytes of the text are looked for, also in binary that is no text.

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
        passes = contain(column, self.text)
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
