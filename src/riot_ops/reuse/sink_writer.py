"""The sinks of one dataflow, which get shared streams under the dataflow's own names."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from riot_ops.core.folder_lock import FolderLock
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.sink import Writer, result_batch
from riot_ops.graph.merges import numbered_as
from riot_ops.reuse.errors import FailedBeforeError, describe_error
from riot_ops.reuse.submission import Submission, own_numbers
from riot_ops.runtime.binding import end_sinks

__all__ = ["SinkWriter"]

_log = logging.getLogger("riot_ops")


class SinkWriter:
    """Writes records to the sinks of one dataflow, in epochs.

    A failed sink gets no more records, which concerns this dataflow alone (``on_failure="detach"``), or all sinks of
    the dataflow end (``"stop"``).

    Attributes
    ----------
    failures : list of Exception
        Errors in the order in which they occurred.
    lost : Counter
        By stream, the records that some sink did not get or did not keep.
    gaps : dict of str to str
        By sink that lacks records, why. Such a sink never continues, so that the gap stays visible.
    rows : int
        Records written to all sinks of their stream.
    run : str
        Identity of the run for the sinks.

    Parameters
    ----------
    submission : Submission
    epoch : int, optional
        The epoch with which the sinks continue; by default they begin.
    durable : bool, default False
        Whether committed output is on disk before :meth:`commit` returns.
    restarted : bool, default False
        Whether the dataflow ran before a restart: a sink that cannot begin then counts as failed since.
    gaps : mapping of str to str, optional
        Gaps from before a restart.
    placed : mapping of str to str, optional
        The running step of each node: shared streams then get the numbers of the dataflow.
    run : str, default ""
        Identity of the run before a restart; by default a new one.

    Raises
    ------
    ConnectorError
        If another process writes to the folder of a sink. Otherwise the error of a sink that cannot begin.
    """

    def __init__(
        self,
        submission: Submission,
        epoch: int | None = None,
        durable: bool = False,
        restarted: bool = False,
        gaps: Mapping[str, str] | None = None,
        placed: Mapping[str, str] | None = None,
        run: str = "",
    ) -> None:
        self._submission = submission
        self.run = run or uuid.uuid4().hex
        self._ordinals = submission.flow.result_ordinals()
        self._numbers = {} if placed is None else own_numbers(submission.flow, placed)
        self._durable = durable
        self._lock = FolderLock(())
        self.failures: list[Exception] = []
        self.lost: Counter[str] = Counter()
        self.gaps = {name: why for name, why in (gaps or {}).items() if name in submission.sinks}
        self.rows = 0
        self._ended = False
        self._reasons: dict[str, str] = {}  # of the sinks that failed themselves
        #: Per sink: the number of its epoch and, unless it has failed, its writer and the records of the epoch.
        self._epochs = dict.fromkeys(submission.sinks, epoch or 0)
        self._writers: dict[str, Writer] = {}
        self._uncommitted: dict[str, Counter[str]] = {}
        #: By stream, the records of the epoch that count as lost; all sinks of a stream get the same.
        self._missed: Counter[str] = Counter()
        try:
            wrong = self._begin_sinks(epoch, restarted)
        except BaseException:
            self.halt()
            raise
        for name, error in wrong.items():
            _log.warning("the dataflow %r continues without its sink %r: %s", submission.name, name, error)
            self._fail_sink(name, error)

    def _begin_sinks(self, epoch: int | None, restarted: bool) -> dict[str, Exception]:
        """Let all sinks begin, or continue with an epoch; return the errors of sinks that ran before a restart."""
        sinks = self._submission.sinks
        try:
            self._lock = FolderLock(folder for sink in sinks.values() for folder in sink.folders())
        except Exception as error:  # a user's store may raise anything
            if not restarted:
                raise
            return dict.fromkeys(sinks, error)
        wrong: dict[str, Exception] = {}
        for name, sink in sinks.items():
            try:
                if name in self.gaps:
                    raise FailedBeforeError(self.gaps[name])
                sink.identify(self.run)
                if epoch is None:
                    sink.begin(False)
                else:
                    sink.recover(epoch)
                self._open(name)
            except Exception as error:  # as above
                if not restarted:
                    raise
                wrong[name] = error
        return wrong

    @property
    def finished(self) -> bool:
        """Whether no sink takes records any more."""
        return not self._writers

    @property
    def epoch(self) -> int:
        """Number of the current epoch."""
        return max(self._epochs.values(), default=0)

    def _open(self, name: str) -> None:
        self._writers[name] = self._submission.sinks[name].writer(self._epochs[name], 0)
        self._uncommitted[name] = Counter()

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        """Write records of a stream, or rejected records of one step; their names are the dataflow's own."""
        if self._numbers:
            batch = self._with_own_numbers(stream, batch)
        whole = True
        batch = result_batch(batch, self._ordinals)
        for name in self._submission.routes.get(stream, ()):
            writer = self._writers.get(name)
            try:
                if writer is not None:
                    writer.write(stream, batch)
                    self._uncommitted[name][stream] += batch.num_rows
            except Exception as error:  # a user's function or store may raise anything
                self._fail_sink(name, error)
                writer = None
            if writer is None:
                whole = False
                if self.failures:
                    self.gaps.setdefault(name, self._reasons.get(name) or describe_error(self.failures[0]))
        if whole:
            self.rows += batch.num_rows
        else:
            self.lost[stream] += batch.num_rows
            self._missed[stream] += batch.num_rows

    def _with_own_numbers(self, stream: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        if stream == ERRORS_STREAM and batch.num_rows:
            stream = numbered_as(batch.column("task")[0].as_py())
        place, step = batch.schema.get_field_index("seq"), self._numbers.get(stream)
        if step is None or place < 0:
            return batch
        return batch.set_column(place, batch.schema.field(place), step.numbers(batch.column(place)))

    def incomplete_sinks(self, include_all: bool) -> dict[str, str]:
        """Return the sinks that lack records, and why; with ``include_all`` all sinks, if there was a failure."""
        gaps = dict(self.gaps)
        if include_all and self.failures:
            return dict.fromkeys(self._submission.sinks, describe_error(self.failures[-1])) | gaps
        return gaps

    def commit(self) -> None:
        """End the epoch: its records become visible."""
        for name in list(self._writers):
            if name not in self._writers:
                continue  # ended because another sink failed
            try:
                self._submission.sinks[name].commit(self._epochs[name], [self._writers[name].finish()])
                if self._durable:
                    self._submission.sinks[name].sync(self._epochs[name])
                self._epochs[name] += 1
                self._uncommitted[name] = Counter()
                self._open(name)
            except Exception as error:  # as above
                self._fail_sink(name, error)
        self._missed = Counter()

    def fail(self, error: Exception) -> None:
        """Note that a step of the dataflow has failed; earlier records stay visible."""
        if error not in self.failures:
            self.failures.append(error)
            if self._submission.on_failure == "stop":
                self.end()

    def halt(self) -> None:
        """Release the sinks without a commit: another process may continue the current epoch."""
        for writer in self._writers.values():
            writer.abort()
        self._writers = {}
        self._lock.release()

    def close(self) -> None:
        """End the dataflow."""
        try:
            self.end()
        finally:
            self._lock.release()

    def end(self) -> None:
        """Commit, and end the sinks that have not failed."""
        if self._ended:
            return
        self._ended = True
        self.commit()
        writers, self._writers = self._writers, {}
        for name, writer in writers.items():
            writer.abort()
            sinks = {name: self._submission.sinks[name]}
            try:
                end_sinks(self._submission.flow, sinks, self._submission.routes)
            except Exception as error:  # as above
                self.failures.append(error)

    def _fail_sink(self, name: str, error: Exception) -> None:
        self.failures.append(error)
        self._reasons[name] = describe_error(error)
        if (writer := self._writers.pop(name, None)) is not None:
            writer.abort()
            for stream, rows in self._uncommitted.pop(name).items():
                self.gaps.setdefault(name, self._reasons[name])
                if (more := rows - self._missed[stream]) > 0:  # another sink may have lost them already
                    self.lost[stream] += more
                    self._missed[stream] += more
        if self._submission.on_failure == "stop":
            self.end()
