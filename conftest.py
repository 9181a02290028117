"""Fixtures and settings that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.search import depth

# The same examples in each run, so that a red run is about the change; `make test-all` looks for new ones, and for more.
settings.register_profile(
    "default", deadline=None, max_examples=depth(60), derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", settings.get_profile("default"), max_examples=300, derandomize=False)
# a failure is enough to know of: `make mutants` does not look for the smallest
settings.register_profile(
    "mutants", settings.get_profile("default"), max_examples=60, phases=(Phase.explicit, Phase.generate)
)
# Java code that runs for seconds is not worth a second compiler; the launcher of Spark reads this
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One Spark for `make test`; of a run with the long tests, two workers share the work on Spark."""
    if config.getvalue("dist") != "loadfile" or "not slow" not in config.getvalue("markexpr"):
        return None
    from tests.one_spark import OneSpark

    return OneSpark(config, log)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real sample data, which no release contains."""
    given = os.environ.get("RIOT_OPS_SHARED_DATA")
    path = Path(given) if given else Path(__file__).resolve().parents[1] / "shared" / "data"
    if given and not path.is_dir():
        pytest.fail(f"RIOT_OPS_SHARED_DATA={given} is not a folder")
    if not path.is_dir():
        pytest.skip(f"no sample data at {path}; RIOT_OPS_SHARED_DATA names the folder with riotbench/ in it")
    return path


@pytest.fixture(scope="session")
def spark():
    """One Spark in this process for all tests."""
    from riot_ops.spark import session

    spark = session(cores=2, memory="2g")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def azurite():
    """One Azure storage emulator for all tests; those that stop it start their own."""
    from riot_ops.testing.services import Azurite

    with Azurite() as service:
        yield service


@pytest.fixture(scope="session")
def mosquitto():
    """A broker where nobody has to log in."""
    from riot_ops.testing.services import Mosquitto

    with Mosquitto() as broker:
        yield broker


@pytest.fixture
def own_mosquitto():
    """A broker that the test may kill."""
    from riot_ops.testing.services import Mosquitto

    with Mosquitto() as broker:
        yield broker
        print(broker.log.read_text(encoding="utf-8", errors="replace")[-3000:])  # seen where the test fails


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """For each stream of the benchmark the stores of its applications, filled, and what training gave."""
    from riot_ops.core.schema import SCHEMAS
    from riot_ops.dataflows.local_services import LocalServices
    from tests.dataflows.inputs import source

    found = {}
    for stream in SCHEMAS:
        around = LocalServices(stream, tmp_path_factory.mktemp(stream))
        ticks = around.load(source(stream, seed=1))
        found[stream] = around, around.train().run(ticks)
    return found
