"""Signatures of the steps of a dataflow: equal signatures mean equal work.

Two steps do the same work if they run the same task with the same parameters over the same inputs, distributed in the
same way, and so on up to the sources. A signature is the SHA-256 of exactly that. Neither the names of steps nor
the order in which streams merge nor anything downstream is part of it.

- A **task** is its name, version and parameters, including defaults. A user's function is the label and revision given
  for it; without a revision it is equal to no other, even with equal code. So is a task with an unnamed secret.
- A **source** is its description and its declared fields; where several are read as one log, also its place in that
  log and the others. Of source nodes that read the same, each is another source.
- A **sink** is its name and type.
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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import pyarrow as pa

from riot_ops.core.lookback import Lookback
from riot_ops.core.operator import Operator
from riot_ops.core.secret import literal_secrets
from riot_ops.core.sink import Sink
from riot_ops.core.source import Source
from riot_ops.graph.graph import Graph
from riot_ops.graph.merges import Merges
from riot_ops.graph.nodes import Edge, Node
from riot_ops.reuse.errors import DescriptorError

__all__ = ["StepIdentity", "describe_source", "digest", "identify_steps", "signatures", "unique_token"]

FORMAT = "riot_ops.reuse/1"

#: Numbers of objects without a stable identity.
_SERIAL = itertools.count()


@dataclass(frozen=True)
class StepIdentity:
    """What identifies a step of a submitted dataflow, and decides whether dataflows share it.

    Attributes
    ----------
    signature : str
        Digest of the step and everything upstream.
    kind : "source", "task" or "sink"
        As of the node.
    label : str
        Name of the task; of a source or sink, its own name.
    inputs : tuple of str
        The nodes that it reads, in the order of their signatures.
    stateful : bool
        Whether the step or one upstream has state, so that its records depend on when it began.
    lookback : Lookback or None
        How far back the results of this step alone reach; None: to the beginning.
    source_key : str
        Identity of a source's input: equal for sources that differ only in their fields or in their message numbers.
    """

    signature: str
    kind: Literal["source", "task", "sink"]
    label: str
    inputs: tuple[str, ...] = ()
    stateful: bool = False
    lookback: Lookback | None = dataclasses.field(default=Lookback())
    source_key: str = ""

    @property
    def bounded(self) -> bool:
        """Whether the results of this step alone depend on a bounded past."""
        return self.lookback is not None


def signatures(
    flow: Graph, sources: Mapping[str, Source] | None = None, sinks: Mapping[str, Sink] | None = None
) -> dict[str, str]:
    """Compute the signature of each step of a dataflow, by node; see :func:`identify_steps` for the parameters.

    >>> import riot_ops as ro
    >>> def smooth(name, **parameters):
    ...     flow = ro.Dataflow(name)
    ...     readings = flow.source("readings", schema={"value": "double"})
    ...     return flow.sink("out", readings.to(ro.tasks.KalmanFilter(**parameters), id=name))
    >>> a, b = signatures(smooth("a")), signatures(smooth("b", process_noise=0.125))
    >>> a["a"] == b["b"], a["a"] == signatures(smooth("c", process_noise=0.5))["c"]
    (True, False)
    """
    return {node: identity.signature for node, identity in identify_steps(flow, sources, sinks).items()}


def identify_steps(
    flow: Graph, sources: Mapping[str, Source] | None = None, sinks: Mapping[str, Sink] | None = None
) -> dict[str, StepIdentity]:
    """Identify the steps of a dataflow, by node, each after its inputs.

    Parameters
    ----------
    flow : dataflow
        A valid one; it is not checked.
    sources : mapping of str to Source, optional
        The source bound to each source node; by default a source is the stream named by its node.
    sinks : mapping of str to Sink, optional
        The sink bound to each sink node; by default a sink has no type.
    """
    merges = Merges(flow)
    roles = _roles(flow, sources)
    found: dict[str, StepIdentity] = {}
    for node in flow.topological_order():
        edges = merges.inputs(node.id)
        inputs = sorted((found[e.source].signature, _distribution(e), e.source) for e in edges)
        order = tuple(source for *_, source in inputs)
        stateful = any(found[source].stateful for source in order)
        if node.kind == "source":
            read, _, shift, _, together = role = roles[node.id]
            source_key = digest("reading", read, shift if together else 0, together)
            found[node.id] = StepIdentity(digest("source", *role), "source", node.id, source_key=source_key)
        elif node.task is not None:
            alike = [found[e.source].signature for e in merges.indistinct(node.id)]
            signature = digest(
                "task", _task(node.task), [[spread, one] for one, spread, _ in inputs], *([alike] if alike else [])
            )
            stateful |= node.task.stateful
            found[node.id] = StepIdentity(signature, "task", node.task.name(), order, stateful, node.task.lookback())
        else:
            sink = None if sinks is None else sinks.get(node.id)
            kind = None if sink is None else type(sink).__name__
            signature = digest("sink", node.id, kind, [one for one, *_ in inputs])
            found[node.id] = StepIdentity(signature, "sink", node.id, order, stateful)
    return found


def _roles(flow: Graph, sources: Mapping[str, Source] | None) -> dict[str, tuple[Any, ...]]:
    """By source node: its input, its fields, a number, and the sources read as one log with their number.

    The number is the place in that log. Without a log it distinguishes source nodes that read the same.
    """
    numbering = flow.numbering()
    nodes = flow.nodes_of_kind("source")
    read = {node.id: _read(node, None if sources is None else sources.get(node.id)) for node in nodes}
    roles: dict[str, tuple[Any, ...]] = {}
    alike: Counter[str] = Counter()
    for node in nodes:
        shift, of = numbering[node.id]
        assert node.schema is not None
        fields = [[f.name, str(f.type), f.nullable] for f in node.schema]
        together = [flow.merging, *read.values()] if of > 1 else []
        if not together:
            same = digest(read[node.id], fields)
            shift = alike[same]
            alike[same] += 1
        roles[node.id] = (read[node.id], fields, shift, of, together)
    return roles


def _read(node: Node, source: Source | None) -> Any:
    return {"stream": node.id} if source is None else describe_source(source)


def describe_source(source: Source) -> Any:
    """Describe the input of a source; a unique token if its own class does not describe it."""
    known = source.description()
    return unique_token(source) if known is None or _inherits(source) else known


def _inherits(source: Source) -> bool:
    """Whether a user's class, of the source or of one it wraps, inherits its description."""
    describing = next(cls for cls in type(source).__mro__ if "description" in vars(cls))
    if not _is_library_class(describing):
        return False
    wrapped = (one for one in vars(source).values() if isinstance(one, Source))
    return not _is_library_class(type(source)) or any(map(_inherits, wrapped))


def _is_library_class(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "riot_ops"


def _distribution(edge: Edge) -> list[Any]:
    distribution = edge.distribution
    router = None if distribution.router is None else unique_token(distribution.router)
    return [distribution.kind, list(distribution.fields), distribution.parallelism, router]


def _task(task: Operator) -> Any:
    state = task.__getstate__()
    parameters = _parameters(task)
    if callable(function := state.get("function")):
        revision = state.get("revision")  # without it the label says nothing: the function may have been rewritten
        parameters["function"] = unique_token(function) if revision is None else [state.get("label"), revision]
    if infinite := [*_infinite([*state.values()])]:  # JSON has only null for these values
        parameters["infinite"] = infinite
    if literal_secrets(task):
        parameters["secret"] = unique_token(task)
    cls = type(task)  # another class may have its name, as after a change in a notebook's cell
    own = [] if _is_library_class(cls) else [unique_token(cls)]
    return [task.name(), task.version, parameters, *own]


def _parameters(task: Operator) -> dict[str, Any]:
    if _is_library_class(type(task)):
        with contextlib.suppress(ValueError):  # of a parameter that JSON cannot hold
            return {name: value for name, value in task.to_dict().items() if name != "task"}
    return {name: _plain(value) for name, value in task.__getstate__().items()}


def _plain(value: Any) -> Any:
    """A parameter as JSON that distinguishes types of values; a unique token for a value that JSON cannot hold."""
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
    if dataclasses.is_dataclass(value) and _is_library_class(type(value)):
        parts = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return [type(value).__name__, parts]
    return unique_token(value)


def _infinite(value: Any) -> Iterator[str]:
    """Yield the non-finite floats in a parameter, in their order."""
    if isinstance(value, float) and not math.isfinite(value):
        yield str(value)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _infinite(one)
    elif isinstance(value, Mapping):
        yield from _infinite([*value.values()])


#: Serial number of each object without a stable identity, by ``id()``, while it is alive.
_SERIALS: dict[int, int] = {}
#: Such objects without weak references, which are kept alive.
_KEPT_ALIVE: list[Any] = []
_PROCESS = uuid.uuid4().hex


def unique_token(thing: Any) -> str:
    """Return a text that identifies an object within this process."""
    if id(thing) not in _SERIALS:
        try:
            weakref.finalize(thing, _SERIALS.pop, id(thing), None)
        except TypeError:
            _KEPT_ALIVE.append(thing)
        _SERIALS[id(thing)] = next(_SERIAL)
    return f"only {type(thing).__name__} {_SERIALS[id(thing)]} of process {_PROCESS}"


# -- hashing ---------------------------------------------------------------------------------------


def digest(*fields: Any) -> str:
    """SHA-256 of fields, each as canonical JSON in UTF-8 after its length in 8 bytes.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    found = hashlib.sha256()
    for field in (FORMAT, *fields):
        data = _canonical(field).encode()
        found.update(len(data).to_bytes(8, "big"))
        found.update(data)
    return found.hexdigest()


def _canonical(value: Any) -> str:
    """JSON with sorted keys; text is unchanged, integers are not floats, and -0.0 is 0.0."""
    try:
        return json.dumps(_normalize(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DescriptorError(f"a step has no signature, as JSON cannot hold a parameter: {error}") from None


def _normalize(value: Any) -> Any:
    if isinstance(value, str):
        value.encode()  # not normalised: files and filters distinguish texts of equal appearance
        return value
    if isinstance(value, float):
        return value + 0.0  # turns -0.0 into 0.0
    if isinstance(value, Mapping):
        return {_normalize(str(name)): _normalize(one) for name, one in value.items()}
    if isinstance(value, Iterable):
        return [_normalize(one) for one in value]
    return value
