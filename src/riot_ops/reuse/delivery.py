"""What a dataflow gets of the streams that are shared: its own sinks, under its own names."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from riot_ops.core.sink import Writer
from riot_ops.reuse.errors import FailedBeforeError, told
from riot_ops.reuse.submission import Submission
from riot_ops.runtime.binding import end_sinks
from riot_ops.runtime.claim import Claim

__all__ = ["Delivery"]

_log = logging.getLogger("riot_ops")


class Delivery:
    """Writes records to the sinks of one dataflow, in epochs.

    A sink that fails is nobody else's matter: it gets nothing more (``on_failure="detach"``), or all sinks of the
    dataflow end (``"stop"``).

    Attributes
    ----------
    failures : list of Exception
        What went wrong, in the order in which it did.
    lost : Counter
        By stream, the records that some sink should have had and did not keep.
    gaps : dict of str to str
        By sink that lacks records, why: it never goes on, lest nobody see the hole.
    rows : int
        Records that were written to all sinks meant for them.
    over : bool
        Whether no sink is left that takes records.

    Parameters
    ----------
    submission : Submission
    epoch : int, optional
        The epoch that it goes on with; by default it begins.
    durable : bool, default False
        Whether what is committed is on disk before :meth:`commit` returns.
    again : bool, default False
        Whether the dataflow ran before a restart: a sink that cannot begin then counts as one that has failed since.
    gaps : mapping of str to str, optional
        Those of before a restart.

    Raises
    ------
    ConnectorError
        Where somebody else writes to the folder of a sink. Where one cannot begin, what it raises.
    """

    def __init__(
        self,
        submission: Submission,
        epoch: int | None = None,
        durable: bool = False,
        again: bool = False,
        gaps: Mapping[str, str] | None = None,
    ) -> None:
        self._submission = submission
        self._durable = durable
        self._claim = Claim(())
        self.failures: list[Exception] = []
        self.lost: Counter[str] = Counter()
        self.gaps = {name: why for name, why in (gaps or {}).items() if name in submission.sinks}
        self.rows = 0
        self._ended = False
        self._why: dict[str, str] = {}  # by sink that has failed itself
        #: By sink: the number of its epoch; of those that have not failed the writer, and what it has got in it.
        self._epochs = dict.fromkeys(submission.sinks, epoch or 0)
        self._writers: dict[str, Writer] = {}
        self._got: dict[str, Counter[str]] = {}
        #: By stream, the records of the epoch that are counted as lost; all sinks of a stream get the same.
        self._missed: Counter[str] = Counter()
        try:
            wrong = self._begun(epoch, again)
        except BaseException:
            self.halt()
            raise
        for name, error in wrong.items():
            _log.warning("the dataflow %r goes on without its sink %r: %s", submission.name, name, error)
            self._fail(name, error)

    def _begun(self, epoch: int | None, again: bool) -> dict[str, Exception]:
        """Have all sinks begin, or go on with an epoch; returns what went wrong with those that were there before."""
        sinks = self._submission.sinks
        try:
            self._claim = Claim(folder for sink in sinks.values() for folder in sink.folders())
        except Exception as error:  # a user's store, whatever it raises
            if not again:
                raise
            return dict.fromkeys(sinks, error)
        wrong: dict[str, Exception] = {}
        for name, sink in sinks.items():
            try:
                if name in self.gaps:
                    raise FailedBeforeError(self.gaps[name])
                if epoch is None:
                    sink.begin(False)
                else:
                    sink.recover(epoch)
                self._open(name)
            except Exception as error:  # as above
                if not again:
                    raise
                wrong[name] = error
        return wrong

    @property
    def over(self) -> bool:
        return not self._writers

    @property
    def epoch(self) -> int:
        """The epoch that is under way."""
        return max(self._epochs.values(), default=0)

    def _open(self, name: str) -> None:
        self._writers[name] = self._submission.sinks[name].writer(self._epochs[name], 0)
        self._got[name] = Counter()

    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        """Add records of a stream, which has the dataflow's own name."""
        whole = True
        for name in self._submission.routes.get(stream, ()):
            writer = self._writers.get(name)
            try:
                if writer is not None:
                    writer.write(stream, batch)
                    self._got[name][stream] += batch.num_rows
            except Exception as error:  # a user's function or store, whatever it raises
                self._fail(name, error)
                writer = None
            if writer is None:
                whole = False
                if self.failures:
                    self.gaps.setdefault(name, self._why.get(name) or told(self.failures[0]))
        if whole:
            self.rows += batch.num_rows
        else:
            self.lost[stream] += batch.num_rows
            self._missed[stream] += batch.num_rows

    def lacking(self, all_of_them: bool) -> dict[str, str]:
        """The sinks that lack records, and why; all of them where some never came here after a failure."""
        gaps = dict(self.gaps)
        if all_of_them and self.failures:
            return dict.fromkeys(self._submission.sinks, told(self.failures[-1])) | gaps
        return gaps

    def commit(self) -> None:
        """End an epoch: what was written so far can be seen."""
        for name in list(self._writers):
            if name not in self._writers:
                continue  # ended by the failure of another
            try:
                self._submission.sinks[name].commit(self._epochs[name], [self._writers[name].finish()])
                if self._durable:
                    self._submission.sinks[name].sync(self._epochs[name])
                self._epochs[name] += 1
                self._got[name] = Counter()
                self._open(name)
            except Exception as error:  # as above
                self._fail(name, error)
        self._missed = Counter()

    def stop(self, error: Exception) -> None:
        """A step of the dataflow has failed: nothing more comes of it; what came before can be seen."""
        if error not in self.failures:
            self.failures.append(error)
            if self._submission.on_failure == "stop":
                self.end()

    def halt(self) -> None:
        """Let go without a commit: another may go on from the epoch that is under way."""
        for writer in self._writers.values():
            writer.abort()
        self._writers = {}
        self._claim.release()

    def close(self) -> None:
        """The dataflow has ended."""
        try:
            self.end()
        finally:
            self._claim.release()

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

    def _fail(self, name: str, error: Exception) -> None:
        self.failures.append(error)
        self._why[name] = told(error)
        if (writer := self._writers.pop(name, None)) is not None:
            writer.abort()
            for stream, rows in self._got.pop(name).items():
                self.gaps.setdefault(name, self._why[name])
                if (more := rows - self._missed[stream]) > 0:  # another sink may have lost them already
                    self.lost[stream] += more
                    self._missed[stream] += more
        if self._submission.on_failure == "stop":
            self.end()
