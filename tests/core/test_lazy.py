"""Names that a package imports at first use."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import dataflows, tasks


@pytest.mark.parametrize("package", [ro, tasks, dataflows])
def test_tab_lists_public_names_alone(package):
    shown = {name for name in dir(package) if not name.startswith("__")}
    assert set(package.__all__) <= shown | {"__version__"} and "__doc__" in dir(package)
    assert not shown & {"TYPE_CHECKING", "lazy_names", "Any"}
    assert all(hasattr(package, name) for name in shown)


@pytest.mark.parametrize(
    ("package", "wrong", "right"), [(ro, "Dataflw", "Dataflow"), (tasks, "KalmanFiltr", "KalmanFilter")]
)
def test_misspelt_name_is_refused_with_a_similar_one(package, wrong, right):
    with pytest.raises(AttributeError, match=rf"has no attribute '{wrong}'; did you mean \"{right}\"\?"):
        getattr(package, wrong)
