"""The socket of a manager: its permissions, and answers to malformed lines."""

from __future__ import annotations

import json
import os
import socket
import stat

import pytest

from riot_ops.cli.reuse_socket import make_control_folder, send_request
from riot_ops.core.errors import ConnectorError
from tests.reuse.serving import Serving


def test_socket_is_private_at_any_path_length(tmp_path):
    folder = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    assert len(str(folder)) > 140
    with Serving(folder):
        control = folder / "control"
        assert stat.S_IMODE(control.stat().st_mode) == 0o700
        assert stat.S_IMODE((control / "socket").stat().st_mode) == 0o600
        assert send_request(folder, {"do": "list"}) == []
        assert "control" not in os.getcwd()
    assert not (control / "socket").exists()


def test_folder_is_made_private_and_a_foreign_one_refused(tmp_path):
    (tmp_path / "a" / "control").mkdir(parents=True, mode=0o777)
    assert stat.S_IMODE(make_control_folder(tmp_path / "a").stat().st_mode) == 0o700
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "control").symlink_to(tmp_path / "a" / "control")
    with pytest.raises(ConnectorError, match="does not belong to this user"):
        make_control_folder(tmp_path / "b")


def test_malformed_lines_are_answered(tmp_path):
    folder = tmp_path / "shared"
    with Serving(folder):
        for line, wanted in (
            (b"{\n", "must be a line of JSON"),
            (b"[]\n", "a request must be a JSON object"),
            (b"{", None),
        ):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(folder / "control" / "socket"))
                raw.sendall(line)
                raw.shutdown(socket.SHUT_WR)
                answer = raw.makefile("rb").readline()
            assert (wanted is None and answer == b"") or wanted in json.loads(answer)["error"]
        assert send_request(folder, {"do": "list"}) == []
