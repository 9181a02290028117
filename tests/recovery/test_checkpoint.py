"""Checkpoints of local runs: damage, other dataflows, crashes between batches, folders in use."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConnectorError, StateError
from riot_ops.core.file_sink import ParquetSink
from riot_ops.core.folder_lock import LOCK, FolderLock
from riot_ops.core.sink import CallbackSink, FanOutWriter
from riot_ops.core.text_sinks import CSVSink, JSONLinesSink
from riot_ops.measure.metrics import Summary
from riot_ops.runtime.checkpoint import Checkpoint
from tests.recovery import job

READINGS = {"device": "string", "value": "double"}


def flow(low=0.0, *, watched=False, **kalman):
    made = ro.Dataflow("small")
    checked = made.source("readings", schema=READINGS).to(
        t.RangeFilter(bounds={"value": (low, 1e6)}, by=None), id="check"
    )
    smooth = checked.to(t.KalmanFilter(by=("device",), **kalman), id="smooth")
    made.sink("out", smooth)
    if watched:
        made.sink("watch", smooth)
    return made


def rows(n):
    return [{"device": f"d{i % 3}", "value": float(i)} for i in range(n)]


def numbers(folder):
    return [seq for f in sorted((folder / "smooth").glob("*.parquet")) for seq in pq.read_table(f)["seq"].to_pylist()]


@pytest.fixture
def folder(tmp_path):
    """A checkpoint after two epochs."""
    flow().run(rows(10), out=tmp_path / "out", checkpoint=tmp_path / "checkpoint", batch_size=5, epoch_rows=5)
    return tmp_path / "checkpoint"


# -- power cuts --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "probed"), [(ParquetSink, False), (ParquetSink, True), (CSVSink, False), (JSONLinesSink, False)]
)
def test_files_are_synced_before_their_checkpoint(tmp_path, monkeypatch, kind, probed):
    """Track what a power cut may undo at each moment: contents that were not synced, and names in such folders."""
    unsafe, counted = set(), []
    fsync, replace, mkdir = os.fsync, os.replace, os.mkdir

    def synced(handle):
        fsync(handle)
        path = Path(f"/proc/self/fd/{handle}").resolve()
        # contents and names each need their own sync
        unsafe.difference_update([one for one in unsafe if one in (("contents", path), ("name", path, one[-1]))])

    def renamed(hidden, final):
        if Path(final).parent == tmp_path / "checkpoint":
            counted.append({one for one in unsafe if one[-1].is_relative_to(tmp_path / "new")})
        replace(hidden, final)
        unsafe.difference_update([one for one in unsafe if one[-1] == Path(hidden)])
        unsafe.update({("contents", Path(final)), ("name", Path(final).parent, Path(final))})

    def made(path, *more):
        mkdir(path, *more)
        unsafe.add(("name", Path(path).parent, Path(path)))

    for name, function in (("fsync", synced), ("replace", renamed), ("mkdir", made)):
        monkeypatch.setattr(os, name, function)
    options = {"sinks": kind(tmp_path / "new" / "out"), "batch_size": 5, "epoch_rows": 5}
    probe = ro.Probe() if probed else None
    flow().run(rows(15), checkpoint=tmp_path / "checkpoint", probe=probe, **options)
    assert counted == [set()] * 5, "before the first epoch, after each, and at the end"
    assert options["sinks"].table("smooth").num_rows == 15


def test_run_without_checkpoint_does_not_sync_files(tmp_path, monkeypatch):
    waited = []
    monkeypatch.setattr(os, "fsync", waited.append)
    flow().run(rows(15), out=tmp_path, batch_size=5, epoch_rows=5)
    assert len(waited) == 2, "for the names of two folders, once"


def test_failed_sync_names_batch_and_folder(tmp_path, monkeypatch):
    def full(handle):
        if ".parquet" in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConnectorError, match=r"batch 0 cannot be flushed to disk below .*: .*No space left"):
        flow().run(rows(15), out=tmp_path / "out", checkpoint=tmp_path / "checkpoint")


# -- damage ------------------------------------------------------------------------------------------


def test_damaged_file_is_refused_by_name(folder):
    checkpoint = Checkpoint(folder)
    path = checkpoint.latest_path()
    whole = path.read_bytes()
    kept = checkpoint.read(path)
    assert (kept.offsets, kept.ended) == ({"readings": {"row": 10}}, True)
    accepted = []
    bits = [*range(8 * 64), *(8 * byte + byte % 8 for byte in range(64, len(whole)))]
    with open(path, "r+b", buffering=0) as file:
        for bit in bits:
            os.pwrite(file.fileno(), bytes([whole[bit // 8] ^ 1 << bit % 8]), bit // 8)
            try:
                checkpoint.read(path)
                accepted.append(bit)
            except StateError as error:
                assert str(path) in str(error)
            os.pwrite(file.fileno(), whole[bit // 8 : bit // 8 + 1], bit // 8)
        assert checkpoint.read(path) == kept
        for length in reversed(range(len(whole))):
            file.truncate(length)
            with pytest.raises(StateError, match="damaged"):
                checkpoint.read(path)
    assert not accepted, "changed bits that were not detected"


def test_run_with_damaged_checkpoint_changes_nothing(folder, tmp_path):
    path = Checkpoint(folder).latest_path()
    whole, before = path.read_bytes(), numbers(tmp_path / "out")
    choose = random.Random(3)
    for place in choose.sample(range(len(whole)), 40):
        changed = bytearray(whole)
        changed[place] ^= 1 << choose.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(StateError, match=f"checkpoint {path} is damaged: .*; remove it to continue from the one"):
            flow().run(rows(20), out=tmp_path / "out", checkpoint=folder)
        assert numbers(tmp_path / "out") == before


def test_restart_from_previous_checkpoint(folder, tmp_path):
    checkpoint = Checkpoint(folder)
    assert [p.name for p in sorted(folder.iterdir())] == ["state-000000000002.msgpack", "state-000000000003.msgpack"]
    checkpoint.latest_path().unlink()
    flow().run(rows(14), out=tmp_path / "out", checkpoint=folder)
    assert sorted(numbers(tmp_path / "out")) == list(range(14))
    checkpoint.latest_path().rename(folder / "state-000000000009.msgpack")
    with pytest.raises(StateError, match="damaged: it is of epoch 3"):
        flow().run(rows(14), out=tmp_path / "out", checkpoint=folder)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (flow(process_noise=0.5), r"step 'smooth': process_noise was 0\.125 and is 0\.5"),
        (flow(low=-1.0), r"step 'check': bounds was .*0\.0.* and is .*-1\.0.*"),
    ],
)
def test_checkpoint_of_other_dataflow_is_refused_with_difference(folder, tmp_path, other, difference):
    before = numbers(tmp_path / "out")
    with pytest.raises(
        StateError, match=rf"the checkpoint {folder}/state-0+3.msgpack is of another dataflow: {difference};"
    ):
        other.run(rows(20), out=tmp_path / "out", checkpoint=folder)
    assert numbers(tmp_path / "out") == before


def test_unwritable_checkpoint_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectorError, match=f"{tmp_path}/file/checkpoint"):
        flow().run(rows(3), checkpoint=tmp_path / "file" / "checkpoint")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_full_disk_is_named(folder, tmp_path):
    (folder / ".state-000000000004.msgpack").symlink_to("/dev/full")
    with pytest.raises(ConnectorError, match=f"checkpoint {folder}/state-0+4.msgpack cannot be written: .*No space"):
        flow().run(rows(20), out=tmp_path / "out", checkpoint=folder)
    (folder / ".state-000000000004.msgpack").unlink()
    flow().run(rows(20), out=tmp_path / "out", checkpoint=folder)
    assert sorted(numbers(tmp_path / "out")) == list(range(20))


# -- between batches ---------------------------------------------------------------------------------


class Pieces(ro.MemorySource):
    """Splits that are read in pieces of two records; the third piece fails once."""

    lost = True

    def read(self, split):
        for start in range(split["start"], split["end"], 2):
            if start == 4 and self.lost:
                self.lost = False
                raise ConnectorError("lost")
            yield from super().read({"start": start, "end": min(start + 2, split["end"])})


def test_crash_within_split_loses_nothing(tmp_path):
    source = Pieces(rows(10))
    options = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "epoch_rows": 1}
    with pytest.raises(ConnectorError, match="lost"):
        flow().run(source, **options)
    flow().run(source, **options)
    assert numbers(tmp_path / "out") == list(range(10))


def test_interrupt_within_split_duplicates_nothing(tmp_path):
    source = Pieces(rows(10))
    source.lost = False
    interrupt = [False, True]

    def watch(stream, batch):
        if interrupt and interrupt.pop(0):
            raise KeyboardInterrupt

    made = flow(watched=True)
    options = {"checkpoint": tmp_path / "checkpoint", "epoch_rows": 1, "buffering": "immediate"}
    for attempt in range(2):
        sinks = {"out": ParquetSink(tmp_path / "out"), "watch": CallbackSink(watch)}
        if attempt == 0:
            with pytest.raises(KeyboardInterrupt):
                made.run(source, sinks=sinks, **options)
        else:
            made.run(source, sinks=sinks, **options)
    assert numbers(tmp_path / "out") == list(range(10))


@pytest.mark.long
@pytest.mark.parametrize("last", [False, True], ids=["within a batch", "at the end"])
@pytest.mark.parametrize("cores", [1, 2])
def test_interrupt_while_writing_loses_and_duplicates_nothing(tmp_path, cores, last):
    interrupts = [True]

    def watch(stream, batch):
        late = batch["seq"][-1].as_py() == 19_999
        if interrupts and (late if last else batch["seq"][0].as_py() >= 5_000):
            interrupts.pop()
            raise KeyboardInterrupt

    made = ro.Dataflow("two")
    source = made.source("in", schema={"value": "double"})
    means = source.to(t.MovingAverage(by=(), window=3, partial=True), id="means")
    made.sink("watch", means if last else source).sink("averages", means).sink("out", source)
    options = {"checkpoint": tmp_path / "checkpoint", "cores": cores, "batch_size": 5_000, "epoch_rows": 10**9}
    sinks = {"out": ParquetSink(tmp_path / "out"), "averages": ParquetSink(tmp_path / "means")}
    with pytest.raises(KeyboardInterrupt):
        made.run(rows(20_000), sinks={**sinks, "watch": CallbackSink(watch)}, **options)
    assert not interrupts
    made.run(rows(20_000), sinks={**sinks, "watch": CallbackSink(watch)}, **options)
    assert sorted(ParquetSink(tmp_path / "out").table("in")["seq"].to_pylist()) == list(range(20_000))
    assert ParquetSink(tmp_path / "means").table("means").num_rows == 6_667


@pytest.mark.parametrize("at", ["sync", "commit"])
def test_interrupt_while_epoch_is_committed(tmp_path, monkeypatch, at):
    sink, real = ParquetSink(tmp_path / "out"), getattr(ParquetSink, at)
    calls = []

    def interrupted(self, *given):
        real(self, *given)
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ParquetSink, at, interrupted)
    options = {"checkpoint": tmp_path / "checkpoint", "epoch_rows": 3, "buffering": "immediate", "cores": 1}
    with pytest.raises(KeyboardInterrupt):
        flow().run(rows(10), sinks=sink, **options)
    monkeypatch.undo()
    flow().run(rows(10), sinks=sink, **options)
    assert numbers(tmp_path / "out") == list(range(10))


@pytest.mark.parametrize("at", ["finish", "commit"])
def test_interrupt_while_epoch_is_committed_without_checkpoint(tmp_path, monkeypatch, at):
    """All records that were read are processed and visible."""
    of = ParquetSink if at == "commit" else FanOutWriter
    real, calls = getattr(of, at), []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 2:
            real(self, *given)
            raise KeyboardInterrupt
        return real(self, *given)

    monkeypatch.setattr(of, at, interrupted)
    options = {"epoch_rows": 3, "batch_size": 3, "cores": 1}
    with pytest.raises(KeyboardInterrupt):
        flow().run(rows(10), sinks=ParquetSink(tmp_path / "out"), **options)
    assert numbers(tmp_path / "out") == list(range(6))


class Slow(ro.MemorySource):
    """Delivers one record at a time, so that epochs end between them."""

    def latest(self, start, limit=None):
        return super().latest(start, 1)


@pytest.mark.parametrize("before", [False, True], ids=["after a commit", "before a commit"])
def test_interrupt_during_commit_of_several_sinks_completes_epoch(tmp_path, monkeypatch, before):
    real, calls = ParquetSink.commit, []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 3 and before:
            raise KeyboardInterrupt
        real(self, *given)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(ParquetSink, "commit", interrupted)
    sinks = {"out": ParquetSink(tmp_path / "out"), "more": ParquetSink(tmp_path / "more")}
    made = ro.Dataflow("two")
    source = made.source("in", schema={"value": "double"})
    made.sink("out", source).sink("more", source)
    with pytest.raises(KeyboardInterrupt):
        made.run(Slow(rows(10)), sinks=sinks, epoch_rows=3, buffering="immediate", cores=1)
    assert [sorted(sink.table("in")["seq"].to_pylist()) for sink in sinks.values()] == [list(range(6))] * 2


@pytest.mark.long
def test_epoch_ends_while_source_is_silent(tmp_path):
    seen = []

    class Silent(ro.MemorySource):
        """Finished once its records are visible in the output, or after a time limit."""

        until = time.monotonic() + 20

        def finished(self, offset):
            seen[:] = numbers(tmp_path)
            return bool(seen) or time.monotonic() > self.until

    flow().run(rows(4))  # compiles the kernels
    flow().run(Silent(rows(4)), out=tmp_path, epoch="500ms")
    assert seen == list(range(4))


# -- folders in use ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", ["out", "checkpoint"])
def test_second_run_in_folder_is_refused(tmp_path, shared):
    refused = []

    def meanwhile(stream, batch):
        options = {"out": tmp_path / "other", "checkpoint": tmp_path / "second"}
        options[shared] = tmp_path / shared
        with pytest.raises(ConnectorError, match=rf"{tmp_path}/{shared}.* is in use by this process on this host"):
            flow().run(rows(3), **options)
        refused.append(True)

    made = flow(watched=True)
    sinks = {"out": ParquetSink(tmp_path / "out"), "watch": CallbackSink(meanwhile)}
    made.run(rows(10), sinks=sinks, checkpoint=tmp_path / "checkpoint")
    assert refused
    assert numbers(tmp_path / "out") == list(range(10))
    assert not list(tmp_path.rglob(LOCK)), "a lock file is left"
    flow().run(rows(3), out=tmp_path / "other")  # a refused run holds no lock


def test_folder_of_killed_process_is_free(tmp_path):
    code = "import sys, time, pathlib, riot_ops.core.folder_lock as c; k = c.FolderLock([pathlib.Path(sys.argv[1])]); "
    code += "print('held', flush=True); time.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(ConnectorError, match=rf"{tmp_path} is in use by process {owner.pid} on this host since 20"):
            job.dataflow().run(job.table(10), checkpoint=tmp_path)
    finally:
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
    assert (tmp_path / LOCK).exists()
    job.dataflow().run(job.table(10), checkpoint=tmp_path)
    assert not (tmp_path / LOCK).exists()


def test_lock_of_ended_run_is_released(tmp_path):
    over = []
    first = FolderLock([tmp_path / "a"], lambda: bool(over))
    with pytest.raises(ConnectorError, match="in use"):
        FolderLock([tmp_path / "b", tmp_path / "a"])
    FolderLock([tmp_path / "b"]).release()
    over.append(True)
    with FolderLock([tmp_path / "a"]):
        first.release()
        with pytest.raises(ConnectorError, match="in use"):
            FolderLock([tmp_path / "a"])


def signalling(number, times=1, at=2):
    """A sink's callback that sends a signal to this process with one batch."""
    calls = []

    def watch(stream, batch):
        calls.append(batch)
        if len(calls) == at:
            for _ in range(times):
                signal.raise_signal(number)

    return watch


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_within_a_range_commits_at_its_end(tmp_path, number):
    source = Pieces(rows(10))
    source.lost = False
    options = {"checkpoint": tmp_path / "checkpoint", "buffering": "immediate", "cores": 1}
    sinks = {"out": ParquetSink(tmp_path / "out"), "watch": CallbackSink(signalling(number))}
    shown = []
    with pytest.raises(KeyboardInterrupt):
        flow(watched=True).run(source, sinks=sinks, progress=shown.append, **options)
    kept = numbers(tmp_path / "out")
    assert kept == list(range(len(kept))) and len(kept) >= 2  # the batch of the signal is there
    assert shown[-1].messages == shown[-1].rows["smooth"] == len(kept)
    flow(watched=True).run(source, sinks={**sinks, "watch": CallbackSink(lambda s, b: None)}, **options)
    assert numbers(tmp_path / "out") == list(range(10))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_within_a_range_gives_up_the_epoch(tmp_path, number):
    source = Pieces(rows(10))
    source.lost = False
    options = {"checkpoint": tmp_path / "checkpoint", "buffering": "immediate", "cores": 1}
    sinks = {"out": ParquetSink(tmp_path / "out"), "watch": CallbackSink(signalling(number, times=2))}
    with pytest.raises(KeyboardInterrupt):
        flow(watched=True).run(source, sinks=sinks, **options)
    assert numbers(tmp_path / "out") == []
    flow(watched=True).run(source, sinks={**sinks, "watch": CallbackSink(lambda s, b: None)}, **options)
    assert numbers(tmp_path / "out") == list(range(10))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["commit", "sync"])
@pytest.mark.parametrize("kept", [False, True])
def test_signal_while_an_epoch_is_committed_leaves_it_whole(tmp_path, monkeypatch, where, number, kept):
    real, calls = getattr(ParquetSink, where), []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 2:
            signal.raise_signal(number)
        real(self, *given)

    monkeypatch.setattr(ParquetSink, where, interrupted)
    options = {"epoch_rows": 3, "buffering": "immediate", "cores": 1}
    if kept:
        options["checkpoint"] = tmp_path / "checkpoint"
    elif where == "sync":
        return  # without a checkpoint nothing is synced
    shown = []
    with pytest.raises(KeyboardInterrupt):
        flow().run(Slow(rows(10)), sinks=ParquetSink(tmp_path / "out"), progress=shown.append, **options)
    assert numbers(tmp_path / "out") == list(range(6))
    assert shown[-1].rows == {"smooth": 6} and shown[-1].steps["check"] == (6, 0)
    if kept:
        monkeypatch.undo()
        flow().run(Slow(rows(10)), sinks=ParquetSink(tmp_path / "out"), **options)
        assert numbers(tmp_path / "out") == list(range(10))


def test_interrupt_between_counting_and_closing_counts_once(tmp_path, monkeypatch):
    real, calls = Summary.warn, []

    def interrupted(self, *, ended):
        calls.append(ended)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(self, ended=ended)

    monkeypatch.setattr(Summary, "warn", interrupted)
    shown = []
    with pytest.raises(KeyboardInterrupt):
        flow().run(
            Slow(rows(10)), sinks=ParquetSink(tmp_path / "out"), progress=shown.append, epoch_rows=3, cores=1,
            buffering="immediate",
        )  # fmt: skip
    assert numbers(tmp_path / "out") == list(range(6))
    assert (shown[-1].messages, shown[-1].rows, shown[-1].steps["check"]) == (6, {"smooth": 6}, (6, 0))
