"""Dataflows: a fluent builder for a graph of sources, tasks and sinks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Self, TypeAlias, overload

import pyarrow as pa

from riot_ops import tasks
from riot_ops.core.display import html_display, html_table, operator_text
from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.parameters import snake_case
from riot_ops.core.secret import Secret
from riot_ops.core.sink import Sink
from riot_ops.graph.graph import is_id
from riot_ops.graph.nodes import FORWARD, Distribution, Edge, Node, Router, source_node
from riot_ops.runnable_graph import RunnableGraph
from riot_ops.tables import Table, table_from
from riot_ops.task import Task
from riot_ops.tasks.functions.filter_function import filter as filter_task
from riot_ops.tasks.functions.flat_map_function import flat_map as flat_map_task
from riot_ops.tasks.functions.keyed_function import keyed
from riot_ops.tasks.functions.map_function import map as map_task
from riot_ops.tasks.functions.result_collector import Row
from riot_ops.windows import Frame, frame_from

__all__ = ["Dataflow", "KeyedStream", "Stream", "WindowedStream", "merge"]

#: Fields with their types: those of Arrow, or their names.
Fields: TypeAlias = pa.Schema | Mapping[str, Any]
#: A function of records, or a field and a function of its values, with options.
AggregateSpec: TypeAlias = str | Sequence[Any]


@dataclass(frozen=True, repr=False)
class Stream:
    """The output of one node or several, the input of further tasks and sinks.

    Each verb appends a task and returns the stream of its results. ``id`` names it in results, errors, metrics and
    diagrams; by default it is the name of the function, or that of the verb for a lambda, or that of the task.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("greenhouse")
    >>> readings = flow.source("readings", {"bed": "string", "moisture": "double"})
    >>> _ = readings.filter(lambda row: row["moisture"] < 20, id="dry").to("alerts")
    >>> result = flow.run([{"bed": "a", "moisture": 40.5}, {"bed": "b", "moisture": 7.25}])
    >>> result["dry"]["bed"].to_pylist()
    ['b']
    """

    flow: Dataflow
    nodes: tuple[str, ...]
    distribution: Distribution = FORWARD

    @property
    def id(self) -> str:
        """The id of its node, the first one of a merged stream."""
        return self.nodes[0]

    # -- functions ---------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[[Row], Row],
        schema: Fields | None = None,
        label: str | None = None,
        *,
        adds: Fields | None = None,
        revision: int | str | None = None,
        id: str | None = None,
    ) -> Self:
        """Replace each record with the result of a function; see ``ro.map`` for the options.

        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("doubled")
        >>> def double(row):
        ...     return {"twice": 2 * row["value"]}
        >>> _ = flow.source("readings", {"value": "double"}).map(double, {"twice": "double"}).to("out")
        >>> flow.run([{"value": 1.5}])["double"].to_pylist()
        [{'seq': 0, 'twice': 3.0}]
        """
        if isinstance(function, str):
            raise ConfigError(f"map takes a function of a record, got {function!r}; tasks.Compute computes expressions")
        task = map_task(function, schema, label, adds=adds, revision=revision)
        return self._append(task, self._id(id, label, function, "map"))

    def flat_map(
        self,
        function: Callable[[Row], Iterable[Row] | None],
        schema: Fields | None = None,
        label: str | None = None,
        *,
        revision: int | str | None = None,
        id: str | None = None,
    ) -> Self:
        """Replace each record with the records that a function returns; see ``ro.flat_map`` for the options.

        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("words")
        >>> def words(row):
        ...     return [{"word": word} for word in row["text"].split()]
        >>> _ = flow.source("lines", {"text": "string"}).flat_map(words, {"word": "string"}).to("out")
        >>> flow.run([{"text": "on off"}])["words"]["word"].to_pylist()
        ['on', 'off']
        """
        task = flat_map_task(function, schema, label, revision=revision)
        return self._append(task, self._id(id, label, function, "flat_map"))

    def filter(
        self,
        condition: Callable[[Row], bool] | str,
        label: str | None = None,
        *,
        revision: int | str | None = None,
        id: str | None = None,
    ) -> Self:
        """Pass the records for which a condition is true.

        Parameters
        ----------
        condition : str or function
            An expression, see :class:`~riot_ops.tasks.Filter`; or a function of a record that returns True or False.
        label, revision : optional
            Options of ``ro.filter``, for a function.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("warm")
        >>> readings = flow.source("readings", {"kind": "string", "value": "double"})
        >>> warm = readings.filter("value > 20 and kind == 'temp'").filter(lambda row: row["value"] < 30, id="warm")
        >>> _ = warm.to("out")
        >>> flow.run([{"kind": "temp", "value": value} for value in (21.5, 19.0, 31.0)])["warm"]["value"].to_pylist()
        [21.5]
        """
        if not isinstance(condition, str):
            return self._append(
                filter_task(condition, label, revision=revision), self._id(id, label, condition, "filter")
            )
        for option, value in (("label", label), ("revision", revision)):
            if value is not None:
                raise ConfigError(f"filter: {option} = {value!r} is for a function, got the expression {condition!r}")
        return self._append(tasks.Filter(condition), id)

    def lookup(
        self,
        table: Table | Mapping[Any, Any] | str,
        on: str | Iterable[str] | None = None,
        columns: Iterable[str] | Mapping[str, str] | None = None,
        *,
        on_missing: Literal["null", "drop", "reject"] = "null",
        default: str | tuple[str, ...] | None = None,
        id: str | None = None,
    ) -> Self:
        """Append the :class:`~riot_ops.tasks.Lookup` of the values that a table has for the key of each record.

        Parameters
        ----------
        table : mapping, str, or table of :mod:`riot_ops.tables`
            The values of each key, the path of a CSV file, or another table.
        on : str or iterable of str, optional
            Fields of the key; by default the key of the stream.
        columns, on_missing, default
            Options of :class:`~riot_ops.tasks.Lookup`.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("rooms")
        >>> readings = flow.source("readings", {"sensor": "string", "value": "double"})
        >>> _ = readings.lookup({"s1": "kitchen"}, on="sensor", columns="room").to("out")
        >>> result = flow.run([{"sensor": s, "value": 1.0} for s in ("s1", "s2")])
        >>> result["lookup"]["room"].to_pylist()
        ['kitchen', None]
        """
        found = table_from(table)
        if on is None:  # a store's row has a key of its own
            on = getattr(self, "by", ()) if found.textual else ()
        options: dict[str, Any] = {"columns": columns, "on_missing": on_missing, "default": default}
        fields = (on,) if isinstance(on, str) else tuple(on)
        return self._append(tasks.Lookup(table=found, on=fields, **options), id)

    # -- tasks and sinks ---------------------------------------------------------------------------

    def apply(self, task: Task, id: str | None = None) -> Self:
        """Append a task.

        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("smooth")
        >>> _ = flow.source("readings", {"value": "double"}).apply(ro.tasks.KalmanFilter(), id="kalman").to("out")
        >>> [round(value, 3) for value in flow.run([{"value": 21.5}])["kalman"]["value"].to_pylist()]
        [21.274]
        """
        return self._append(task, id)

    @overload
    def to(self, step: Task, id: str | None = None) -> Self: ...

    @overload
    def to(self, step: Sink | str, id: str | None = None) -> Dataflow: ...

    def to(self, step: Task | Sink | str, id: str | None = None) -> Self | Dataflow:
        """Append a task, or end the stream in a sink and return the dataflow.

        Parameters
        ----------
        step : Task, Sink or str
            A sink object gets the records of each run that names no other sink for this node. A text is the id of a
            sink whose object each run names, as with :meth:`Dataflow.sink`.
        id : str, optional
            Id of the task, or of the sink object; by default the name of its class.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow, kept = ro.Dataflow("kept"), ro.MemorySink()
        >>> flow.source("readings", {"value": "double"}).to(ro.tasks.KalmanFilter(), id="kalman").to(kept)
        <Dataflow 'kept': 1 tasks, 2 edges>
        >>> _ = flow.run([{"value": 21.5}])
        >>> kept.table("kalman").num_rows
        1
        """
        if isinstance(step, str):
            if id is not None:
                raise ConfigError(f"the sink {step!r} needs no id, got {id!r}: its name is its id")
            return self.flow.sink(step, self)
        if isinstance(step, Sink):
            name = snake_case(type(step).__name__)
            return self.flow.sink(self._id(id, None, name, "sink"), self, bound=step)
        if not isinstance(step, Task):
            raise ConfigError(
                f"expected a task, a sink or the id of a sink, got {value_text(step)}; "
                "a function is appended by map, flat_map or filter"
            )
        return self._append(step, id)

    @overload
    def __rshift__(self, step: Task) -> Self: ...

    @overload
    def __rshift__(self, step: Sink | str) -> Dataflow: ...

    def __rshift__(self, step: Task | Sink | str) -> Self | Dataflow:
        return self.to(step)

    # -- keys --------------------------------------------------------------------------------------

    def key_by(self, *fields: str) -> KeyedStream:
        """Return the same stream with a key, which the tasks appended to it get; without fields, one for all records.

        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("smooth")
        >>> readings = flow.source("readings", {"device": "string", "value": "double"})
        >>> _ = readings.key_by("device").apply(ro.tasks.RunningCount(), id="counts").to("out")
        >>> flow.run([{"device": d, "value": 1.0} for d in "aba"])["counts"]["count"].to_pylist()
        [1, 1, 2]
        """
        for field in fields:
            if not isinstance(field, str) or not field:
                raise ConfigError(f"key_by takes the names of fields one by one, got {value_text(field)}")
        if len(set(fields)) < len(fields):
            raise ConfigError(f"key_by must not name a field twice, got {fields!r}")
        return KeyedStream(self.flow, self.nodes, self.distribution, fields)

    def join(
        self,
        other: Stream,
        on: str | Iterable[str] | None = None,
        *,
        within: timedelta | str | tuple[timedelta | str, timedelta | str],
        how: Literal["inner", "left", "full"] = "inner",
        right_on: str | Iterable[str] | None = None,
        suffix: str = "_right",
        allowed_lateness: timedelta | str = timedelta(0),
        max_ahead: timedelta | str | None = None,
        max_held: int | None = None,
        id: str | None = None,
    ) -> Self:
        """Append the :class:`~riot_ops.tasks.IntervalJoin` of this stream, its left side, with another one.

        Parameters
        ----------
        on, right_on : str or iterable of str, optional
            Fields of the key in both streams, and in the other one if they have other names there; by default the keys
            of the streams.
        within, how, suffix, allowed_lateness, max_ahead, max_held
            Options of :class:`~riot_ops.tasks.IntervalJoin`.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("shop", merging="number")
        >>> time = "timestamp[us, tz=UTC]"
        >>> orders = flow.source("orders", {"id": "int64", "event_time": time, "item": "string"})
        >>> payments = flow.source("payments", {"id": "int64", "event_time": time, "euro": "int64"})
        >>> _ = orders.key_by("id").join(payments.key_by("id"), within="5s", id="paid").to("out")
        >>> order, payment = {"id": 1, "event_time": 0, "item": "tea"}, {"id": 1, "event_time": 10, "euro": 3}
        >>> result = flow.run({"orders": [order], "payments": [payment]})
        >>> result["paid"].select(["id", "item", "euro"]).to_pylist()
        [{'id': 1, 'item': 'tea', 'euro': 3}]
        """
        left, right = _join_keys(self, other, on, right_on)
        options: dict[str, Any] = {
            "within": within,
            "how": how,
            "right_on": None if right == left else right,
            "suffix": suffix,
            "allowed_lateness": allowed_lateness,
            "max_ahead": max_ahead,
        }
        if max_held is not None:
            options["max_held"] = max_held
        task = tasks.IntervalJoin(by=left, **options)
        output = self.flow.add(task, self, other, id=id)
        return dataclasses.replace(self, nodes=output.nodes, distribution=FORWARD)

    # -- several streams, instances ----------------------------------------------------------------

    def __or__(self, other: Stream) -> Stream:
        return merge(self, other)

    def shuffle(self, parallelism: int | None = None) -> Self:
        """Distribute messages round robin over instances, by message number; by default one instance.

        >>> import riot_ops as ro
        >>> readings = ro.Dataflow("spread").source("readings", {"device": "string"})
        >>> readings.shuffle(2).distribution.kind
        'shuffle'
        """
        return self._with_distribution(Distribution("shuffle", parallelism=parallelism))

    def partition_by(self, *fields: str, parallelism: int | None = None) -> Self:
        """Distribute records over instances by the hash of fields.

        >>> import riot_ops as ro
        >>> readings = ro.Dataflow("spread").source("readings", {"device": "string"})
        >>> readings.partition_by("device", parallelism=4).distribution.fields
        ('device',)
        """
        return self._with_distribution(Distribution("hash", fields, parallelism))

    def broadcast(self, parallelism: int) -> Self:
        """Send every record to every instance.

        >>> import riot_ops as ro
        >>> readings = ro.Dataflow("spread").source("readings", {"device": "string"})
        >>> readings.broadcast(3).distribution.parallelism
        3
        """
        return self._with_distribution(Distribution("broadcast", parallelism=parallelism))

    def to_single(self) -> Self:
        """Send all records to one instance.

        >>> import riot_ops as ro
        >>> readings = ro.Dataflow("spread").source("readings", {"device": "string"})
        >>> readings.to_single().distribution.kind
        'one'
        """
        return self._with_distribution(Distribution("one"))

    def partition_custom(self, router: Router, parallelism: int) -> Self:
        """Distribute records by a function that maps a batch to instance numbers.

        >>> import riot_ops as ro
        >>> readings = ro.Dataflow("spread").source("readings", {"device": "string"})
        >>> readings.partition_custom(lambda batch: [0] * batch.num_rows, 2).distribution.kind
        'custom'
        """
        return self._with_distribution(Distribution("custom", parallelism=parallelism, router=router))

    def _with_distribution(self, distribution: Distribution) -> Self:
        return dataclasses.replace(self, distribution=distribution)

    def _append(self, task: Task, id: str | None) -> Self:
        output = self.flow.add(task, self, id=id)
        return dataclasses.replace(self, nodes=output.nodes, distribution=FORWARD)

    def _id(self, id: str | None, name: str | None, function: Any, verb: str) -> str:
        """Return the given id, or a free one: the name, or that of the function, or else that of the verb."""
        if id is not None:
            return id
        names = (name, function if isinstance(function, str) else getattr(function, "__name__", None))
        usable = [one.lstrip("_") for one in names if isinstance(one, str)]
        return self.flow.free_id(next((one for one in usable if is_id(one)), verb))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {' | '.join(map(repr, self.nodes))} of the dataflow {self.flow.name!r}>"

    def _repr_html_(self) -> str:
        """Return the task and the fields of the stream."""
        schema = self.flow.infer_schemas([]).get(self.id)
        made = [task for node in self.nodes if (task := self.flow.nodes[node].task) is not None]
        fields = [] if schema is None else [[f.name, str(f.type), "" if f.nullable else "never null"] for f in schema]
        return html_display(
            repr(self),
            "; ".join(operator_text(task, 300) for task in made),
            html_table(fields, ["field", "type", ""]) if fields else "",
        )


@dataclass(frozen=True, repr=False)
class KeyedStream(Stream):
    """A stream with a key, made by :meth:`Stream.key_by`.

    The tasks appended to it get its key, and so do those appended to their results, until another ``key_by``.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops import tasks as t
    >>> flow = ro.Dataflow("devices")
    >>> devices = flow.source("readings", schema={"device": "string", "value": "double"}).key_by("device")
    >>> _ = flow.sink("smooth", devices.apply(t.MovingAverage(window=2), id="average"))
    >>> rows = [{"device": "a", "value": 1.0}, {"device": "b", "value": 9.0}, {"device": "a", "value": 3.0}]
    >>> flow.run(rows)["average"].select(["device", "value"]).to_pylist()
    [{'device': 'a', 'value': 2.0}]
    """

    by: tuple[str, ...] = ()

    def apply(self, task: Task, id: str | None = None) -> Self:
        """Append a task with this key; a task with another key, or without state per key, is refused.

        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("trend")
        >>> readings = flow.source("readings", {"device": "string", "value": "double"})
        >>> smooth = readings.key_by("device").apply(ro.tasks.KalmanFilter())
        >>> _ = smooth.apply(ro.tasks.MovingAverage(window=2), id="average").to("out")
        >>> flow.nodes["average"].task.by
        ('device',)
        """
        if isinstance(task, Task) and not isinstance(task, KeyedOperator):
            raise ConfigError(f"{task.name()} has no key: append it before key_by, or by to")
        return self._append(task, id)

    def window(self, frame: Frame | timedelta | str | int | None) -> WindowedStream:
        """Divide the records of each key into windows, whose aggregates :meth:`WindowedStream.agg` makes.

        Parameters
        ----------
        frame : duration, int, frame of :mod:`riot_ops.windows`, or None
            A duration stands for tumbling windows, a number for windows of that many records, None for all records.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("pairs")
        >>> readings = flow.source("readings", {"device": "string", "value": "double"})
        >>> _ = readings.key_by("device").window(2).agg(mean=("value", "mean"), n="count").to("out")
        >>> result = flow.run([{"device": "a", "value": value} for value in (1.0, 2.0, 3.0)])
        >>> result["window"].select(["device", "mean", "n"]).to_pylist()
        [{'device': 'a', 'mean': 1.5, 'n': 2}]
        """
        return WindowedStream(self, frame_from(frame))

    def agg(
        self,
        aggregates: Mapping[str, AggregateSpec] | None = None,
        /,
        *,
        id: str | None = None,
        emit: str | timedelta | None = None,
        ttl: timedelta | str | None = None,
        secret: Secret | None = None,
        **named: AggregateSpec,
    ) -> KeyedStream:
        """Append the aggregates of all records of each key so far: :meth:`WindowedStream.agg` without a frame.

        Parameters
        ----------
        aggregates, named
            By output field ``(field, function, option …)``, or ``"count"``; see :class:`~riot_ops.tasks.Window`.
        emit : "each", "update" or duration, optional
            By default "each": every record gets the results so far as further fields.
        ttl, secret
            Options of :class:`~riot_ops.tasks.Window`.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("totals")
        >>> readings = flow.source("readings", {"device": "string", "value": "int64"})
        >>> _ = readings.key_by("device").agg(total=("value", "sum"), n="count", id="totals").to("out")
        >>> result = flow.run([{"device": d, "value": v} for d, v in (("a", 1), ("b", 5), ("a", 2))])
        >>> result["totals"].select(["device", "total", "n"]).to_pylist()[2]
        {'device': 'a', 'total': 3, 'n': 2}
        """
        outputs = _named_outputs(aggregates, named)
        return self.window(None).agg(outputs, id=id, emit=emit, ttl=ttl, secret=secret)

    def fold(
        self,
        function: Callable[[Any, Row], tuple[Any, Any]],
        initial: Any = None,
        schema: Fields | None = None,
        label: str | None = None,
        *,
        ttl: timedelta | str | None = None,
        revision: int | str | None = None,
        id: str | None = None,
    ) -> Self:
        """Run ``state, results = function(state, record)`` per key; see ``ro.keyed`` for the options.

        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("sums")
        >>> readings = flow.source("readings", {"device": "string", "value": "int64"})
        >>> def total(state, row):
        ...     return state + row["value"], {"total": state + row["value"]}
        >>> _ = readings.key_by("device").fold(total, initial=0, schema={"total": "int64"}).to("out")
        >>> result = flow.run([{"device": d, "value": v} for d, v in (("a", 1), ("b", 5), ("a", 2))])
        >>> result["total"]["total"].to_pylist()
        [1, 5, 3]
        """
        options = {} if ttl is None else {"ttl": ttl}
        task = keyed(function, initial, self.by, schema, label, revision=revision, **options)
        return self._append(task, self._id(id, label, function, "fold"))

    def _append(self, task: Task, id: str | None) -> Self:
        if isinstance(task, KeyedOperator) and isinstance(task, Task):
            default = next(field.default for field in dataclasses.fields(task) if field.name == "by")
            if task.by not in ((), default, self.by):
                raise ConfigError(
                    f"{task.name()} has the key {task.by!r}, and the stream has {self.by!r}: leave by out, or append "
                    "the task before key_by"
                )
            task = task.replace(by=self.by)
        return super()._append(task, id)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, by {', '.join(map(repr, self.by)) or 'no field'}>"


@dataclass(frozen=True, repr=False)
class WindowedStream:
    """A stream with a key and a frame, made by :meth:`KeyedStream.window`; it runs nothing by itself.

    Examples
    --------
    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("pairs")
    >>> pairs = flow.source("readings", schema={"device": "string", "value": "double"}).key_by("device").window(2)
    >>> _ = flow.sink("out", pairs.agg(mean=("value", "mean"), most=("value", "max"), id="pairs"))
    >>> rows = [{"device": "a", "value": 1.0}, {"device": "b", "value": 9.0}, {"device": "a", "value": 3.0}]
    >>> flow.run(rows)["pairs"].select(["device", "mean", "most"]).to_pylist()
    [{'device': 'a', 'mean': 2.0, 'most': 3.0}]
    """

    stream: KeyedStream
    frame: Frame

    def agg(
        self,
        aggregates: Mapping[str, AggregateSpec] | None = None,
        /,
        *,
        id: str | None = None,
        emit: str | timedelta | None = None,
        allowed_lateness: timedelta | str | None = None,
        max_ahead: timedelta | str | None = None,
        ttl: timedelta | str | None = None,
        secret: Secret | None = None,
        **named: AggregateSpec,
    ) -> KeyedStream:
        """Append the :class:`~riot_ops.tasks.Window` of this key and frame.

        Parameters
        ----------
        named
            By output field ``(field, function, option …)``, or ``"count"``; see :class:`~riot_ops.tasks.Window` for
            the functions.
        aggregates : mapping of str to the same, optional
            For output fields whose names are no Python names, or those of options.
        emit, allowed_lateness, max_ahead, ttl, secret
            Options of :class:`~riot_ops.tasks.Window`, by default its own.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("minutes")
        >>> fields = {"device": "string", "event_time": "timestamp[us, tz=UTC]", "value": "double"}
        >>> minutes = flow.source("readings", fields).key_by("device").window("1min")
        >>> _ = minutes.agg(mean=("value", "mean"), id="minute", allowed_lateness="5s").to("out")
        >>> rows = [{"device": "a", "event_time": 1_000_000 * second, "value": second} for second in (0, 59, 61)]
        >>> flow.run(rows)["minute"]["mean"].to_pylist()
        [29.5, 61.0]
        """
        options: dict[str, Any] = {
            "emit": emit,
            "allowed_lateness": allowed_lateness,
            "max_ahead": max_ahead,
            "ttl": ttl,
            "secret": secret,
        }
        task: Task = tasks.Window(
            by=self.stream.by,
            frame=self.frame,
            aggregates=_named_outputs(aggregates, named),
            **{name: value for name, value in options.items() if value is not None},
        )
        return self.stream.apply(task, id)

    def __repr__(self) -> str:
        by = ", ".join(map(repr, self.stream.by)) or "no field"
        return f"<WindowedStream of {self.stream.id!r}, by {by}, {operator_text(self.frame)}>"

    def _repr_html_(self) -> str:
        return html_display(repr(self), ".agg(…) appends the aggregates of each window")


def _named_outputs(
    aggregates: Mapping[str, AggregateSpec] | None, named: Mapping[str, AggregateSpec]
) -> dict[str, AggregateSpec]:
    """Return the aggregates by output field."""
    outputs = {**(aggregates or {}), **named}
    if len(outputs) < len(aggregates or {}) + len(named):
        raise ConfigError(f"agg names {next(n for n in named if n in (aggregates or {}))!r} twice")
    if not outputs:
        raise ConfigError("agg needs at least one aggregate, such as mean=('value', 'mean') or n='count'")
    return outputs


def _join_keys(left: Stream, right: Stream, on: Any, right_on: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys of both sides of a join: those given, or else those of the streams."""

    def names(fields: Any) -> tuple[str, ...] | None:
        return None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)

    if not isinstance(right, Stream):
        raise ConfigError(f"join takes another stream, got {value_text(right)}")
    own = left.by if isinstance(left, KeyedStream) else None
    other = right.by if isinstance(right, KeyedStream) else None
    by = names(on) or own
    if not by:
        raise ConfigError("join needs on, the fields of the key, or a stream with a key (key_by)")
    right_on = names(right_on) or (names(on) if on is not None else other) or by
    for option, given, key in (("on", by, own), ("right_on" if right_on else "on", right_on, other)):
        if key is not None and given != key:
            raise ConfigError(f"join: {option} = {given!r}, but the stream has the key {key!r}: leave it out")
    return by, right_on


def merge(*streams: Stream) -> Stream:
    """Merge streams of the same schema into one; ``a | b`` does the same.

    >>> flow = Dataflow("both")
    >>> north, south = (flow.source(name, {"value": "double"}) for name in ("north", "south"))
    >>> merge(north, south).nodes
    ('north', 'south')
    """
    if not streams:
        raise ConfigError("merge needs at least one stream")
    if len({id(s.flow) for s in streams}) > 1:
        raise ConfigError(
            "merge needs streams of one dataflow, got " + ", ".join(sorted({s.flow.name for s in streams}))
        )
    if len({s.distribution for s in streams}) > 1:
        raise ConfigError("merge needs streams with one distribution: set it after merging")
    return Stream(streams[0].flow, tuple(dict.fromkeys(n for s in streams for n in s.nodes)), streams[0].distribution)


class Dataflow(RunnableGraph):
    """A DAG of tasks with named streams, which runs in process or on Spark.

    Building it runs nothing, and running does not change it.

    Examples
    --------
    >>> import riot_ops as ro
    >>> from riot_ops import tasks as t
    >>> flow = ro.Dataflow("smooth")
    >>> obs = flow.source("readings", schema={"device": "string", "value": "double"})
    >>> _ = flow.sink("out", obs.to(t.KalmanFilter(by=("device",)), id="kalman"))
    >>> result = flow.run(source=[{"device": "a", "value": 10.0}, {"device": "a", "value": 12.0}])
    >>> [round(v, 3) for v in result["kalman"]["value"].to_pylist()]
    [9.895, 11.116]
    """

    def source(self, name: str = "source", schema: pa.Schema | Mapping[str, Any] | None = None) -> Stream:
        """Declare a source; the run binds its data.

        Parameters
        ----------
        schema : pyarrow.Schema or mapping of name to type
            Fields of the records, with types of Arrow, its names for them, such as ``"int64"`` or
            ``"decimal128(5, 2)"``, or types of Python; by default messages of text (``seq``, ``event_time``,
            ``payload``).
            ``seq`` (never null) and ``ordinal`` are int64, ``event_time`` is a timestamp in microseconds, in UTC.
            Values of another type are cast if nothing is lost, see :mod:`riot_ops.ingest.step`.
        """
        return self._add_node(source_node(name, schema))

    def add(self, task: Task, *streams: Stream, id: str | None = None) -> Stream:
        """Append a task to one or more streams.

        Their order has a meaning only for a join: the first stream is the left side.
        """
        if not isinstance(task, Task):
            raise ConfigError(
                f"expected a task, got {value_text(task)}; wrap a function by riot_ops.map, flat_map or filter"
            )
        name = self.free_id(task.name()) if id is None else id
        self._check_streams(name, streams)
        if len(streams) > 1:
            task, streams = self._aligned(task, streams, name)
        output = self._add_node(Node(name, "task", task))
        for stream in streams:
            for node in stream.nodes:
                self.edges.append(Edge(node, name, stream.distribution))
        return output

    def _aligned(self, task: Task, inputs: tuple[Stream, ...], name: str) -> tuple[Task, tuple[Stream, ...]]:
        """Add the tasks that align the inputs of a task, if it needs them."""
        if type(task).align_inputs is Task.align_inputs:
            return task, inputs
        problems: list[str] = []
        schemas = self.infer_schemas(problems)
        if problems or not all(stream.id in schemas for stream in inputs):
            raise ConfigError(f"{name}: the streams before it are not valid: {'; '.join(problems)}")
        found = task.align_inputs([schemas[stream.id] for stream in inputs])
        if found is None:
            return task, inputs
        task, before = found
        aligned = [
            dataclasses.replace(
                self.add(one, stream, id=f"{name}.{getattr(one, 'side', place)}"), distribution=stream.distribution
            )
            for place, (one, stream) in enumerate(
                zip(before, (dataclasses.replace(s, distribution=FORWARD) for s in inputs), strict=True)
            )
        ]
        return task, tuple(aligned)

    def sink(self, name: str, *streams: Stream, bound: Sink | None = None) -> Dataflow:
        """End streams in a sink, which distinguishes them by their ids.

        Parameters
        ----------
        bound : Sink, optional
            Gets the records of each run that names no other sink for this node. A descriptor keeps the name alone.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow, kept = ro.Dataflow("kept"), ro.MemorySink()
        >>> readings = flow.source("readings", {"value": "double"})
        >>> _ = flow.sink("out", readings, readings.apply(ro.tasks.KalmanFilter(), id="kalman"), bound=kept)
        >>> _ = flow.run([{"value": 21.5}])
        >>> kept.table("readings").num_rows, kept.table("kalman").num_rows
        (1, 1)
        """
        if bound is not None and not isinstance(bound, Sink):
            raise ConfigError(f"sink {name!r}: bound must be a sink of riot_ops, got {value_text(bound)}")
        self._check_streams(name, streams)
        self.add_node(Node(name, "sink", sink=bound))
        for stream in streams:
            for node in stream.nodes:
                self.edges.append(Edge(node, name))
        return self

    def stream(self, node: str) -> Stream:
        """Return the output of a node by its id."""
        if node not in self.nodes:
            raise ConfigError(f"the dataflow {self.name!r} has no node {node!r}{did_you_mean(node, self.nodes)}")
        return Stream(self, (node,))

    def _add_node(self, node: Node) -> Stream:
        self.add_node(node)
        return Stream(self, (node.id,))

    def _check_streams(self, name: str, streams: Iterable[Stream]) -> None:
        for stream in streams:
            if not isinstance(stream, Stream):
                raise ConfigError(f"{name}: expected a stream, got {value_text(stream)}")
            if stream.flow is not self:
                raise ConfigError(f"{name}: the stream {stream.id!r} belongs to the dataflow {stream.flow.name!r}")

    def __repr__(self) -> str:
        tasks = len(self.nodes_of_kind("task"))
        return f"<Dataflow {self.name!r}: {tasks} tasks, {len(self.edges)} edges>"
