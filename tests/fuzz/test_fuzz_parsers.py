"""SenML and XML against the standard library and naive references; the division into batches changes no record."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from xml.parsers import expat

import pyarrow as pa

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP, stream_schema
from riot_ops.tasks import ParseSenML, ParseXML
from tests.fuzz.mutation import input_batches, random_cuts
from tests.reference import parse_senml, parse_xml


def table(payloads):
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(len(payloads)), pa.int64()),
            "event_time": pa.array([10**15 + i for i in range(len(payloads))], TIMESTAMP),
            "payload": pa.array(payloads, pa.binary()),
        }
    )


def run(task, batch, edges):
    """Records, and ``(seq, reason, raw)`` of errors, of a batch cut at ``edges``."""
    rejects, out = RejectedRecords("fuzz"), []
    for a, b in pairwise(edges):
        for records in task.batches(batch.slice(a, b - a), rejects):
            records.validate(full=True)
            out += [tuple(row.values()) for row in records.set_column(*_micros(records)).to_pylist()]
    errors = [(e["seq"], e["reason"], e["raw"]) for part in rejects.take() for e in part.to_pylist()]
    return out, sorted(errors, key=repr)


def _micros(batch):
    place = batch.schema.get_field_index("event_time")
    if place < 0:
        return 0, batch.schema.field(0), batch.column(0)
    return place, "event_time", batch.column(place).cast(pa.int64())


SENML = [
    b'1422748800000,{"e":[{"u":"string","n":"source","sv":"ci4vc2ahh0"},{"v":"8.5","u":"far","n":"temperature"},'
    b'{"v":"53.7","u":"per","n":"humidity"},{"v":"0","u":"per","n":"light"},{"v":"411.02","u":"per","n":"dust"}],'
    b'"bt":1422748800000}',
    b'{"bn":"source","bu":"K","e":[{"sv":"x"},{"n":"temperature","v":-0.25,"t":5},{"n":"dust","vb":true,"u":"Cel"}],'
    b'"bt":"15.5"}\r\n',
    b'{"e":[{"n":"source","sv":"s"},{"n":"dust","v":1,"t":-2},{"n":"dust","v":5},{"n":"light","v":null}]}',
    b'{"e":[{"n":"source","sv":"s"},{"n":"dust","v":1,"t":-2}]}',
    b'{"e":[{"n":"source","sv":"s"},{"n":"dust","v":1e5,"u":"%RH"},{"n":"light","v":"12345.678","t":"3"}],"bu":"m"}',
    b'{"e":[{"n":"source","sv":"s\\u00fc"},{"n":"dust","v":1234567890.12345},{"n":"light","v":" 1 "}],"x":1}',
    '12,{"e":[{"n":"source","sv":"sensör"},{"n":"dust","v":"null"},{"n":"light","v":"warm"}]}'.encode(),
]
SENML_TOKENS = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"-", b".", b"e", b"0", b"null", b"true", b"\x00"),
    *(b'"n"', b'"v"', b'"sv"', b'"vb"', b'"t":1,', b'"u":"K",', b'"bt":1,', b'"bu":"x",', b'"bn":"sou",', b"\\ud800"),
    *(b'{"n":"dust","v":2},', b'{"n":"dust","v":"x","t":9},', b'"warm"', b"\xc3\xbc", b"\xff", b"1e400", b"\\u0041"),
]
SENML_TASKS = [
    ParseSenML(schema="city", raw=True, units=True),
    ParseSenML(schema="city", raw=True, units=True, on_error="message"),
    ParseSenML(schema="city", fields=("dust", "light", "source"), units=True, concatenate_names=True),
]


def senml_expected(task, payloads):
    """Records and reasons by the naive reference; errors of bad records have the field in place of the raw text."""
    schema = stream_schema("city")
    kinds = dict(zip(schema.columns, schema.kinds, strict=True))
    emitted = [c for c in schema.columns if c in (task.fields or schema.observed)]
    rows, errors = [], []
    for i, payload in enumerate(payloads):
        try:
            found = parse_senml.parse(
                payload,
                10**15 + i,
                fields=[(f, kinds[f]) for f in emitted],
                id_field=schema.id_field,
                concatenate=task.concatenate_names,
                raw=task.raw,
                units=True,
                alone=task.on_error == "record",
            )
        except parse_senml.Rejected as error:
            errors.append((i, error.reason))
            continue
        text = payload.decode().strip(parse_senml.BLANK)
        json.loads(text[re.search(r"[{\[]", text).start() :])  # the reference accepts JSON only
        for k, (field, observation) in enumerate(zip(emitted, found["observations"], strict=True)):
            if isinstance(observation, str):
                errors.append((i, observation))
            else:
                time, value, text, unit = observation
                rows.append((i, k, time, found["sensor"], field, value, text, unit))
    return rows, sorted(errors, key=repr)


def test_parse_senml_equals_the_reference(rng, amount):
    for payloads in input_batches(rng, amount, SENML, SENML_TOKENS):
        task, batch = rng.choice(SENML_TASKS), table(payloads)
        out, errors = run(task, batch, [0, len(payloads)])
        expected, rejected = senml_expected(task, payloads)
        assert out == expected
        assert sorted(((i, reason) for i, reason, _ in errors), key=repr) == rejected
        # the same messages in other batches
        assert run(task, batch, random_cuts(rng, len(payloads))) == (out, errors)
        wide = ParseSenML(schema="city", layout="wide", meta=True)
        assert run(wide, batch, [0, len(payloads)]) == run(wide, batch, random_cuts(rng, len(payloads)))


XML = [
    b'<?xml version="1.0"?>\n<class>\n <student rollno="393">\n  <firstname>dinkar</firstname><marks>85</marks></student></class>',
    b"<a><STUDENT rollno='x&amp;y' b=\"\"><firstName>a<!-- c -->b<![CDATA[<&]]></firstName><x/></STUDENT></a>",
    '<?xml version="1.0" encoding="UTF-8"?><s><student rollno="ü\t">é&#x1F600;<marks/></student>漢</s>'.encode(),
    b"<s><student><student><marks>1</marks></student><firstname>b</firstname></student>\r\n<?pi x?></s>",
]
XML_TOKENS = [
    *(b"<", b">", b"/", b"</", b"/>", b"=", b'"', b"'", b"&", b";", b"&lt;", b"&#65;", b"<!--", b"-->", b"<?", b"?>"),
    *(b"<![CDATA[", b"]]>", b"]]", b"<student>", b"</student>", b"<marks>", b"</marks>", b"\r", b"\n", b" ", b"\x00"),
    *("ü".encode(), b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"x:y", b"<!DOCTYPE a>", b"rollno='1'", b"--", b"xmlns"),
]
FIELDS = ("@rollno", "firstname", "marks")


def xml_expected(payloads):
    """Records by the reference over Expat, and the numbers of rejected documents."""
    rows, rejected_documents = [], []
    for i, payload in enumerate(payloads):
        parser, doctypes = expat.ParserCreate(), []
        parser.StartDoctypeDeclHandler = lambda *names, found=doctypes: found.append(names)
        try:
            parser.Parse(payload, True)
            good = not doctypes
        except (expat.ExpatError, LookupError, ValueError):
            good = False
        if not good:
            rejected_documents.append(i)
            continue
        _, records, _ = parse_xml.read(payload, "student", FIELDS)
        rows += [(i, 10**15 + i, k, *record.values()) for k, record in enumerate(records)]
    return rows, rejected_documents


def test_parse_xml_equals_the_reference(rng, amount):
    task = ParseXML(layout="records", fields=FIELDS, max_depth=1000)
    for payloads in input_batches(rng, amount, XML, XML_TOKENS):
        batch = table(payloads)
        out, errors = run(task, batch, [0, len(payloads)])
        rows, rejected_documents = xml_expected(payloads)
        assert out == rows
        assert [i for i, _, _ in sorted(errors)] == rejected_documents
        assert run(task, batch, random_cuts(rng, len(payloads))) == (out, errors)
        sums = [
            row[-2:] for row in run(ParseXML(fields=FIELDS, max_depth=1000), batch, random_cuts(rng, len(payloads)))[0]
        ]
        good = [p for i, p in enumerate(payloads) if i not in set(rejected_documents)]
        assert sums == [(c, len(r)) for c, r, _ in (parse_xml.read(p, "student", FIELDS) for p in good)]
