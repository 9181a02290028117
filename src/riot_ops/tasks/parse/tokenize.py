"""Splitting of text into tokens."""

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

from riot_ops.core.checks import check_encoding
from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import byte_spans, concat_batches, text_chunk_ranges
from riot_ops.kernels.arrays.rows import take
from riot_ops.kernels.text.encodings import to_utf8
from riot_ops.kernels.text.strings import non_utf8
from riot_ops.kernels.text.tokens import NO_TRIM, SEPARATOR, split_tokens
from riot_ops.task import Case, Requirement, StatelessTask, next_ordinal, register, with_next_ordinal

__all__ = ["Tokenize"]

WORD = (string.ascii_letters + string.digits + "_").encode()
SPACE = b" \t\n\r\x0b\x0c"
#: ASCII characters that are white space in Unicode.
UNICODE_SPACE = SPACE + b"\x1c\x1d\x1e\x1f"
#: Separator between the tokens of a text that was split in Python.
BREAK = "\n"
#: Whether each byte is ASCII punctuation.
PUNCTUATION = np.zeros(256, np.bool_)
PUNCTUATION[list(string.punctuation.encode())] = True

DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@register
@dataclass(frozen=True, kw_only=True)
class Tokenize(StatelessTask):
    r"""Split text into tokens, one record each.

    Parameters
    ----------
    field : str, default "payload"
        Field with the text.
    output : str, default "word"
        Field for the token.
    split : "words", "spaces" or "punctuation", default "words"
        What a token is: a run of ASCII letters, digits and underscores; a run without ASCII white space; or a run
        without ASCII white space and punctuation.
    unicode : bool, default False
        Whether letters, digits and white space are those of Unicode; otherwise "naïve" has the words "na" and "ve".
    lowercase : bool, default False
        Whether to convert tokens to lower case; without ``unicode`` only ASCII letters are converted.
    prefix : str of one ASCII character, optional
        Only tokens with this prefix are kept: "#" keeps hash tags.
    trim : bool, default False
        Whether to strip ASCII punctuation from both ends of a token, except its ``prefix``; a token without other
        characters is dropped.
    keep : tuple of str, default ()
        Fields of the input record to keep, besides those of its order and time.
    encoding : str, default "utf-8"
        Encoding of texts of bytes, by a name that Python knows, such as "latin-1"; columns of text have none.
    coded : bool, default False
        Whether the tokens form a dictionary column of Arrow: the same tokens, but steps that process each distinct
        value once, such as keyed tasks that hash it, are faster.

    Shapes and rates
    ----------------
    text[n] -> text[m], 1:N; O(bytes) time, no state. A further field ``ordinal`` numbers the tokens of a text.

    Missing values
    --------------
    A null, or a text without a token, gives no records.

    Errors
    ------
    ``invalid_utf8``: a binary value that is not UTF-8; ``invalid_encoding``: one that is not in another encoding.

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
    keep: Names = ()
    encoding: str = "utf-8"
    coded: bool = False

    def validate(self) -> None:
        check_encoding(self.encoding)
        if self.prefix is not None and (len(self.prefix) != 1 or not self.prefix.isascii() or not self._in_token()):
            raise ConfigError(
                f"prefix must be one ASCII character that a token may have with split={self.split!r}, "
                f"got {self.prefix!r}"
            )
        if self.output in self.keep:
            raise ConfigError(f"keep must not name {self.output!r}, the field for tokens")

    def _in_token(self) -> bool:
        return bool(self.prefix and self.byte_map[ord(self.prefix)] != SEPARATOR)

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text", **dict.fromkeys(self.keep, "any")}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        fields = dict.fromkeys([*carried_fields(schema.names), *self.keep])
        out = pa.schema([schema.field(name) for name in fields if name != self.output])
        return with_next_ordinal(out.append(pa.field(self.output, DICTIONARY if self.coded else pa.string())))

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output})

    def expands(self) -> bool:
        return True

    @functools.cached_property
    def byte_map(self) -> npt.NDArray[np.uint8]:
        """What each byte of a text is replaced by before it is split: a token byte, or ``BETWEEN``."""
        table = np.arange(256, dtype=np.uint8)
        if self.split == "words":
            table[[b for b in range(256) if b not in WORD]] = SEPARATOR
        else:
            space = UNICODE_SPACE if self.unicode else SPACE
            table[list(space + (string.punctuation.encode() if self.split == "punctuation" else b""))] = SEPARATOR
        if self.lowercase:
            upper = np.frombuffer(string.ascii_uppercase.encode(), np.uint8)
            table[upper] = upper + 32
        return table

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return concat_batches(list(self.batches(batch, errors)))

    def batches(self, batch: pa.RecordBatch, errors: RejectedRecords) -> Iterator[pa.RecordBatch]:
        texts, wrong = to_utf8(batch.column(self.field), self.encoding)
        invalid = non_utf8(texts)
        for mask, reason, name in (
            (wrong, "invalid_encoding", self.encoding),
            (invalid, "invalid_utf8", "UTF-8"),
        ):
            if mask.any():
                errors.reject(batch, mask, reason, f"{self.field} is not {name}")
        if (invalid | wrong).any():
            good = pa.array(~(invalid | wrong))
            batch, texts = batch.filter(good), texts.filter(good)
        schema = self.output_schema(batch.schema)
        for start, stop in text_chunk_ranges(texts):
            part = batch.slice(start, stop - start)
            rows, places, words = self._tokens(texts.slice(start, stop - start))
            new = {self.output: words, next_ordinal(batch.schema.names): pa.array(places)}
            columns = [new[f.name] if f.name in new else take(part.column(f.name), rows) for f in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _tokens(self, column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], pa.Array]:
        """Row of each token, its place in the text, and the tokens."""
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        data, starts, ends, valid = byte_spans(column)
        table, first = self.byte_map, -1 if self.prefix is None else ord(self.prefix)
        if self.unicode and starts.size and (data[starts[0] : ends[-1]] >= 128).any():
            data, starts, ends, valid = byte_spans(
                pa.array(map(self._split_unicode, column.to_pylist()), pa.large_string())
            )
            table = np.arange(256, dtype=np.uint8)
            table[ord(BREAK)], first = SEPARATOR, -1
        trim = PUNCTUATION if self.trim and table is self.byte_map else NO_TRIM
        found = split_tokens(data, starts, ends, valid, table, first, trim, self.coded)
        buffers = [None, pa.py_buffer(found.offsets), pa.py_buffer(found.text)]
        words = pa.Array.from_buffers(pa.string(), found.offsets.size - 1, buffers, 0)
        if self.coded:
            words = pa.DictionaryArray.from_arrays(pa.array(found.codes), words, safe=False)
        return found.rows, found.places, words

    def _split_unicode(self, text: str | bytes | None) -> str | None:
        """Return the tokens of a text by the rules of Unicode, joined by the separator."""
        if text is None:
            return None
        text = text.decode() if isinstance(text, bytes) else text
        found = _TOKENS[self.split].findall(text)
        if self.prefix is not None:
            found = [token for token in found if token.startswith(self.prefix)]
        if self.trim:
            begin = len(self.prefix or "")
            parts = ((token[:begin], token[begin:].strip(string.punctuation)) for token in found)
            found = [prefix + rest for prefix, rest in parts if rest]
        return BREAK.join(token.lower() if self.lowercase else token for token in found)

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
