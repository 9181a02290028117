"""Parsing of SenML messages into observations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.order import is_ordinal, next_ordinal, ordinals
from riot_ops.core.parameters import Bytes, Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP, StreamSchema, stream_schema
from riot_ops.kernels.arrays.arrow import concat_batches
from riot_ops.task import Case, Requirement, StatelessTask, register
from riot_ops.tasks.parse.senml_layout import Layout, resolve_layout
from riot_ops.tasks.parse.senml_reader import read_messages

__all__ = ["ParseSenML"]


@register
@dataclass(frozen=True, kw_only=True)
class ParseSenML(StatelessTask):
    """Parse SenML messages into observations, or into one row per message.

    A message is a pack of RFC 8428, a JSON array ``[{"bn": base name, "bt": base time, "n": name, "u": unit,
    "v" | "vs" | "vb" | "vd": value, "t": time}, ...]``, or a JSON object ``{"e": [record, ...], "bt": base time,
    "bn": base name}``, as in drafts of that RFC, where a text may also be ``sv``. Base fields hold from the record that
    has them on, and a base value is added to numbers. The message's time in milliseconds and a comma may stand before
    it. A byte order mark, and white space around it, such as a line end, are ignored.

    Parameters
    ----------
    schema : str, StreamSchema or None, default None
        A stream schema, or the name of one ("city", "taxi", "fit", "grid"). None: any SenML, one observation
        per record; slower.
    fields : tuple of str or None, default None
        Fields of the schema to emit, always in schema order; None: the schema's observed fields.
    layout : "observations" or "wide", default "observations"
        One row per field, or one row per message with a column per field.
    meta : bool, default False
        Add a column ``meta``: the values of the schema's meta fields in their order, joined by
        commas, with the time field in milliseconds and missing values left empty.
    raw : bool, default False
        Keep each value's text in a column ``text`` (layout "observations").
    field : str, default "payload"
        Text or binary input field with the message.
    concatenate_names : bool, default False
        Whether a record's name is ``bn + n`` (RFC 8428); otherwise ``bn`` is the name of records
        without ``n``.
    time_unit : "s", "ms" or None, default None
        The unit of ``bt`` and ``t``: seconds, as in RFC 8428, or milliseconds, as in RIoTBench and the output of
        :class:`CSVToSenML`. None: seconds without a schema, milliseconds with one.
    sums : bool, default False
        Add a column ``sum`` (without a schema): the record's ``s`` plus the base sum ``bs``, else null. Without it a
        record that has a sum and no value is rejected, and a sum beside a value is left out.
    units : bool, default False
        Add a column ``unit`` (layout "observations"): the record's ``u``, else the message's ``bu``, else null.
    on_error : "record", "null" or "message", default "record"
        What is rejected if a reading is not a number. "record": its record, which gives no observation (in layout
        "wide" a null). "null" (only with a schema): its record, which still gives a null observation, so that
        :class:`AssembleMessage` does not wait for it. "message": the whole message.
    max_bytes : int, 1 to 2^30, default 1048576
        Longest message accepted.
    max_output_bytes : int, 1 to 2^30, default 16777216
        Most text accepted in all records of one message together; each record repeats the sensor and ``meta``.

    Shapes and rates
    ----------------
    1:N: an observation for each of the N fields, even if the message lacks it, except for rejected records; 1:1
    with ``layout="wide"``. O(bytes) time, no state. Large output is split into several batches.

    Columns: seq and ``ordinal`` if the input has them, a further ``ordinal`` (the place of the field), event_time,
    sensor_id, obs_type, value, then text (if a field is text, or with ``raw``), sum (with ``sums``), unit (with
    ``units``) and meta.
    In layout "wide": seq, event_time, sensor_id, a column per field, meta. Other input columns are dropped.

    The event time is the base time, plus in layout "observations" the record's ``t``. Without a base time it is the
    message's time: the time before the comma, else the event time of the input, else 0. In seconds, a sum of ``bt``
    and ``t`` below 2^28 is relative to the message's time, and layout "wide" takes the latest time of the records if
    there is no base time. The value of a record is its ``v``, else ``vs``, ``sv``, ``vb`` or ``vd``; if a name occurs
    several times, its last record counts. A number may be written as text; a boolean is 1 or 0; data (``vd``) has its
    base64 text and no number. A text field also has a value if its text is a number. Without a schema the sensor is
    the base name, and ``v`` must be a number.

    Missing values
    --------------
    An absent field, JSON null, blank text and the text ``null`` give a null value.

    Errors
    ------
    For a record (or its whole message, see ``on_error``): ``not_a_number``; ``out_of_range`` (numbers beyond
    float64, times outside the years 1 to 9999); ``malformed`` (a value that is a list or an object; a ``vs``, ``sv`` or
    ``vd`` that is not text; a ``vb`` that is not true or false; a unit, or without a schema a name, that is not text; a
    sum without a value; a field whose name ends with ``_``, which must be understood). For a
    message: ``empty``; ``invalid_utf8``; ``malformed`` (not JSON, or not SenML; a version ``bver`` above 10; a base
    field whose name ends with ``_``); ``too_deep`` (nested deeper than 32); ``missing_id`` (the schema's id field is
    missing); ``too_large``; ``not_a_number`` and ``out_of_range`` for its base time.

    References
    ----------
    .. [1] C. Jennings et al., *Sensor Measurement Lists (SenML)*, RFC 8428, section 4.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task SML.

    Examples
    --------
    >>> sml = ParseSenML(schema="grid").session()
    >>> line = '8000,{"e":[{"n":"meterid","sv":"m1"},{"n":"energyconsumed","v":"2.5"}],"bt":8000}'
    >>> [(o["sensor_id"], o["obs_type"], o["value"]) for o in sml.push({"payload": line})]
    [('m1', 'energyconsumed', 2.5)]
    >>> sml.push({"payload": line.replace("2.5", "much")}), sml.errors[0]["reason"]
    ([], 'not_a_number')
    """

    code: ClassVar[str] = "SML"
    category: ClassVar[str] = "Parse"
    pattern: ClassVar[str] = "FlatMap"
    selectivity: ClassVar[str] = "1:N"

    schema: str | StreamSchema | None = None
    fields: Names | None = None
    layout: Literal["observations", "wide"] = "observations"
    meta: bool = False
    raw: bool = False
    field: str = "payload"
    concatenate_names: bool = False
    time_unit: Literal["s", "ms"] | None = None
    sums: bool = False
    units: bool = False
    on_error: Literal["record", "null", "message"] = "record"
    max_bytes: Bytes = 1 << 20
    max_output_bytes: Bytes = 1 << 24

    def validate(self) -> None:
        if self.schema is None:
            for name, given in (
                ("fields", self.fields is not None),
                ("meta", self.meta),
                ("layout", self.layout == "wide"),
                ("on_error", self.on_error == "null"),
            ):
                if given:
                    value = getattr(self, name)
                    raise ConfigError(f'{name} = {value!r} needs a schema, such as "city"')
            return
        if self.sums:
            raise ConfigError("sums = True needs schema=None: the fields of a schema have no sums")
        schema = stream_schema(self.schema)
        allowed = [c for c in schema.columns if c != schema.time_field]
        for name in self.fields or ():
            if name not in allowed:
                raise ConfigError(
                    f"fields: the schema {schema.name!r} has no field {name!r} to emit; it has "
                    f"{', '.join(allowed)}{did_you_mean(name, allowed)}"
                )
        if self.fields is not None and not 0 < len(self.fields) == len(set(self.fields)):
            raise ConfigError(f"fields must name at least one field, none twice; got {self.fields!r}")
        if self.units and self.layout == "wide":
            raise ConfigError('units = True needs layout="observations": only this layout has a column unit')
        if self.raw and self.layout == "wide":
            raise ConfigError('raw = True needs layout="observations": only this layout has a column text')

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text"}

    def expands(self) -> bool:
        return self.layout == "observations"

    def writes(self) -> frozenset[str]:
        names = self.output_schema(pa.schema([(self.field, pa.string())])).names
        return frozenset(name for name in names if not is_ordinal(name))

    @cached_property
    def resolved(self) -> Layout:
        """What it reads from a message with a schema, see :func:`resolve_layout`."""
        return resolve_layout(self)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        seq = [schema.field("seq")] if "seq" in schema.names else []
        places = [schema.field(name) for name in ordinals(schema.names) if name != self.field]
        time, sensor = pa.field("event_time", TIMESTAMP), pa.field("sensor_id", pa.string())
        meta = [pa.field("meta", pa.string())] if self.meta else []
        if self.layout == "wide":
            layout = self.resolved
            fields = [
                pa.field(name, pa.string() if is_text else pa.float64())
                for name, is_text in zip(layout.fields, layout.is_text, strict=True)
            ]
            return pa.schema([*seq, *places, time, sensor, *fields, *meta])
        text = [pa.field("text", pa.string())] if self.schema is None or self.resolved.with_text else []
        return pa.schema(
            [
                *seq,
                *places,
                pa.field(next_ordinal(schema.names), pa.int64(), nullable=False),
                time,
                sensor,
                pa.field("obs_type", pa.string()),
                pa.field("value", pa.float64()),
                *text,
                *([pa.field("sum", pa.float64())] if self.sums else []),
                *([pa.field("unit", pa.string())] if self.units else []),
                *meta,
            ]
        )

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        return concat_batches(list(self.batches(batch, errors)))

    def batches(self, batch: pa.RecordBatch, errors: RejectedRecords) -> Iterator[pa.RecordBatch]:
        return read_messages(self, batch, errors)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        def city(source: str, temperature: str, more: str = "") -> str:
            return (
                '{"e":[{"u":"string","n":"source","sv":' + source + "},"
                '{"v":"6.1","u":"lon","n":"longitude"},{"v":"46.2","u":"lat","n":"latitude"},'
                '{"v":' + temperature + ',"u":"far","n":"temperature"},'
                '{"v":"53.7","u":"per","n":"humidity"},{"v":"0","u":"per","n":"light"},'
                '{"v":"411.02","u":"per","n":"dust"}' + more + '],"bt":1422748800000}'
            )

        lines = [
            "1422748800000," + city('"s1"', '"8"', ',{"v":"140","u":"per","n":"airquality_raw"}'),
            "1422748800000," + city('"s2"', '"-7.25"', ',{"v":"11","u":"per","n":"airquality_raw"}') + "\r\n",
            city('"sensör"', "8e-1"),
            " " + city('"null"', '"1"'),
            city('"s\\u0033"', '"null"'),
            city('"s4"', '"warm"'),
            city('"s5"', "1e999"),
            city('"s6"', '"0.1234567890123456789"'),
            city('""', '"3"'),
            "",
            None,
            '{"e":',
            "[" * 40,
            '{"e":[{"n":"source","vb":true}]}',
            "17,[]",
        ]
        encoded = [None if line is None else line.encode() for line in lines]
        payload = pa.array([*encoded, b"\xff{}"], pa.binary())
        batch = pa.RecordBatch.from_arrays(
            [pa.array(range(len(payload)), pa.int64()), pa.array([10**15] * len(payload), TIMESTAMP), payload],
            schema=pa.schema(
                [pa.field("seq", pa.int64(), nullable=False), ("event_time", TIMESTAMP), ("payload", pa.binary())]
            ),
        )
        yield Case(cls(schema="city"), batch, "city")
        yield Case(cls(schema="city", layout="wide", meta=True), batch, "city-wide")
        yield Case(cls(schema="city", meta=True, raw=True, fields=("dust", "source")), batch, "city-raw")
        yield Case(cls(schema="city", units=True, on_error="message"), batch, "city-units")
        yield Case(cls(), batch, "generic")
        trips = pa.RecordBatch.from_pydict(
            {
                "payload": [
                    '{"bt":"1358101800000","e":[{"n":"taxi_identifier","sv":"14Ü"},{"n":"hack_license","sv":"08F9"},'
                    '{"n":"payment_type","sv":"CSH"},{"n":"fare_amount","v":29.00,"t":-500},'
                    '{"n":"tip_amount","v":null}]}',
                    '{"bt":0,"e":[{"n":"taxi_identifier","sv":"7"},{"n":"hack_license","sv":"1e9"},'
                    '{"n":"fare_amount","v":1},{"n":"fare_amount","v":true}]}',
                    "nothing",
                    '{"e":[]}',
                ]
            }
        )
        yield Case(cls(schema="taxi"), trips, "taxi")
        yield Case(cls(schema="taxi", layout="wide"), trips, "taxi-wide")
        pack = pa.RecordBatch.from_pydict(
            {
                "ordinal": [3, 4],
                "payload": [
                    '{"bn":"urn:dev:1:","bt":1.5,"e":[{"n":"temp","v":23.5,"u":"Cel"},{"n":"on","vb":false,"t":"2"},'
                    '{"n":"label","sv":"caf\\u00e9"},{}]}',
                    '{"e":[{"n":"x","v":"y"}]}',
                ],
            }
        )
        yield Case(cls(concatenate_names=True, units=True), pack, "generic-names")
        packs = pa.RecordBatch.from_pydict(
            {
                "event_time": pa.array([1_717_243_200_000_000] * 5, TIMESTAMP),
                "payload": [
                    '[{"bn":"urn:dev:1:","bt":1717243200,"bu":"Cel","bv":20,"n":"temp","v":1.5},{"n":"rh","u":"%RH","v":40}]',
                    '[{"bn":"d","n":"state","vs":"open","t":-5},{"n":"nfc","vd":"aGkgCg"},{"bs":2,"n":"kWh","s":1.5}]',
                    '[{"bn":"d","bver":11,"n":"a","v":1}]',
                    '[{"n":"a","v":1,"scale_":10},{"bn":"e"},{"n":"b","vb":true}]',
                    '{"bt":1717243200,"e":[{"n":"source","vs":"s1"},{"n":"dust","v":2,"t":-1.5}]}',
                ],
            }
        )
        yield Case(cls(concatenate_names=True, sums=True), packs, "packs")
        yield Case(cls(schema="city", time_unit="s"), packs, "city-seconds")
        yield Case(cls(time_unit="ms"), packs, "milliseconds")
