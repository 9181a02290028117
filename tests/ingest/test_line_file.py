"""Lines of files; large files are sparse, so that they take no room on the disk."""

from __future__ import annotations

import pytest

from riot_ops.core.errors import ConnectorError
from riot_ops.ingest.line_file import LineFile
from riot_ops.ingest.replay_kernels import NO_TIME

GIB = 1 << 30


def sparse(path, ends):
    """Write a sparse file of zeros whose lines end at these positions."""
    with open(path, "wb") as file:
        for end in ends:
            file.seek(end - 1)
            file.write(b"\n")
    return LineFile(str(path), -1, False)


def test_lines_beyond_two_gibibytes_are_found(tmp_path):
    start = 2 * GIB - 5
    file = sparse(tmp_path / "x", [start, start + 4, start + 9])
    ((ends, starts),) = file.chunks(start, file.size)
    assert starts.tolist() == [start, start + 4]
    assert ends.tolist() == [start + 4, start + 9]
    assert file.column(starts, ends).to_pylist() == [b"\0\0\0\n", b"\0\0\0\0\n"]


@pytest.mark.parametrize("odd", ["12,x", "-7,x", "123456789,x", "1,", "12345678,y"])
def test_single_time_among_lines_without_times(tmp_path, odd):
    """Lines that begin with a date or other text have no time; a line that begins with a number has one."""
    lines = ["2004-03-01 00:00:31 1", "", ",5", "12", "x,1", odd, "2004-03-01", "1" * 9, "123456789x,1"]
    (tmp_path / "x").write_text("\n".join(lines))
    file = LineFile(str(tmp_path / "x"), -1, False)
    ((ends, starts),) = file.chunks(0, file.size)
    wanted = [1000 * int(odd.split(",")[0]) if line == odd else NO_TIME for line in lines]
    assert file.times(starts, ends).tolist() == wanted


@pytest.mark.slow
def test_batch_has_at_most_one_gibibyte(tmp_path):
    at = 1000
    places = [at + 8, at + GIB - 2, at + GIB, at + GIB + 1]
    file = sparse(tmp_path / "x", [at, *places])
    found = [ends.tolist() for ends, _ in file.chunks(at, file.size)]
    assert found == [places[:3], places[3:]]


@pytest.mark.slow
def test_line_over_one_gibibyte_is_a_batch_and_over_two_is_refused(tmp_path):
    file = sparse(tmp_path / "x", [GIB + 7, GIB + 9])
    assert [ends.tolist() for ends, _ in file.chunks(0, file.size)] == [[GIB + 7], [GIB + 9]]
    at = 16
    for length, allowed in ((2 * GIB - 1, True), (2 * GIB, False)):
        file = sparse(tmp_path / "y", [at, at + length])
        if allowed:
            assert [ends.tolist() for ends, _ in file.chunks(at, file.size)] == [[at + length]]
        else:
            with pytest.raises(ConnectorError, match="y has a line of more than 2 GiB at byte 16"):
                list(file.chunks(at, file.size))


@pytest.mark.parametrize("at", range(6))
def test_times_do_not_depend_on_the_position_of_the_first(tmp_path, at):
    lines = [b"a,1\n", b"\n", b"-x\n", b"{}\n", b" 9,\n"]
    lines.insert(at, b"7,z\n")
    path = tmp_path / "lines"
    path.write_bytes(b"".join(lines))
    for some in (1, 2, 6):  # number of lines per scan
        file = LineFile(str(path), -1, False)
        byte = 0
        while byte < file.size:
            byte, _ = file.skip(byte, some, False)
        for _ in range(2):
            found = [time for ends, starts in file.chunks(0, file.size, 6) for time in file.times(starts, ends)]
            assert [time for time in found if time != NO_TIME] == [7000]
            assert found[at] == 7000
