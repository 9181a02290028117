"""What a dataflow gets of the streams that are shared: its own sinks, under its own names."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from riot_ops.core.sink import Fan
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.submission import Submission
from riot_ops.runtime.binding import end_sinks
from riot_ops.runtime.claim import Claim

__all__ = ["Delivery"]


class Delivery:
    """Writes records to the sinks of one dataflow, in epochs.

    A sink that fails ends the delivery and is nobody else's matter; what went wrong is kept in ``failure``.

    Raises
    ------
    ConnectorError
        Where a sink cannot begin, or somebody else writes to its folder.
    """

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._claim = Claim(folder for sink in submission.sinks.values() for folder in sink.folders())
        self.paused = False
        self.failure: Exception | None = None
        self.rows = 0
        #: Where it is noted what it wants: the table, and the key in it.
        self.wanted: list[tuple[dict[str, list[tuple[Delivery, str]]], str]] = []
        self._epoch = 0
        try:
            for sink in submission.sinks.values():
                sink.begin(False)
            self._writer = self._opened()
        except BaseException:
            self._claim.release()
            raise

    def _opened(self) -> Fan:
        return Fan(self._submission.routes, self._submission.sinks, self._epoch, 0)

    def write(self, stream: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Add records of a stream, which has the dataflow's own name."""
        if self.paused or self.failure is not None:
            return
        try:
            for batch in batches:
                self._writer.write(stream, batch)
                self.rows += batch.num_rows
        except Exception as error:  # a user's function or store, whatever it raises
            self._fail(error)

    def reject(self, label: str, batch: pa.RecordBatch) -> None:
        """Add rejected records of a step, which has this name in the dataflow."""
        column = batch.schema.get_field_index("task")
        names = pa.array([label] * batch.num_rows, pa.string())
        self.write(ERRORS_STREAM, [batch.set_column(column, batch.schema.field(column), names)])

    def commit(self) -> None:
        """End an epoch: what was written so far can be seen."""
        if self.failure is not None:
            return
        try:
            message = self._writer.finish()
            for name, sink in self._submission.sinks.items():
                sink.commit(self._epoch, [message["sinks"][name]])
            self._epoch += 1
            self._writer = self._opened()
        except Exception as error:  # as above
            self._fail(error)

    def stop(self, error: Exception) -> None:
        """Nothing more can come, as a step has failed; what came before can be seen."""
        if self.failure is None:
            self.commit()
            if self.failure is None:
                self._fail(error)

    def close(self) -> None:
        """The dataflow has ended."""
        self.commit()
        try:
            if self.failure is None:
                self._writer.abort()
                end_sinks(self._submission.flow, self._submission.sinks, self._submission.routes)
        except Exception as error:  # as above
            self._fail(error)
        finally:
            self._claim.release()

    def _fail(self, error: Exception) -> None:
        self.failure = error
        self._writer.abort()
