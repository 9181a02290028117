"""Fixtures and settings that all tests share."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.samples import sample_folders
from tests.search import depth

# Each run takes the same examples, so that a failure is about the change; `make test-all` searches for new ones.
settings.register_profile(
    "default", deadline=None, max_examples=depth(60), derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fast", settings.get_profile("default"))
settings.register_profile("search", settings.get_profile("default"), max_examples=300, derandomize=False)
# `make mutants` needs a failure, not the smallest one
settings.register_profile(
    "mutants", settings.get_profile("default"), max_examples=60, phases=(Phase.explicit, Phase.generate)
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
# Java code that runs for seconds repays neither a second compiler nor, for some rows, Spark's own generated code, which
# `make test-all` has; Spark's launcher reads this variable
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if PROFILE != "search":
    JAVA_OPTIONS += " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
# Java does not know TMPDIR
JAVA_OPTIONS += f" -Djava.io.tmpdir={tempfile.gettempdir()}"
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
# idle threads of BLAS spin, beside tests that need the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# tests are about machine code, unless they say otherwise
os.environ.setdefault("RIOT_OPS_COMPILE", "immediate")
settings.load_profile(PROFILE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give all tests on Spark to one worker of `make test`; with the slow tests two workers share them."""
    if config.getvalue("dist") != "loadfile" or "not slow" not in config.getvalue("markexpr"):
        return None
    from tests.spark_workers import SparkWorkers

    return SparkWorkers(config, log)


def pytest_collection_modifyitems(items):
    """Leave the examples that need a Spark session to tests/spark/test_docstrings.py."""
    package = Path(__file__).parent / "src" / "riot_ops"
    folders = (package / "spark", package / "reuse" / "spark")
    if any(item.path.parent in folders for item in items):
        from riot_ops.spark import __all__ as names

        needing = {*names, "SparkBackend"}
        items[:] = [i for i in items if i.path.parent not in folders or i.name.rpartition(".")[2] not in needing]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """End the commands that a failed test leaves running in sessions of their own: one filled the disk of a machine."""
    started = []
    make = subprocess.Popen.__init__

    def record(process, *arguments, **options):
        make(process, *arguments, **options)
        if options.get("start_new_session"):
            started.append(process)

    subprocess.Popen.__init__ = record
    try:
        return (yield)
    except BaseException:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        raise
    finally:
        subprocess.Popen.__init__ = make


@pytest.fixture(autouse=True)
def page_folder(request):
    """Run the examples of a page in a folder of their own, so that they can name files as a reader would."""
    if not isinstance(request.node, pytest.DoctestItem) or request.node.path.suffix != ".md":
        yield
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


SAMPLE_FOLDERS = sample_folders()


@pytest.fixture(scope="session", params=list(SAMPLE_FOLDERS.values()), ids=list(SAMPLE_FOLDERS))
def sample_data(request) -> Path:
    """A folder of sample files: the project's own, and those of the benchmarks' authors if they are present."""
    return request.param


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium of the system."""
    from playwright.sync_api import expect, sync_playwright

    from riot_ops.testing.services import program

    quiet = [f"--disable-{name}" for name in ("gpu", "quic", "background-networking", "component-update", "sync")]
    path = program("chromium", "tools/services.py install chromium")
    expect.set_options(timeout=60_000)  # on a busy machine
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--no-first-run", *quiet])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens pages as ``open_page(url, **options of a context)``; their consoles must stay silent.

    ``open_page.expect_message(text)`` excuses one message that has been shown.
    """
    contexts, said = [], []

    def open_(url, **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda one: said.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        return page

    open_.expect_message = lambda text: said.remove(next(one for one in said if text in one))
    yield open_
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture(scope="session")
def spark():
    """One Spark session for all tests of this process."""
    from riot_ops.spark import session

    spark = session(cores=2, memory="2g")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def azurite():
    """One Azure storage emulator for all tests; tests that stop it start their own."""
    from riot_ops.testing.services import Azurite

    with Azurite() as service:
        yield service


@pytest.fixture(scope="session")
def mosquitto():
    """A broker without authentication."""
    from riot_ops.testing.services import Mosquitto

    with Mosquitto() as broker:
        yield broker


@pytest.fixture
def own_mosquitto():
    """A broker that the test may kill."""
    from riot_ops.testing.services import Mosquitto

    with Mosquitto() as broker:
        yield broker
        print(broker.log.read_text(encoding="utf-8", errors="replace")[-3000:])  # shown if the test fails


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """By stream of the benchmark: the filled stores of its applications, and the result of training."""
    from riot_ops.core.schema import SCHEMAS
    from riot_ops.dataflows.local_services import LocalServices
    from tests.dataflows.riotbench_inputs import source

    found = {}
    for stream in SCHEMAS:
        around = LocalServices(stream, tmp_path_factory.mktemp(stream))
        ticks = around.load(source(stream, seed=1))
        found[stream] = around, around.train().run(ticks)
    return found
