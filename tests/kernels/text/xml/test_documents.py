"""The compiled reader against Expat: it accepts a subset, reads the same, and leaves little to Expat."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock
from xml.parsers import expat

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import RecordError
from riot_ops.kernels.text.xml import documents as xml_documents
from riot_ops.kernels.text.xml.documents import read_documents
from tests.reference import parse_xml as reference
from tests.search import depth

FIELDS = ("@rollno", "@ü", "firstname", "marks")


class NoExpat:
    """Replaces the Expat reader and rejects everything."""

    def __init__(self, *_):
        pass

    def read(self, *_):
        raise RecordError("left to Expat", reason="malformed")


@contextmanager
def without_expat():
    with mock.patch.object(xml_documents, "ExpatReader", NoExpat):
        yield


def read(documents, max_depth=32):
    """``(checksum, records)`` of each document by the compiled reader alone, None for those that it leaves to Expat."""
    kind = pa.string() if documents and isinstance(documents[0], str) else pa.binary()
    with without_expat():
        found = read_documents(
            pa.array(documents, kind), np.ones(len(documents), np.bool_), "student", FIELDS, max_depth, True
        )
    left = {d for d, _ in found.rejected.get("malformed", ())}
    out, row = [], 0
    for d, n in enumerate(found.records.tolist()):
        rows = [
            {
                name.removeprefix("@"): bytes(found.data[found.starts[f, r] : found.ends[f, r]]).decode()
                if found.starts[f, r] >= 0
                else None
                for f, name in enumerate(FIELDS)
            }
            for r in range(row, row + n)
        ]
        row += n
        out.append(None if d in left else (int(found.checksums[d]), rows))
    return out


def accepts(document) -> bool:
    """Whether Expat accepts a document, and it has no DOCTYPE."""
    parser = expat.ParserCreate("utf-8" if isinstance(document, str) else None)
    doctypes = []
    parser.StartDoctypeDeclHandler = lambda *names: doctypes.append(names)
    try:
        parser.Parse(document, True)
    except (expat.ExpatError, LookupError, ValueError):
        return False
    return not doctypes


def agree(documents):
    """Check that accepted documents are accepted and read the same by Expat; returns their number."""
    taken = 0
    for document, found in zip(documents, read(documents), strict=True):
        if found is not None:
            taken += 1
            assert accepts(document), document
            assert found == reference.read(document, "student", FIELDS)[:2], document
    return taken


PIECES = st.sampled_from(
    [
        *(
            "<",
            "</",
            ">",
            "/>",
            "=",
            '"',
            "'",
            " ",
            "\n",
            "\r",
            "\t",
            "-",
            "--",
            "]",
            "]]>",
            "?",
            "?>",
            "&",
            ";",
            "text",
        ),
        *(
            "student",
            "STUDENT",
            "firstname",
            "marks",
            "a",
            "a:b",
            ":",
            "b.",
            "1",
            "ü",
            "é漢",
            "×",
            "·",
            "\u0300",
            "\ufeff",
        ),
        *("<a>", "</a>", "<student>", "</student>", "<firstname>", "</firstname>", "<marks/>", "</ü >", "<a\n>"),
        *(' rollno="1"', " rollno='a\tb\r\nc&#10;'", ' ü="é&amp;"', ' a="1"', ' a="<"', ' b=">"', " x = ']]>'"),
        *(
            "&amp;",
            "&apos;",
            "&#65;",
            "&#x1F600;",
            "&#xaF;",
            "&#0;",
            "&#xD800;",
            "&#xfffe;",
            "&#1114112;",
            "&#;",
            "&#x;",
        ),
        *("&#xg;", "&#:;", "&x;", "&#99999999999999999999;"),
        *("<!--", "-->", "<!-- c -->", "<!--->-->", "<![CDATA[", "<![CDATA[<&\r\n]]]]>", "<!ELEMENT", "<!DOCTYPE a>"),
        *("<?pi x?>", "<?pi?>", "<?pi?x?>", "<?xml ?>", "<?XML ?>", "<?xmlx?>", "<?xml version='1.0'?>"),
        *("<?xml version='1.0' encoding='latin-1'?>", "<?xml version='1.1'?>", "<?xml encoding='utf-8'?>"),
        *("é", "漢字", "😀", "\x7f", "\x80", "\x01", "\x00", "\ufffe", "\uffff", "\U0001ffff"),
    ]
)
NOISE = st.lists(PIECES, max_size=8).map("".join)
TREES = st.recursive(
    st.sampled_from(["", "text", "é漢😀", "&amp;", "&#x1F600;", "<!-- c -->", "<![CDATA[<&\r\n]]]]>", "\r\n", "<?pi x?>", "]]"]),
    lambda inner: st.builds(
        "<{0}{1}>{2}</{0}{3}>".format,
        st.sampled_from(["student", "STUDENT", "firstname", "Firstname", "marks", "ü", "x:y", "a"]),
        st.lists(st.sampled_from([' rollno="1"', " ü='é'", ' a="&lt;>"', " b='a\r\nb\t'", ' q = "x"', "\n"])).map("".join),
        st.lists(inner, max_size=4).map("".join),
        st.sampled_from(["", " "]),
    ),
    max_leaves=12,
)  # fmt: skip
HEADS = [
    "",
    "\ufeff",
    "\n",
    "<!-- x -->",
    "<?xml version='1.0'?>",
    "<?xml version=\"1.0\" encoding='UTF-8' standalone='yes' ?>\n",
]
DOCUMENTS = st.builds("{}<a>{}</a>{}".format, st.sampled_from(HEADS), TREES, st.sampled_from(["", "\n", "<!-- e -->"]))


@st.composite
def damaged(draw):
    """A document with a part replaced."""
    document = draw(DOCUMENTS)
    start = draw(st.integers(0, len(document)))
    end = draw(st.integers(start, min(len(document), start + 5)))
    return document[:start] + draw(PIECES) + document[end:]


@pytest.mark.long
@settings(deadline=None, max_examples=depth(300))
@given(st.lists(st.one_of(NOISE, NOISE.map("<a>{}</a>".format), damaged(), DOCUMENTS), min_size=1, max_size=20))
def test_reader_accepts_a_subset_of_expat(documents):
    agree(documents)
    agree([document.encode() for document in documents])


@pytest.mark.long
@settings(deadline=None, max_examples=depth(200))
@given(st.lists(st.tuples(damaged(), st.integers(0, 100), st.binary(max_size=2)), min_size=1, max_size=20))
def test_reader_accepts_a_subset_of_expat_in_invalid_utf8(changes):
    agree([d.encode()[:at] + some + d.encode()[at + 1 :] for d, at, some in changes])


@pytest.mark.long
@settings(deadline=None, max_examples=depth(100))
@given(st.lists(DOCUMENTS.filter(accepts), min_size=1, max_size=20))
def test_reader_accepts_all_usual_documents(documents):
    assert agree(documents) == len(documents)


@pytest.mark.long
@pytest.mark.parametrize(
    "form",
    ["<a>{}</a>", "<a b='{}'/>", "<a><!--{}--></a>", "<a><?p {}?></a>", "<a><![CDATA[{}]]></a>", "<{}/>", "<a{}/>", "<a {}='1'/>"],
)  # fmt: skip
def test_every_character_in_every_place(form):
    before, after = form.split("{}")
    characters = [c for c in (*range(0x10000), *range(0x10000, 0x110000, 0x3FF), 0x10FFFF) if not 0xD800 <= c < 0xE000]
    documents = [f"{before}{chr(c)}{after}" for c in characters]
    names = "{}'" not in form and ("<{}" in form or "a{}" in form or "{}=" in form)
    for document, found in zip(documents, read(documents), strict=True):
        if found is not None:
            assert accepts(document), document
        elif not names and ord(document[len(before)]) >= 0x80:
            assert not accepts(document), document


def test_every_character_reference():
    codes = (*range(0x120), *range(0xD7F0, 0xE010), *range(0xFFF0, 0x10010), 0x10FFFF, 0x110000, 1 << 32, 1 << 64)
    documents = [
        f"<student rollno='{r}'><marks>{r}</marks></student>" for c in codes for r in (f"&#{c};", f"&#x{c:x};")
    ]
    documents += [d.upper().replace("STUDENT", "student").replace("ROLLNO", "rollno") for d in documents]
    assert agree(documents) == sum(map(accepts, documents))


@pytest.mark.long
def test_multibyte_sequences_equal_expat():
    rows = [bytes([a, b]) for a in range(0x80, 0x100) for b in range(0x70, 0x100)]
    rows += [
        bytes([a, b, c])
        for a in (0xC3, 0xE0, 0xE1, 0xED, 0xEF, 0xF0)
        for b in range(0x80, 0xC0)
        for c in range(0x80, 0x100)
    ]
    rows += [bytes([a, b, 0x80, 0x80]) for a in range(0xF0, 0x100) for b in range(0x80, 0xC0)]
    for bare, found in zip(rows, read([b"<a>" + row + b"</a>" for row in rows]), strict=True):
        assert (found is not None) == accepts(b"<a>" + bare + b"</a>"), bare


@pytest.mark.parametrize(
    ("head", "text", "declared"),
    [
        ("<?xml version='1.0'?>", True, True),
        ("<?xml version = \"1.0\" encoding = 'Utf-8'\nstandalone='no'?>", True, True),
        ("<?xml version='1.0' standalone='yes' ?>", True, True),
        ("<?xml version='1.0' encoding='windows-1252'?>", True, False),
        ("<?xml version='1.0' encoding='1252'?>", False, False),
        ("<?xml version='1.0' encoding='a:b'?>", False, False),
        ("<?xml version='1.0' encoding=''?>", False, False),
        ("<?xml version='1.0' standalone='maybe'?>", False, False),
        ("<?xml version='1.0' standalone='yes' encoding='utf-8'?>", False, False),
        ("<?xml version='1.0' version='1.0'?>", False, False),
        ("<?xml version='1.0'encoding='utf-8'?>", False, False),
        ("<?xml encoding='utf-8'?>", False, False),
        ("<?xml?>", False, False),
        ("<?xml ?>", False, False),
        ("<?xml version='1.0'>", False, False),
        (" <?xml version='1.0'?>", False, False),
    ],
)
def test_declarations(head, text, declared):
    document = head + "<a/>"
    assert [read([document])[0] is not None, read([document.encode()])[0] is not None] == [text, declared]
    agree([document])
    agree([document.encode()])


def test_documents_beyond_limits_are_left_to_expat():
    attributes = " ".join(f"a{i}='x'" for i in range(64))
    many, repeated = f"<a {attributes} b='1'/>", f"<a {attributes[:-8]} a0='1'/>"
    documents = [f"<a {attributes}/>", many, repeated, "<a>" * 3 + "</a>" * 3, "<a>" * 4 + "</a>" * 4]
    assert [found is not None for found in read(documents, max_depth=3)] == [True, False, False, True, False]
    found = read_documents(pa.array(documents), np.ones(5, np.bool_), "student", FIELDS, 3, False)
    assert {reason: [d for d, _ in rows] for reason, rows in found.rejected.items()} == {
        "malformed": [2],
        "too_deep": [4],
    }


@pytest.mark.long
@settings(deadline=None, max_examples=depth(100))
@given(st.lists(DOCUMENTS.filter(accepts), min_size=1, max_size=12), st.lists(st.booleans(), min_size=12, max_size=12))
def test_mixed_readers_equal_the_compiled_reader(documents, others):
    """Documents in another encoding, which Expat reads, among UTF-8 documents give the same results."""
    bodies = [document[document.index("<a>") :] for document in documents]
    mixed = [body.encode("utf-16" if other else "utf-8") for body, other in zip(bodies, others, strict=False)]
    found = read_documents(pa.array(mixed, pa.binary()), np.ones(len(mixed), np.bool_), "student", FIELDS, 32, True)
    plain = read_documents(pa.array(bodies), np.ones(len(bodies), np.bool_), "student", FIELDS, 32, True)
    assert found.checksums.tolist() == plain.checksums.tolist()
    assert found.records.tolist() == plain.records.tolist()
    assert texts(found) == texts(plain)
    assert found.rejected == {}


def texts(found):
    return [
        [None if s < 0 else bytes(found.data[s:e]) for s, e in zip(starts, ends, strict=True)]
        for starts, ends in zip(found.starts, found.ends, strict=True)
    ]
