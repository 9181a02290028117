"""When two steps are the same: signatures of the steps of a dataflow.

Two steps do the same work if they are the same task with the same parameters, over the same inputs, spread in the
same way; and so on up to the sources. A signature is the SHA-256 of just that, so that equal signatures are equal work.
Names of steps have no part in it, nor has anything that stands behind a step.

- A **task** is its name, version and parameters, defaults filled in. A function of the user's is the name and version
  given for it; without these it is like no other, whatever its code. So is a task with a secret that has no name.
- A **source** is its own description, the fields declared of it, and its role: where the messages of several sources
  are numbered together, which place it has among them, and with which others it is read as one log.
- A **sink** is its name and its kind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import pyarrow as pa

from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import Operator
from riot_ops.core.secret import Secret
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Edge, Node
from riot_ops.reuse.errors import DescriptorError

__all__ = ["Piece", "alone", "pieces", "signature", "signatures", "told"]

FORMAT = "riot_ops.reuse/1"

#: Numbers what is like nothing else.
_ALONE = itertools.count()


@dataclass(frozen=True)
class Piece:
    """A step of a submitted dataflow, as others may share it.

    Attributes
    ----------
    signature : str
        What it does, sources included.
    kind : "source", "task" or "sink"
        As the node's.
    label : str
        The name of its task; of a source or sink its own.
    inputs : tuple of str
        The nodes that it reads; of a task in the order of its edges, of a sink in that of their signatures.
    stateful : bool
        Whether it, or a step above it, has state: then its records depend on when it began.
    reach : Reach or None
        How far back its own results reach; None: to all that came before.
    reading : str
        Of a source, what is read: those with other fields of it, or with messages that are numbered otherwise, have the
        same.
    """

    signature: str
    kind: Literal["source", "task", "sink"]
    label: str
    inputs: tuple[str, ...] = ()
    stateful: bool = False
    lookback: Lookback | None = dataclasses.field(default=Lookback())
    reading: str = ""

    @property
    def bounded(self) -> bool:
        """Whether its own results reach back only so far."""
        return self.lookback is not None


def signatures(
    flow: Graph, sources: Mapping[str, Source] | None = None, sinks: Mapping[str, Sink] | None = None
) -> dict[str, str]:
    """The signature of each step of a dataflow, by node; see :func:`pieces` for the parameters.

    >>> import riot_ops as ro
    >>> def smooth(name, **parameters):
    ...     flow = ro.Dataflow(name)
    ...     readings = flow.source("readings", schema={"value": "double"})
    ...     return flow.sink("out", readings.to(ro.tasks.KalmanFilter(**parameters), id=name))
    >>> a, b = signatures(smooth("a")), signatures(smooth("b", process_noise=0.125))
    >>> a["a"] == b["b"], a["a"] == signatures(smooth("c", process_noise=0.5))["c"]
    (True, False)
    """
    return {node: piece.signature for node, piece in pieces(flow, sources, sinks).items()}


def pieces(
    flow: Graph, sources: Mapping[str, Source] | None = None, sinks: Mapping[str, Sink] | None = None
) -> dict[str, Piece]:
    """The steps of a dataflow as others may share them, by node, each after its inputs.

    Parameters
    ----------
    flow : dataflow
        Valid: this does not look.
    sources : mapping of str to Source, optional
        What is bound to each source node; by default a source is the stream that its node names.
    sinks : mapping of str to Sink, optional
        What is bound to each sink node; by default a sink has no kind.
    """
    into: dict[str, list[Edge]] = {id: [] for id in flow.nodes}
    for edge in flow.edges:
        into[edge.target].append(edge)
    roles = _roles(flow, sources)
    found: dict[str, Piece] = {}
    for node in flow.order():
        edges = into[node.id]
        above = [found[e.source] for e in edges]
        stateful = any(one.stateful for one in above)
        if node.kind == "source":
            read, _, shift, _, together = role = roles[node.id]
            reading = signature("reading", read, shift if together else 0, together)
            found[node.id] = Piece(signature("source", *role), "source", node.id, reading=reading)
        elif node.task is not None:
            inputs = [(e.source, _spread(e), one.signature) for e, one in zip(edges, above, strict=True)]
            mark = signature("task", _task(node.task), [rest for _, *rest in inputs])
            order = tuple(source for source, *_ in inputs)
            stateful |= node.task.stateful
            found[node.id] = Piece(mark, "task", node.task.name(), order, stateful, node.task.lookback())
        else:
            ends = sorted((one.signature, e.source) for e, one in zip(edges, above, strict=True))
            sink = None if sinks is None else sinks.get(node.id)
            mark = signature("sink", node.id, None if sink is None else type(sink).__name__, [end for end, _ in ends])
            found[node.id] = Piece(mark, "sink", node.id, tuple(source for _, source in ends), stateful)
    return found


def _roles(flow: Graph, sources: Mapping[str, Source] | None) -> dict[str, tuple[Any, ...]]:
    """By source node: what is read, which fields of it, and its place among those that are numbered together."""
    numbering = flow.numbering()
    nodes = flow.kind("source")
    read = {node.id: _read(node, None if sources is None else sources.get(node.id)) for node in nodes}
    roles: dict[str, tuple[Any, ...]] = {}
    for node in nodes:
        shift, of = numbering[node.id]
        assert node.schema is not None
        fields = [[f.name, str(f.type), f.nullable] for f in node.schema]
        together = [] if of == 1 or flow.merging == "arrival" else [flow.merging, *read.values()]
        roles[node.id] = (read[node.id], fields, shift, of, together)
    return roles


def _read(node: Node, source: Source | None) -> Any:
    return {"stream": node.id} if source is None else told(source)


def told(source: Source) -> Any:
    """What a source reads; one that does not say is like no other, nor one whose class inherits what another says."""
    known = source.description()
    return alone(source) if known is None or _inherits(source) else known


def _inherits(source: Source) -> bool:
    """Whether a class of the user's, of this source or of one within it, does not say itself what it reads."""
    teller = next(kind for kind in type(source).__mro__ if "description" in vars(kind))
    if not _ours(teller):
        return False
    return not _ours(type(source)) or any(_inherits(one) for one in vars(source).values() if isinstance(one, Source))


def _ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "riot_ops"


def _spread(edge: Edge) -> list[Any]:
    spread = edge.distribution
    router = None if spread.router is None else alone(spread.router)
    return [spread.kind, list(spread.fields), spread.parallelism, router]


def _task(task: Operator) -> Any:
    state = task.__getstate__()
    parameters = _parameters(task)
    if callable(function := state.get("function")):
        revision = state.get("revision")  # without it not even the name counts: what has it may be written anew
        parameters["function"] = alone(function) if revision is None else [state.get("label"), revision]
    if infinite := [*_infinite([*state.values()])]:  # JSON has one null for all of them
        parameters["infinite"] = infinite
    fields = dataclasses.fields(task)
    if any(isinstance(v := getattr(task, f.name), Secret) and v.variable is None for f in fields):
        parameters["secret"] = alone(task)
    kind = type(task)  # of which another may have the name, as in a notebook's cell that was changed
    own = [] if _ours(kind) else [alone(kind)]
    return [task.name(), task.version, parameters, *own]


def _parameters(task: Operator) -> dict[str, Any]:
    if _ours(type(task)):
        with contextlib.suppress(ValueError):  # of what JSON does not hold
            return {name: value for name, value in task.to_dict().items() if name != "task"}
    return {name: _plain(value) for name, value in task.__getstate__().items()}


def _plain(value: Any) -> Any:
    """A parameter as JSON, unlike any other of another kind; what JSON does not know is like nothing else."""
    if isinstance(value, float) and not math.isfinite(value):
        return None  # see _infinite
    if value is None or isinstance(value, bool | int | str | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, timedelta | datetime | pa.DataType | pa.Schema):
        return [type(value).__name__, str(value)]
    if dataclasses.is_dataclass(value) and _ours(type(value)):
        parts = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return [type(value).__name__, parts]
    return alone(value)


def _infinite(value: Any) -> Iterator[str]:
    """The floats of a parameter that are no numbers of JSON, in their order."""
    if isinstance(value, float) and not math.isfinite(value):
        yield str(value)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _infinite(one)
    elif isinstance(value, Mapping):
        yield from _infinite([*value.values()])


#: The numbers of what is like nothing else, by address, as long as it is there.
_KNOWN: dict[int, int] = {}
#: Such things of which it cannot be told when they go.
_KEPT: list[Any] = []
_PROCESS = uuid.uuid4().hex


def alone(thing: Any) -> str:
    """A text that an object has in common with itself alone, in this process."""
    if id(thing) not in _KNOWN:
        try:
            weakref.finalize(thing, _KNOWN.pop, id(thing), None)
        except TypeError:
            _KEPT.append(thing)
        _KNOWN[id(thing)] = next(_ALONE)
    return f"only {type(thing).__name__} {_KNOWN[id(thing)]} of process {_PROCESS}"


# -- hashing ---------------------------------------------------------------------------------------


def signature(*fields: Any) -> str:
    """SHA-256 over fields, each as canonical JSON in UTF-8, with its length before it in 8 bytes.

    >>> signature("ab", "c") == signature("a", "bc")
    False
    """
    found = hashlib.sha256()
    for field in (FORMAT, *fields):
        data = _canonical(field).encode()
        found.update(len(data).to_bytes(8, "big"))
        found.update(data)
    return found.hexdigest()


def _canonical(value: Any) -> str:
    """JSON with sorted keys; text is as it is, whole numbers are not floats, and -0.0 is 0.0."""
    try:
        return json.dumps(_normal(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DescriptorError(f"a step cannot be described, as it holds what JSON cannot: {error}") from None


def _normal(value: Any) -> Any:
    if isinstance(value, str):
        value.encode()  # not normalised: files and filters tell apart what looks alike
        return value
    if isinstance(value, float):
        return value + 0.0  # of which -0.0 becomes 0.0
    if isinstance(value, Mapping):
        return {_normal(str(name)): _normal(one) for name, one in value.items()}
    if isinstance(value, Iterable):
        return [_normal(one) for one in value]
    return value
