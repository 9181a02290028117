"""Text to tokens."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried
from riot_ops.dataflows.dspbench.operators.bag_of_words import CODED
from riot_ops.kernels.arrays.arrow import byte_spans, joined, text_pieces
from riot_ops.kernels.arrays.rows import taken
from riot_ops.kernels.text.strings import not_utf8
from riot_ops.kernels.text.tokens import BETWEEN, NO_TRIM, tokens
from riot_ops.task import Case, Requirement, StatelessTask, next_ordinal, register, with_next_ordinal

__all__ = ["Tokenize"]

WORD = (string.ascii_letters + string.digits + "_").encode()
SPACE = b" \t\n\r\x0b\x0c"
#: What stands in place of the one separator that is left, where texts are cut by Python.
CUT = "\n"
PUNCTUATION = np.zeros(256, np.bool_)
PUNCTUATION[list(string.punctuation.encode())] = True


@register
@dataclass(frozen=True, kw_only=True)
class Tokenize(StatelessTask):
    r"""Cut text into its tokens, a record each.

    Parameters
    ----------
    field : str, default "payload"
        Field with the text.
    output : str, default "word"
        Field for a token.
    split : "words", "spaces" or "punctuation", default "words"
        What a token is: a run of ASCII letters, digits and underscores; of anything but ASCII white space; or of
        anything but ASCII white space and punctuation.
    unicode : bool, default False
        Whether letters, digits and white space are those of Unicode; else "naïve" has the words "na" and "ve".
    lowercase : bool, default False
        Whether tokens are in lower case; without ``unicode`` only ASCII letters are changed.
    prefix : str of one ASCII character, optional
        Tokens that begin otherwise are left out: "#" takes hash tags.
    trim : bool, default False
        Whether ASCII punctuation at both ends of a token, but not its ``prefix``, is taken off; where nothing else is
        left there is no token.
    keep : tuple of str, default ()
        Fields of the record that its tokens carry, besides its order and time.
    coded : bool, default False
        Whether the tokens are numbers into a list of the different ones of a batch (a dictionary column of Arrow): the
        same tokens, which cost those less who look at one once, such as keyed tasks that hash it.

    Shapes and rates
    ----------------
    text[n] -> text[m], 1:N; O(bytes) time, no state. Tokens are told apart by a further ``ordinal``.

    Missing values
    --------------
    Of a null, and of text without a token, there are no records.

    Errors
    ------
    ``invalid_utf8``: binary that is no text.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: word count, spam filter, trending topics.

    Examples
    --------
    >>> words = Tokenize(field="text").session()
    >>> [out["word"] for out in words.push({"text": "River cloud, river."})]
    ['River', 'cloud', 'river']
    >>> tags = Tokenize(field="text", split="spaces", prefix="#", output="topic").session()
    >>> [out["topic"] for out in tags.push({"text": "so #Warm today #iot!"})]
    ['#Warm', '#iot!']
    """

    code: ClassVar[str] = "TOK"
    category: ClassVar[str] = "Parse"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:N"

    field: str = "payload"
    output: str = "word"
    split: Literal["words", "spaces", "punctuation"] = "words"
    unicode: bool = False
    lowercase: bool = False
    prefix: str | None = None
    trim: bool = False
    keep: tuple[str, ...] = ()
    coded: bool = False

    def validate(self) -> None:
        if self.prefix is not None and (len(self.prefix) != 1 or not self.prefix.isascii() or not self._in_token()):
            raise ConfigError(
                f"prefix must be one ASCII character that a token may have with split={self.split!r}, "
                f"got {self.prefix!r}"
            )
        if self.output in self.keep:
            raise ConfigError(f"keep must not name {self.output!r}, the field for tokens")

    def _in_token(self) -> bool:
        return bool(self.prefix and self._table[ord(self.prefix)] != BETWEEN)

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text", **dict.fromkeys(self.keep, "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        fields = dict.fromkeys([*carried(schema.names), *self.keep])
        out = pa.schema([schema.field(name) for name in fields if name != self.output])
        return with_next_ordinal(out.append(pa.field(self.output, CODED if self.coded else pa.string())))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def expands(self) -> bool:
        return True

    @functools.cached_property
    def _table(self) -> npt.NDArray[np.uint8]:
        """What each byte of a text becomes."""
        table = np.arange(256, dtype=np.uint8)
        if self.split == "words":
            table[[b for b in range(256) if b not in WORD]] = BETWEEN
        else:
            table[list(SPACE + (string.punctuation.encode() if self.split == "punctuation" else b""))] = BETWEEN
        if self.lowercase:
            upper = np.frombuffer(string.ascii_uppercase.encode(), np.uint8)
            table[upper] = upper + 32
        return table

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        return joined(list(self.batches(batch, dead)))

    def batches(self, batch: pa.RecordBatch, dead: DeadLetters) -> Iterator[pa.RecordBatch]:
        spoiled = not_utf8(batch.column(self.field))
        if spoiled.any():
            dead.reject(batch, spoiled, "invalid_utf8", f"{self.field} is no UTF-8")
            batch = batch.filter(pa.array(~spoiled))
        schema = self.output_schema(batch.schema)
        for start, stop in text_pieces(batch.column(self.field)):
            part = batch.slice(start, stop - start)
            rows, places, words = self._tokens(part.column(self.field))
            made = {self.output: words, next_ordinal(batch.schema.names): pa.array(places)}
            columns = [made[f.name] if f.name in made else taken(part.column(f.name), rows) for f in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _tokens(self, column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], pa.Array]:
        """Row and place of each token, and the tokens."""
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        data, starts, ends, valid = byte_spans(column)
        table, first = self._table, -1 if self.prefix is None else ord(self.prefix)
        if self.unicode and starts.size and (data[starts[0] : ends[-1]] >= 128).any():
            data, starts, ends, valid = byte_spans(pa.array(map(self._cut, column.to_pylist()), pa.large_string()))
            table = np.arange(256, dtype=np.uint8)
            table[ord(CUT)], first = BETWEEN, -1
        trim = PUNCTUATION if self.trim and table is self._table else NO_TRIM
        found = tokens(data, starts, ends, valid, table, first, trim, self.coded)
        buffers = [None, pa.py_buffer(found.offsets), pa.py_buffer(found.text)]
        words = pa.Array.from_buffers(pa.string(), found.offsets.size - 1, buffers, 0)
        if self.coded:
            words = pa.DictionaryArray.from_arrays(pa.array(found.codes), words, safe=False)
        return found.rows, found.places, words

    def _cut(self, text: str | bytes | None) -> str | None:
        """The tokens of a text by the rules of Unicode, with one separator between them."""
        if text is None:
            return None
        whole = text.decode() if isinstance(text, bytes) else text
        found = _TOKENS[self.split].findall(whole)
        taken = found if self.prefix is None else [one for one in found if one.startswith(self.prefix)]
        if self.trim:
            begin = len(self.prefix or "")
            parts = ((one[:begin], one[begin:].strip(string.punctuation)) for one in taken)
            taken = [before + rest for before, rest in parts if rest]
        return CUT.join(one.lower() if self.lowercase else one for one in taken)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array(range(7), pa.int64()),
                "key": ["a", "b", None, "", "ü", "a", "b"],
                "text": ["River cloud, river.", "", None, " \t!", "naïve #Ünï_1 #x", "#a\0b--c", "Ⅷ\u00a0x"],
            }
        )
        yield Case(cls(field="text", keep=("key",)), batch)
        yield Case(cls(field="text", split="spaces", prefix="#", output="text"), batch, "tags")
        yield Case(cls(field="text", split="spaces", trim=True), batch, "trimmed")
        yield Case(cls(field="text", coded=True), batch, "as numbers")
        yield Case(cls(field="text", split="punctuation", unicode=True, lowercase=True), batch, "unicode")


_TOKENS = {
    "words": re.compile(r"\w+"),
    "spaces": re.compile(r"\S+"),
    "punctuation": re.compile(rf"[^\s{re.escape(string.punctuation)}]+"),
}
