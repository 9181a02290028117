"""Folders that are no checkpoint of ours, or are made to harm: an error that names the file, or a short report."""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib

import msgspec
import pytest

import riot_ops as ro
from riot_ops.core.errors import RiotError
from riot_ops.runtime.checkpoint import HEADER, MAGIC, Checkpoint
from riot_ops.runtime.checkpoint_report import checkpoint_problems, describe_checkpoint
from tests.cli.commands import call, invoke

DEEP = "[" * 100_000


def local(folder):
    flow = ro.Dataflow("kept")
    flow.source("in", schema={"value": "double"}).to(ro.tasks.KalmanFilter(by=()), id="smooth").to("out")
    flow.run([{"value": 1.0}] * 20, checkpoint=folder, epoch_rows=10, batch_size=10)
    return max(folder.glob("state-*"))


def of_spark(folder):
    for name in ("offsets", "commits", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"at":{"n":1},"ended":false}')
    (folder / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def manifest(folder, **found):
    later = ("run", "steps", "layout", "sources", "base")
    plain = {name: value for name, value in found.items() if value or name not in later} | {"checksum": 0}
    text = json.dumps(found | {"checksum": zlib.crc32(msgspec.json.encode(plain))})
    (folder / "riot_ops.json").write_text(text)


def problems(folder):
    """What is wrong, by either function."""
    try:
        found = list(checkpoint_problems(folder))
        described = describe_checkpoint(folder)
        json.dumps(described)
        assert len(str(described)) < 20_000
    except RiotError as error:
        found = [str(error)]
    return "; ".join(found)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.mkdir(),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("/nowhere/at-all"),
    ],
    ids=["folder", "pipe", "device", "loop", "lost"],
)
def test_checkpoint_in_the_place_of_which_is_something_else(damage, tmp_path):
    path = local(tmp_path)
    path.unlink()
    damage(path)
    assert f"the checkpoint {path} cannot be read" in problems(tmp_path)


def write(path, body):
    path.write_bytes(MAGIC + HEADER.pack(len(body), zlib.crc32(body)) + body)


def test_nested_position(tmp_path):
    path = local(tmp_path)
    checkpoint = Checkpoint(tmp_path)
    saved = checkpoint.read(path)
    for _ in range(500):
        saved.offsets["in"] = {"a": saved.offsets["in"]}
    checkpoint.write(saved)
    assert problems(tmp_path) == ""
    assert "…" in call("checkpoint", "show", tmp_path)
    body = msgspec.msgpack.encode(saved)
    at = body.index(b"\x81\xa1a")
    write(path, body[:at] + b"\x81\xa1a" * 100_000 + body[at:])
    assert f"the checkpoint {path} is damaged" in problems(tmp_path)


def test_report_has_no_control_characters_and_no_pickle(tmp_path):
    path = local(tmp_path)
    checkpoint = Checkpoint(tmp_path)
    saved = checkpoint.read(path)
    saved.offsets["in\x1b[31m"] = {
        "a\nb": "\x1b]0;owned\x07",
        "long": "x" * 100_000,
        "half": "\ud800".encode(errors="replace").decode(),
    }
    saved.flow["step '\x1b[2J'"] = {"password": "never-shown"}
    saved.state["\x1b[1m"] = saved.state["smooth"]
    checkpoint.write(saved)
    text = call("checkpoint", "show", tmp_path)
    assert "\x1b" not in text and "\x07" not in text and "never-shown" not in text and len(text) < 5000
    assert json.loads(call("checkpoint", "show", tmp_path, "--json"))["positions"]["in\x1b[31m"]["a\nb"]
    marker = tmp_path / "marker"
    saved.state["\x1b[1m"] = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    checkpoint.write(saved)
    result = invoke("checkpoint", "check", tmp_path)
    assert isinstance(result.exception, RiotError) and "damaged or not riot_ops state" in str(result.exception)
    assert not marker.exists()


def folder_in_place_of_sums(folder):
    (folder / ".x.crc").mkdir()
    (folder / "x").write_text("a")


def sums(block, *, place="x"):
    def spoil(folder):
        (folder / "x").write_bytes(b"abc" * 1000)
        if place != "x":
            (folder / "x").unlink()
            (folder / "x").symlink_to(place)
        (folder / ".x.crc").write_bytes(b"crc\0" + struct.pack(">i", block) + b"\0" * 40)

    return spoil


def packed(spoil):
    def write_zip(folder):
        path = folder / "state" / "1.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a", b"abc" * 100)
        data = bytearray(path.read_bytes())
        spoil(data, data.find(b"PK\x01\x02"))
        path.write_bytes(bytes(data))

    return write_zip


def encrypt(data, central):
    data[6] |= 1
    data[central + 8] |= 1


def other_method(data, central):
    data[8] = data[central + 10] = 99


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: (d / "offsets" / "²").write_text("v1\n{}\n"), ""),
        (lambda d: (d / "offsets" / ("9" * 200)).write_text("v1\n{}\n"), ""),
        (lambda d: (d / "state" / "²").mkdir(), ""),
        (lambda d: (d / "offsets" / "1").mkdir(), "offsets/1 cannot be read"),
        (lambda d: os.mkfifo(d / "offsets" / "1"), "offsets/1 cannot be read"),
        (lambda d: (d / "offsets" / "0").write_text(f"v1\n{{}}\n{DEEP}"), ""),
        (lambda d: (d / "offsets" / "0").write_text(f"v1\n{DEEP}\n"), "offsets/0 is damaged"),
        (lambda d: (d / "offsets" / "0").write_text("v1\n{}\n" + "9" * 10_000), ""),
        (lambda d: (d / "offsets" / "0").write_text('v1\n{}\n{"a":"\\ud800\\u001b[31m"}\n\x1b[31m'), ""),
        (lambda d: (d / "riot_ops.json").write_text("null"), "riot_ops.json is damaged"),
        (lambda d: (d / "riot_ops.json").write_text(DEEP), "riot_ops.json is damaged"),
        (lambda d: os.mkfifo(d / "riot_ops.json"), "riot_ops.json is damaged"),
        (lambda d: manifest(d, flow=5, state=7), "riot_ops.json is damaged: it is no manifest"),
        (lambda d: manifest(d, flow=["a"], state=None), "riot_ops.json is damaged: it is no manifest"),
        (lambda d: manifest(d, flow={"step 'a'": 5}, state={"state of step 'a'": 1}, partitions="\x1b[31m"), ""),
        (sums(512), "x is damaged: the checksum does not fit"),
        (sums(1), "x is damaged: the checksum does not fit"),
        (sums(0), "x is damaged: the checksum does not fit"),
        (sums(-1), "x is damaged: the checksum does not fit"),
        (sums(512, place="/dev/zero"), ".x.crc cannot be read"),
        (sums(512, place="/usr"), ".x.crc cannot be read"),
        (folder_in_place_of_sums, ".x.crc cannot be read"),
        (packed(encrypt), "1.zip is damaged"),
        (packed(other_method), "1.zip is damaged"),
        (packed(lambda data, _: data.__delitem__(slice(20, None))), "1.zip is damaged"),
        (lambda d: (d / "state" / "1.zip").mkdir(), "1.zip cannot be read"),
    ],
)
def test_hostile_checkpoints_of_spark(spoil, message, tmp_path):
    folder = of_spark(tmp_path / "kept")
    spoil(folder)
    found = problems(folder)
    assert message in found if message else found == ""
    for command in ("show", "check"):
        result = invoke("checkpoint", command, folder)
        assert result.exception is None or isinstance(result.exception, RiotError | SystemExit), result.exception
        assert "\x1b" not in result.output
