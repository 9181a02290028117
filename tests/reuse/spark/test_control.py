"""Versions of the control of a query."""

from __future__ import annotations

import pytest

from riot_ops.core.errors import ConnectorError
from riot_ops.reuse.spark.control import Control, ControlVersions


def test_versions_are_numbered_and_immutable(tmp_path):
    controls = ControlVersions(tmp_path / "control")
    assert controls.newest() == -1
    one, two = Control(("a",), ()), Control(("a", "b"), ("c",))
    assert [controls.write(c) for c in (one, one, two, one)] == [0, 0, 1, 2]
    assert [controls.read(n) for n in range(3)] == [one, two, one] and controls.newest() == 2
    (tmp_path / "control" / "000001.json").write_text("{")
    with pytest.raises(ConnectorError, match=r"000001\.json is damaged"):
        controls.read(1)
