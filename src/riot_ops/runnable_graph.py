"""A graph that runs in process and on Spark, and has a descriptor and diagrams."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration
from riot_ops.graph.descriptor import describe, load
from riot_ops.graph.diagram import mermaid, svg
from riot_ops.graph.graph import Graph
from riot_ops.graph.plan import Plan, plan
from riot_ops.runtime.background_run import Run, launch
from riot_ops.runtime.local import Result, RunInterruptedError, run
from riot_ops.runtime.restart import Restart
from riot_ops.task import Task

if TYPE_CHECKING:
    from riot_ops.measure.metrics import Summary
    from riot_ops.measure.probe import Probe
    from riot_ops.spark.frames import Frames
    from riot_ops.spark.query import Query

__all__ = ["RunnableGraph"]


class RunnableGraph(Graph):
    """A graph with the methods that run, describe and draw it."""

    _partial_result: Result | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the graph, without the result of a run."""
        return {name: value for name, value in self.__dict__.items() if name != "_partial_result"}

    # -- running -----------------------------------------------------------------------------------

    def plan(self, fuse: Literal["exact", "coarse"] = "exact") -> Plan:
        """Return the stages in which Spark runs it; see :func:`riot_ops.graph.plan.plan`."""
        return plan(self, fuse)

    def explain(self, fuse: Literal["exact", "coarse"] = "exact") -> None:
        """Print the plan."""
        print(self.plan(fuse))

    def run(
        self,
        source: Any = None,
        *,
        sinks: Any = None,
        out: str | Path | None = None,
        batch_size: int | None = None,
        buffering: Buffering | str | None = None,
        epoch_rows: int = 4_000_000,
        epoch: Duration = "10s",
        cores: int | None = None,
        order: Literal["arrival", "event_time"] = "arrival",
        checkpoint: str | Path | None = None,
        restart: Restart = "same",
        overwrite: bool = False,
        memory: Literal["normal", "small"] = "normal",
        progress: Callable[[Summary], None] | None = None,
        probe: Probe | None = None,
    ) -> Result:
        """Run in process; see :func:`riot_ops.runtime.local.run` for the options.

        Ctrl-C, or the interruption of a notebook's cell, ends it after a commit; :attr:`partial_result` then has what
        it had written.
        """
        self._partial_result = None
        try:
            return run(
                self, source, sinks=sinks, out=out, batch_size=batch_size, buffering=buffering, epoch_rows=epoch_rows,
                epoch=epoch, cores=cores, order=order, checkpoint=checkpoint, restart=restart, overwrite=overwrite,
                memory=memory, progress=progress, probe=probe,
            )  # fmt: skip
        except RunInterruptedError as error:
            self._partial_result = error.result
            raise

    @property
    def partial_result(self) -> Result | None:
        """The result so far of the last :meth:`run`, if Ctrl-C has ended it; None if it ended by itself.

        >>> import signal
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("kept")
        >>> _ = flow.source("readings", {"value": "double"}).to("out")
        >>> def stop(summary):
        ...     signal.raise_signal(signal.SIGINT)                  # as Ctrl-C does
        >>> try:
        ...     flow.run([{"value": 1.0}], progress=stop)
        ... except KeyboardInterrupt as error:
        ...     print(error)
        the run of 'kept' was stopped after 1 message; partial_result of the dataflow has the records so far
        >>> flow.partial_result["readings"].num_rows
        1
        """
        return self._partial_result

    def launch(
        self,
        source: Any = None,
        *,
        sinks: Any = None,
        out: str | Path | None = None,
        batch_size: int | None = None,
        buffering: Buffering | str | None = None,
        epoch_rows: int = 4_000_000,
        epoch: Duration = "10s",
        cores: int | None = None,
        order: Literal["arrival", "event_time"] = "arrival",
        checkpoint: str | Path | None = None,
        restart: Restart = "same",
        overwrite: bool = False,
        memory: Literal["normal", "small"] = "normal",
        progress: Callable[[Summary], None] | None = None,
        probe: Probe | None = None,
    ) -> Run:
        """Run in the background of this process; see :func:`riot_ops.runtime.local.run` for the options."""
        return launch(
            self, source, sinks=sinks, out=out, batch_size=batch_size, buffering=buffering, epoch_rows=epoch_rows,
            epoch=epoch, cores=cores, order=order, checkpoint=checkpoint, restart=restart, overwrite=overwrite,
            memory=memory, progress=progress, probe=probe,
        )  # fmt: skip

    def start(
        self,
        spark: Any,
        source: Any = None,
        *,
        sinks: Any = None,
        out: str | Path | None = None,
        checkpoint: str | Path | None = None,
        restart: Restart = "same",
        trigger: Duration | None = None,
        max_records: int | None = None,
        target_duration: Duration | None = None,
        min_records: int | None = None,
        partitions: int | None = None,
        order: Literal["auto", "arrival", "event_time"] = "auto",
        fuse: Literal["auto", "exact", "coarse"] = "auto",
        buffering: Buffering | str | None = None,
        overwrite: bool = False,
        memory: Literal["normal", "small"] = "normal",
        probe: Probe | None = None,
    ) -> Query:
        """Start on Spark Structured Streaming; see :func:`riot_ops.spark.start` for the options."""
        from riot_ops.spark.runner import start

        return start(
            self, spark, source, sinks=sinks, out=out, checkpoint=checkpoint, restart=restart, trigger=trigger,
            max_records=max_records, target_duration=target_duration, min_records=min_records, partitions=partitions,
            order=order, fuse=fuse, buffering=buffering, overwrite=overwrite, memory=memory, probe=probe,
        )  # fmt: skip

    def transform(
        self,
        df: Any,
        *,
        on_error: Literal["column", "drop"] = "column",
        order: Literal["auto", "arrival", "event_time"] = "auto",
        partitions: int | None = None,
        fuse: Literal["auto", "exact", "coarse"] = "auto",
        buffering: Buffering | str | None = None,
        streaming: bool | None = None,
    ) -> Any:
        """Apply a dataflow with one source and one output stream to a batch or streaming Spark ``DataFrame``.

        It writes to no sink. See :func:`riot_ops.spark.frames.transform_flow` for the options.
        """
        from riot_ops.spark.frames import transform_flow

        return transform_flow(
            self, df, on_error=on_error, order=order, partitions=partitions, fuse=fuse, buffering=buffering,
            streaming=streaming,
        )  # fmt: skip

    def frames(
        self,
        source: Any,
        *,
        order: Literal["auto", "arrival", "event_time"] = "auto",
        partitions: int | None = None,
        fuse: Literal["auto", "exact", "coarse"] = "auto",
        buffering: Buffering | str | None = None,
        streaming: bool | None = None,
    ) -> Frames:
        """Compute all its streams over a Spark ``DataFrame``, or one ``DataFrame`` for each source.

        They are written to no sink. See :func:`riot_ops.spark.frames.frames` for the options.
        """
        from riot_ops.spark.frames import frames

        return frames(
            self, source, order=order, partitions=partitions, fuse=fuse, buffering=buffering, streaming=streaming
        )

    # -- descriptor --------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Convert the dataflow to JSON-able data."""
        return describe(self)

    def to_json(self, indent: int | None = 2) -> str:
        """Convert the dataflow to JSON text."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, functions: Mapping[str, Callable[..., Any]] | None = None) -> Self:
        """Create the dataflow that :meth:`to_json` wrote.

        Parameters
        ----------
        functions : mapping of name to function
            The functions of ``ro.map`` and the like, by their names in the descriptor. A descriptor never causes an
            import.
        """
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"not a JSON dataflow: {error}") from None
        return cls.from_dict(data, functions)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> Self:
        """Create the dataflow that :meth:`to_dict` described; ``functions`` as in :meth:`from_json`."""
        return load(data, functions or {}, cls, Task.from_dict)

    # -- diagrams ----------------------------------------------------------------------------------

    def diagram(self) -> str:
        """Draw the graph in Mermaid's notation."""
        return mermaid(self)

    def svg(self) -> str:
        """Draw the graph as an SVG image."""
        return svg(self)

    def _repr_svg_(self) -> str:
        return self.svg()
