"""Runs the mutants of one file; started by `mutants.py` in a copy of the tree, with the job on its standard input.

The first process imports other people's libraries and forks: once for a process that imports the product, collects the
tests and forks again per mutant, which then costs no import; and once for each mutant that has to be imported.
The statements that each test reaches are measured first (`mutant_reach.py`); a mutant runs the tests that reach it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import itertools
import json
import os
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.outcomes import OutcomeException
from mutant_notes import Notes
from mutant_patches import forget, functions, patches
from mutant_reach import VARIABLE, Reach, start, statement_of
from mutations import Mutant

#: Minimum time limit of a mutant in seconds, enough to compile a kernel, and its limit as a multiple of the usual time.
LEAST, TIMES = 20.0, 4
#: CPU seconds after which a test is skipped. A test that only waits, such as for a process, has PATIENCE times as long.
LONG = 8.0
#: Wall time may be longer, since others use the machine.
PATIENCE = 6
#: Seconds after which measurements are written.
KEEP = 20.0
#: Memory limit in bytes, for endless loops.
MEMORY = 6 << 30
LIBRARIES = (
    *("numpy", "pyarrow", "pyarrow.compute", "pyarrow.parquet", "pyarrow.csv", "hypothesis", "msgspec", "mmh3"),
    *("sklearn.tree", "sklearn.linear_model", "numba"),
)

Tell = Callable[[dict[str, Any]], None]


def main() -> None:
    """Read the job, write a line of JSON per mutant."""
    global LONG, LEAST
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", type=float, default=LONG)
    parser.add_argument("--least", type=float, default=LEAST)
    limits = parser.parse_args()
    LONG, LEAST = limits.long, limits.least
    job = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def tell(result: dict[str, Any]) -> None:
        out.write(json.dumps(result) + "\n")
        out.flush()

    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.path.insert(0, os.getcwd())
    file = Path("src/riot_ops") / job["file"]
    source = file.read_bytes()
    mutants = {m.key: m for m in (Mutant(**given) for given in job["mutants"])}
    cold: list[tuple[Mutant, list[str], float]] = []
    for result in _session(job, list(mutants.values()), source):
        if result.get("status") == "again":
            cold.append((mutants[result["key"]], result["tests"], result["seconds"]))
        else:
            tell(result)
            if "problem" in result:
                return
    proven: set[str] = set()
    for mutant, tests, seconds in cold:
        file.write_bytes(mutant.apply(source))
        began = time.monotonic()
        status, by = _child(functools.partial(_imported, job, tests), LEAST + TIMES * seconds, job["spark"])
        took = round(time.monotonic() - began, 2)
        file.write_bytes(source)
        if status == "killed" and "::" in by and by not in proven:  # also without the fault?
            if _child(functools.partial(_imported, job, [by]), 600, job["spark"])[0] != "survived":
                return tell({"problem": f"a test fails without a fault in a process of its own: {by}"})
            proven.add(by)
        tell({"key": mutant.key, "status": status, "by": by, "seconds": took})


# -- processes -------------------------------------------------------------------------------------


def _child(work: Callable[[], str], cpu_seconds: float, java: bool = False) -> tuple[str, str]:
    """Run a function in a fork: ("killed", test), ("timeout", ""), or ("survived", "")."""
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(ear)
        _quiet()
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds) + 1, int(cpu_seconds) + 2))
        if not java:  # a JVM reserves addresses that it does not use
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        by = "?"
        try:
            by = work()
        except BaseException as error:  # in the test runner: its state is damaged
            by = f"{type(error).__name__}: {error}"
        finally:
            os.write(mouth, f"done {by}".encode()[:4000])
            os._exit(0)
    os.close(mouth)
    try:
        ready, _, _ = select.select([ear], [], [], PATIENCE * cpu_seconds)
        message = os.read(ear, 4096).decode() if ready else ""
    finally:
        os.close(ear)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, code = os.waitpid(pid, 0)
    if message.startswith("done "):
        by = message.removeprefix("done ")
        return ("killed", by) if by else ("survived", "")
    if not ready or (os.WIFSIGNALED(code) and os.WTERMSIG(code) in (signal.SIGXCPU, signal.SIGKILL)):
        return "timeout", ""
    return "killed", "the process ended"


def _quiet() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)


# -- tests -----------------------------------------------------------------------------------------


class _TooLong(OutcomeException):
    """Ends a test that takes too long; Hypothesis does not retry, and an ended fixture raises it again."""


class _Tests:
    """A pytest plugin that selects the items of the file and leaves running them to a function."""

    def __init__(self, job: dict[str, Any], loop: Callable[[Any, _Tests], None]) -> None:
        self._job = job
        self._loop = loop
        self._reach: Reach | None = None
        self._fixtures: dict[Any, int] = {}
        self._around = 0
        self.failed = ""
        self.late = False

    def pytest_collection_modifyitems(self, session: Any, config: Any, items: list[Any]) -> None:
        codes = tuple(f"[{code}{end}" for code in self._job["codes"] for end in "[]")
        wanting = {"slow": False, "integration": self._job["servers"], "spark": self._job["spark"]}
        skipped = [name for name, here in wanting.items() if not here]

        def wanted(item: Any) -> bool:
            if any(item.get_closest_marker(name) for name in skipped):
                return False
            if any(item.nodeid.startswith(name) for name in self._job["skipped"]):
                return False
            if item.nodeid.startswith("tests/contract/"):
                return any(code in item.nodeid for code in codes)
            return True

        items[:] = [item for item in items if wanted(item)]

    def pytest_runtestloop(self, session: Any) -> bool:
        self._loop(session, self)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        # also if a fixture raises it again
        self.late |= call.excinfo is not None and isinstance(call.excinfo.value, _TooLong)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Count the statements that a fixture reaches for all tests that share it."""
        if self._reach is None or fixturedef.scope == "function":
            yield
            return
        before = self._reach.take()
        yield
        found = self._reach.take()
        self._fixtures[fixturedef] = self._fixtures.get(fixturedef, 0) | found
        self._around |= before | found

    def measure(self, session: Any, reach: Reach, notes: Notes) -> str:
        """Run tests without a valid note and without a fault; note their duration and reached statements."""
        self._reach = reach
        items = [item for item in session.items if notes.of(item.nodeid) is None]
        kept = time.monotonic()

        def too_long(*_: Any) -> None:
            self.late = True
            raise _TooLong

        signal.signal(signal.SIGPROF, too_long)
        signal.signal(signal.SIGALRM, too_long)
        for item, following in itertools.pairwise([*items, None]):
            self.failed, self.late, self._around = "", False, 0
            forget()
            reach.take()
            before, began = time.process_time(), time.monotonic()
            signal.setitimer(signal.ITIMER_PROF, LONG)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE * LONG)
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            except BaseException:  # of another class if pytest cannot describe its place
                if not self.late:
                    raise
                with contextlib.suppress(BaseException):
                    session._setupstate.teardown_exact(None)  # noqa: SLF001
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            took = time.process_time() - before
            found = reach.take() | self._around
            for fixture in _fixtures(item):
                found |= self._fixtures.get(fixture, 0)
            if self.late or took >= 0.9 * LONG:
                notes.add(item.nodeid, None, 0)
            elif self.failed:
                notes.add(item.nodeid, None, 0, failed=True)
            else:
                notes.add(item.nodeid, max(took, (time.monotonic() - began) / PATIENCE), found)
            if time.monotonic() > kept + KEEP:  # so that an interrupted run continues there
                notes.keep()
                kept = time.monotonic()
        notes.keep()
        return ""

    def run(self, session: Any) -> str:
        """Return the first item that fails, or nothing."""
        from _pytest.main import pytest_runtestloop

        self.failed = ""
        with contextlib.suppress(session.Failed):
            pytest_runtestloop(session)
        return self.failed


def _fixtures(item: Any) -> Iterator[Any]:
    info = getattr(item, "_fixtureinfo", None)
    for used in info.name2fixturedefs.values() if info else ():
        yield from used


def _pytest(plugin: _Tests, job: dict[str, Any]) -> int:
    options = ["-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:terminal"]
    return int(pytest.main([*options, "-o", "timeout=0", "-o", "addopts=--doctest-modules", *job["tests"]], [plugin]))


def _imported(job: dict[str, Any], names: list[str]) -> str:
    """Import the mutated file with all others, and run the tests of these names."""
    found: list[str] = []
    order = {name: i for i, name in enumerate(names)}

    def loop(session: Any, tests: _Tests) -> None:
        session.items[:] = sorted((i for i in session.items if i.nodeid in order), key=lambda i: order[i.nodeid])
        found.append(tests.run(session))

    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    code = _pytest(_Tests(job, loop), {**job, "tests": files})
    return found[0] if found else f"no collection ({code})"


# -- the process with all modules imported ---------------------------------------------------------


def _session(job: dict[str, Any], mutants: list[Mutant], source: bytes) -> Iterator[dict[str, Any]]:
    """Yield the results of a process that forks per mutant; ``again`` for those it cannot decide."""
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ear)
        with os.fdopen(mouth, "w") as out:

            def tell(result: dict[str, Any]) -> None:
                out.write(json.dumps(result) + "\n")
                out.flush()

            ran: list[bool] = []
            reach = start(Path("src/riot_ops"))

            def loop(session: Any, tests: _Tests) -> None:
                ran.append(True)
                _all(job, mutants, source, session, tests, reach, tell)

            message = ""
            try:
                code = _pytest(_Tests(job, loop), job)
                message = "" if ran else f"the tests cannot be collected (pytest's exit code {code})"
            except BaseException as error:
                message = f"{type(error).__name__}: {error}"
            if message:
                tell({"problem": message})
        os._exit(0)
    os.close(mouth)
    with os.fdopen(ear) as lines:
        yield from (json.loads(line) for line in lines)
    os.waitpid(pid, 0)


def _all(
    job: dict[str, Any],
    mutants: list[Mutant],
    source: bytes,
    session: Any,
    tests: _Tests,
    reach: Reach,
    tell: Tell,
) -> None:
    if not session.items:
        return tell({"problem": "no test belongs to it; name some in tests/mutants.toml"})
    imported = reach.take()
    notes = Notes(Path(job["notes"]))
    status, by = _child(lambda: tests.measure(session, reach, notes), 3600, job["spark"])
    if status != "survived":
        return tell({"problem": f"the tests cannot be run without a fault: {status} {by}"})
    notes.read()
    items = {item.nodeid: item for item in session.items}
    if failed := notes.failed(items):
        tell({"failed": failed})
    if long := notes.long(items):
        tell({"long": long})
    reached = {test: notes.reached(test) for test in items}
    path = str(Path("src/riot_ops", job["file"]).resolve())
    of_file = reach.lines(path)
    live = functions(path)
    last = ""
    for mutant in mutants:
        began = time.monotonic()
        line = statement_of(source, mutant.start, mutant.end)
        put = patches(source, mutant, path, live)
        place = None if line is None else reach.place(path, line)
        here, elsewhere = reach.tests(place, reached)
        if place is None or reach.here(imported, place):  # by all that was imported, so by any test
            near = [test for test, found in reached.items() if found & of_file]
            again = notes.short(near, items)
        else:  # a patch reaches no process that a test starts
            again = notes.short(elsewhere if put is not None else {*here, *elsewhere})
        if put is not None and (short := notes.short(here)):
            # a test that found one fault of the file is likely to find the next
            session.items[:] = [items[test] for test in sorted(short, key=lambda test: test != last)]

            def work(put: list[tuple[Any, types.CodeType]] = put) -> str:
                os.environ.pop(VARIABLE)
                forget()
                for function, code in put:
                    function.__code__ = code
                return tests.run(session)

            status, by = _child(work, LEAST + TIMES * notes.seconds(short), job["spark"])
            if status != "survived":
                last = by
                tell({"key": mutant.key, "status": status, "by": by, "seconds": round(time.monotonic() - began, 2)})
                continue
        if again:
            tell({"key": mutant.key, "status": "again", "tests": again, "seconds": notes.seconds(again)})
        else:
            by = "" if here else "no test reaches it"
            tell({"key": mutant.key, "status": "survived", "by": by, "seconds": round(time.monotonic() - began, 2)})


if __name__ == "__main__":
    main()
