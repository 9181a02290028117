"""XML parsing: the benchmark's checksum, the reference on random documents, and hostile ones."""

from __future__ import annotations

import codecs
import json
import xml.sax
from xml.parsers import expat

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from riot_ops.core.errors import ConfigError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.task import Task
from riot_ops.tasks.parse.parse_xml import ParseXML
from tests.reference import parse_xml as reference
from tests.reference.splits import run
from tests.samples import expected
from tests.search import depth

NAMES = st.sampled_from(["student", "STUDENT", "firstname", "lastName", "nickname", "marks", "class", "ü", "students"])
CHARS = st.one_of(
    st.text(
        st.characters(codec="utf-8", categories=["L", "N", "Zs"], include_characters="'>]=/\n\t\r"), max_size=6
    ).filter(lambda t: "]]>" not in t),
    st.sampled_from(
        [
            "&amp;",
            "&#65;",
            "&lt;x",
            "&#x1F600;",
            "<!-- <student> -->",
            "<?pi <marks>?>",
            "<![CDATA[<student>&]]>",
            "\n    ",
            "",
        ]
    ),
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["rollno", "Rollno", "ü", "x"]),
    st.sampled_from(["393", "", "é>", "a&amp;b", "t\tb", "l\r\nx", "'", "/"]),
    max_size=3,
)


def render(node) -> str:
    name, attributes, parts, quoted, gap = node
    quote = '"' if quoted else "'"
    text = "".join(f"{gap} {k}{gap}={gap}{quote}{v.replace(quote, '')}{quote}" for k, v in attributes.items())
    inner = "".join(p if isinstance(p, str) else render(p) for p in parts)
    return f"<{name}{text}{gap}/>" if not parts else f"<{name}{text}{gap}>{inner}</{name}{gap}>"


def element(parts):
    return st.tuples(NAMES, ATTRIBUTES, st.lists(parts, max_size=4), st.booleans(), st.sampled_from(["", "", "\n"]))


DOCUMENTS = element(st.recursive(CHARS, lambda inner: st.one_of(CHARS, element(inner)), max_leaves=12)).map(render)
HEADS = st.sampled_from(["", '<?xml version="1.0"?>', '<?xml version="1.0" encoding="UTF-8"?>\n', "<!-- c -->\n"])
FIELDS = ("@rollno", "firstname", "lastname", "nickname", "marks")


@pytest.mark.long
@settings(deadline=None, max_examples=depth(250))
@given(
    st.lists(st.tuples(HEADS, DOCUMENTS), min_size=1, max_size=4),
    st.booleans(),
    st.lists(st.integers(0, 4), max_size=2),
)
def test_output_equals_the_reference(documents, binary, cuts):
    texts = [head + document for head, document in documents]
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(texts)), pa.int64()),
            "ordinal": pa.array([1] * len(texts), pa.int64()),
            "payload": pa.array(texts).cast(pa.binary() if binary else pa.string()),
        }
    )
    read = [reference.read(text, "student", FIELDS) for text in texts]
    out, errors = run(ParseXML(), batch, cuts)
    assert errors == []
    assert [(r["seq"], r["checksum"], r["records"]) for r in out] == [
        (i, checksum, len(records)) for i, (checksum, records, _) in enumerate(read)
    ]
    out, _ = run(ParseXML(layout="records"), batch, cuts)
    assert out == [
        {"seq": i, "ordinal": 1, "ordinal_2": j, **record}
        for i, (_, records, _) in enumerate(read)
        for j, record in enumerate(records)
    ]
    depth = max(d for _, _, d in read)
    assert run(ParseXML(max_depth=depth), batch)[1] == []
    if depth > 1:
        assert {e["reason"] for e in run(ParseXML(max_depth=depth - 1), batch)[1]} == {"too_deep"}


def test_checksum_equals_that_of_the_benchmark(sample_data):
    document = (sample_data / "riotbench" / "tempSAX.xml").read_bytes()
    for payload in (document, document.decode()):
        (row,) = ParseXML().session().push({"payload": payload})
        assert (row["checksum"], row["records"]) == expected(sample_data, made=(286, 5), papers=(2512, 37))
        rows = ParseXML(layout="records").session().push({"payload": payload})
        assert len(rows) == row["records"]
        first = expected(
            sample_data, made=("11", "Ada", "Field", "ad", "91"), papers=("393", "dinkar", "kadkadkad", "dinkar", "85")
        )
        names = ("rollno", "firstname", "lastname", "nickname", "marks")
        assert rows[0] == {"ordinal": 0, **dict(zip(names, first, strict=True))}


@pytest.mark.parametrize(
    "codec", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "windows-1252", "utf-8-sig"]
)
def test_declared_encodings_are_decoded(codec):
    name = {"utf-16-le": "utf-16", "utf-16-be": "utf-16", "utf-8-sig": "utf-8"}.get(codec, codec)
    text = f'<?xml version="1.0" encoding="{name}"?><s><student rollno="é"><marks>ü&amp;</marks></student></s>'
    row = {"ordinal": 0, "rollno": "é", "firstname": None, "lastname": None, "nickname": None, "marks": "ü&"}
    session = ParseXML(layout="records").session()
    assert session.push({"payload": text.encode(codec)}) == [row], session.errors
    assert session.push({"payload": text}) == [row]  # a text column ignores the declaration


@pytest.mark.parametrize("name", ["ISO-8859-15", "Windows-1251", "koi8-r", "cp437", "us-ascii", "macintosh"])
def test_single_byte_encodings_equal_those_of_python(name):
    text = f'<?xml version="1.0" encoding="{name}"?><s><student rollno="%s"/></s>'
    codec = {"us-ascii": "ascii"}.get(name, name)
    sign = b"A" if codec == "ascii" else b"\xe5"
    session = ParseXML(layout="records", fields=("@rollno",)).session()
    (row,) = session.push({"payload": text.encode() % sign})
    assert row["rollno"] == sign.decode(codec)


@pytest.mark.parametrize("codec", ["ascii", "utf-16"])
def test_unknown_encodings_are_not_looked_up(codec):
    """Python caches each looked-up name for ever, so a sender could fill its memory."""
    asked = []
    codecs.register(asked.append)
    try:
        session = ParseXML().session()
        for i in range(20):
            document = f'<?xml version="1.0" encoding="nope-{i}{"x" * i}"?><a/>'
            assert session.push({"payload": document.encode(codec)}) == []
    finally:
        codecs.unregister(asked.append)
    assert [e["reason"] for e in session.errors] == ["malformed"] * 20
    assert [name for name in asked if "nope" in name] == []
    assert "the encoding 'nope-0' is not accepted" in session.errors[0]["message"]


BOMB = (
    "<!DOCTYPE b ["
    + "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "x" * 10}">' for i in range(9))
    + "]><b>&e8;</b>"
)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("", "malformed"),
        ("<a>", "malformed"),
        ("<a></b>", "malformed"),
        ("<a/><b/>", "malformed"),
        ("text", "malformed"),
        ("<a>&undeclared;</a>", "malformed"),
        ("<a b='1' b='2'/>", "malformed"),
        ("<a>\x01</a>", "malformed"),
        (b"<a>\xff</a>", "malformed"),
        (b"\x00\x00", "malformed"),
        ('<?xml version="1.0" encoding="nope"?><a/>', None),
        (b'<?xml version="1.0" encoding="nope"?><a/>', "malformed"),
        ("<!DOCTYPE a><a/>", "forbidden_doctype"),
        (BOMB, "forbidden_doctype"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "forbidden_doctype"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "forbidden_doctype"),
        ("<!DOCTYPE a><a/>".encode("utf-16"), "forbidden_doctype"),
        ("<a><!-- <!DOCTYPE --></a>", None),
        ("<a>" * 33 + "</a>" * 33, "too_deep"),
        ("<a>" * 32 + "</a>" * 32, None),
        ("<a>" * 100_000 + "</a>" * 100_000, "too_deep"),
        ("<a>" + " " * (1 << 20) + "</a>", "too_large"),
        (None, "missing"),
    ],
)
def test_hostile_documents_are_rejected(document, reason):
    session = ParseXML().session()
    out = session.push({"payload": document})
    assert [e["reason"] for e in session.errors] == ([] if reason is None else [reason])
    assert len(out) == (reason is None)


@pytest.mark.long
@settings(deadline=None, max_examples=depth(200))
@given(
    st.one_of(
        st.binary(max_size=60),
        DOCUMENTS.map(str.encode).flatmap(
            lambda d: st.tuples(st.integers(0, len(d)), st.binary(max_size=2)).map(
                lambda c: d[: c[0]] + c[1] + d[c[0] + 1 :]
            )
        ),
    )
)
def test_any_bytes_are_parsed_or_rejected(document):
    try:
        expat.ParserCreate().Parse(document, True)
        good = b"<!DOCTYPE" not in document
    except expat.ExpatError:
        good = False
    session = ParseXML(layout="records").session()
    session.push({"payload": document})
    assert bool(session.errors) != good


def test_valid_and_rejected_documents_keep_their_order():
    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(6), pa.int64()),
            "payload": ["<s><r>1</r><r>2</r></s>", "<s>", "<r>&amp;</r>", None, "<r>3</r>", "<s/>"],
        }
    )
    session = ParseXML(layout="records", record="r", fields=("x",)).session()
    out = session.push_batch(batch)
    assert out.to_pylist() == [{"seq": s, "ordinal": n, "x": None} for s, n in ((0, 0), (0, 1), (2, 0), (4, 0))]
    assert sorted(e["seq"] for e in session.errors) == [1, 3]


def test_layout_sets_pattern_and_selectivity():
    layouts = [ParseXML(), ParseXML(layout="records")]
    assert [(task.pattern, task.selectivity) for task in layouts] == [("Transform", "1:1"), ("FlatMap", "1:N")]


def test_field_names_the_document():
    document = '<class><student rollno="7"><firstname>Ada</firstname></student></class>'
    (row,) = ParseXML(field="document").session().push({"payload": "<x/>", "document": document})
    assert (row["checksum"], row["records"], row["payload"]) == (17, 1, "<x/>")
    records = ParseXML(field="document", layout="records", fields=("@rollno",)).session()
    assert records.push({"payload": "<x/>", "document": document}) == [{"payload": "<x/>", "ordinal": 0, "rollno": "7"}]


def test_document_may_have_many_records():
    session = ParseXML(layout="records", record="r", fields=("x",)).session()
    for body in ("<r><x>1</x></r>", "<r/>", "&amp;<r><x>&amp;</x></r>"):
        rows = session.push({"payload": "<s>" + body * 5000 + "</s>"})
        assert [row["ordinal"] for row in rows] == list(range(5000))
    assert session.errors == []


def test_repeated_fields_count_towards_the_limit():
    document = "<s>" + "<student><marks>" + "7" * 50 + "</marks></student>" + "<student/>" * 9 + "</s>"
    rows = {"note": ["n" * 100, "n" * 94, "n" * 95], "payload": [document] * 3}
    batch = pa.RecordBatch.from_pydict(rows)
    out, errors = run(ParseXML(layout="records", max_output_bytes=990), batch)
    assert [len(r["note"]) for r in out] == [94] * 10
    assert [e["reason"] for e in errors] == ["too_large"] * 2
    assert len(run(ParseXML(layout="records", max_output_bytes=1000), batch)[0]) == 20
    assert len(run(ParseXML(layout="records"), batch)[0]) == 30
    nested = batch.set_column(0, "note", pa.array([["n" * 99], ["n" * 2], None]))
    out, _ = run(ParseXML(layout="records", max_output_bytes=990), nested)
    assert [r["note"] for r in out] == [["nn"]] * 10 + [None] * 10


@pytest.mark.long
def test_large_output_is_split_into_batches():
    document = "<s>" + "".join(f"<r><x>{r}</x></r>" for r in range(300)) + "</s>"
    notes = [chr(65 + i % 26) * 40_000 for i in range(20)]
    batch = pa.RecordBatch.from_pydict({"seq": range(20), "note": notes, "payload": [document] * 20})
    made = list(ParseXML(layout="records", record="r", fields=("x",)).batches(batch, RejectedRecords("x")))
    assert [b.num_rows for b in made] == [1500, 1500, 1500, 1500]
    at = 0
    for part in made:
        assert part.column("x").to_pylist() == [str(r) for r in range(300)] * 5
        assert [note.as_py()[:2] for note in part.column("note")[::300]] == [n[:2] for n in notes[at : at + 5]]
        assert part.column("seq").to_pylist()[::300] == list(range(at, at + 5))
        at += 5


@pytest.mark.parametrize("forms", [["utf-8"], ["utf-16"], ["utf-8", "utf-16"]])
def test_references_in_many_records_are_resolved(forms):
    """The row buffers grow in the middle of a document, and texts resolved so far are discarded."""
    documents = [
        ("<s>" + "".join(f"<r><x>{d}&amp;ü&#{300 + r};</x></r>" for r in range(150)) + "</s>").encode(
            forms[d % len(forms)]
        )
        for d in range(5)
    ]
    out, errors = run(
        ParseXML(layout="records", record="r", fields=("x",)), pa.RecordBatch.from_pydict({"payload": documents})
    )
    assert errors == []
    assert out == [{"ordinal": r, "x": f"{d}&ü{chr(300 + r)}"} for d in range(5) for r in range(150)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_columns_of_any_text_type_are_read(kind):
    texts = ["<s><student rollno='ü'/></s>", None, "<s>", "<s><student rollno='&amp;'/></s>"]
    column = pa.array(texts, pa.string()).cast(kind)
    for payload in (column, column.dictionary_encode()):
        batch = pa.RecordBatch.from_arrays([payload], ["payload"])
        out, errors = run(ParseXML(layout="records", fields=("@rollno",)), batch, [2])
        assert out == [{"ordinal": 0, "rollno": "ü"}, {"ordinal": 0, "rollno": "&"}]
        assert [(e["reason"], e["raw"]) for e in errors] == [("missing", None), ("malformed", "<s>")]


def test_dictionary_values_are_decoded_as_declared():
    document = "<?xml version='1.0' encoding='iso-8859-1'?><student rollno='é'/>".encode("latin-1")
    batch = pa.RecordBatch.from_arrays([pa.array([document, document]).dictionary_encode()], ["payload"])
    out, errors = run(ParseXML(layout="records", fields=("@rollno",)), batch)
    assert (out, errors) == ([{"ordinal": 0, "rollno": "é"}] * 2, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"fields": ()},
        {"record": ""},
        {"record": "@x"},
        {"fields": ("Student",)},
        {"fields": ("a", "a")},
        {"fields": ("@a", "a")},
        {"fields": ("@",)},
        {"fields": ("temp@value",)},
        {"fields": ("temp/@value",)},
        {"fields": ("in/min",)},
        {"fields": ("temp[1]",)},
        {"fields": ("//min",)},
        {"fields": ("te mp",)},
        {"fields": ("1st",)},
        {"fields": ("@a/b",)},
        {"record": "a/b"},
        {"max_depth": 0},
        {"max_bytes": 0},
        {"max_output_bytes": (1 << 30) + 1},
        {"layout": "tree"},
    ],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ConfigError):
        ParseXML(**wrong)


def test_descriptor_restores_the_task():
    task = ParseXML(layout="records", fields=("@id", "ü"))
    assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert eval(repr(task)) == task


class _Sum(xml.sax.ContentHandler):
    """The handler of the benchmark, from its description."""

    NAMES = ("firstname", "lastname", "nickname", "marks")

    def __init__(self) -> None:
        self.total = self.waiting = 0

    def startElement(self, name, attrs):  # noqa: N802
        if name == "student":
            self.total += len(attrs.get("rollno", ""))
        elif name.lower() in self.NAMES:
            self.waiting = self.NAMES.index(name.lower()) + 1
            self.total += 4 + self.waiting

    def characters(self, content):
        if self.waiting:
            self.total += len(content) + self.waiting
            self.waiting = 0

    def endElement(self, name):  # noqa: N802
        self.total += len(name) if name == "student" else 0


def test_checksum_equals_that_of_event_handlers(sample_data):
    document = (sample_data / "riotbench" / "tempSAX.xml").read_bytes()
    handler = _Sum()
    xml.sax.parseString(document, handler)
    assert handler.total == ParseXML().session().push({"payload": document})[0]["checksum"]
