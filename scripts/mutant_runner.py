"""Runs the mutants of one file; started by `mutants.py` in a copy of the tree, with the job on its standard input.

The first process imports other people's libraries and forks: once for a process that imports the product, collects the
tests and forks again per mutant, which then costs no import; and once for each mutant that has to be imported.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
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

from _pytest.outcomes import OutcomeException
from mutations import Mutant

#: Seconds that a mutant may take at least, and how many times as long as without a fault.
LEAST, TIMES = 5.0, 4
#: CPU seconds after which a test is left out: with kernels as plain Python a few take minutes. A test that only waits,
#: such as for a process of its own, has PATIENCE times as long.
LONG = 8.0
#: Where the run without a fault notes which tests those are, and how long the others take.
NOTES = "baseline.json"
#: Wall time may be longer, since others use the machine.
PATIENCE = 6
#: Bytes of memory, so that a loop that never ends does not take all of it.
MEMORY = 6 << 30
LIBRARIES = (
    *("numpy", "pyarrow", "pyarrow.compute", "pyarrow.parquet", "pyarrow.csv", "hypothesis", "msgspec", "mmh3"),
    *("sklearn.tree", "sklearn.linear_model"),
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

    for name in (*LIBRARIES, "pytest", "_pytest.main"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.path.insert(0, os.getcwd())
    file = Path("src/riot_ops") / job["file"]
    source = file.read_bytes()
    mutants = {m.key: m for m in (Mutant(**given) for given in job["mutants"])}
    # workers of Spark import the file: to put code into this process does not reach them
    cold = list(mutants.values()) if job["spark"] else []
    for result in [] if cold else _session(job, list(mutants.values()), source):
        if result.get("status") == "again":
            cold.append(mutants[result["key"]])
        else:
            tell(result)
            if "problem" in result:
                return
    if not cold:
        return
    notes = _notes() if Path(NOTES).exists() else {"seconds": {}, "long": []}
    seconds = sum(notes["seconds"].values()) or 60.0
    proven: set[str] = set()
    for mutant in cold:
        file.write_bytes(mutant.apply(source))
        began = time.monotonic()
        status, by = _child(functools.partial(_imported, job), LEAST + TIMES * seconds)
        took = round(time.monotonic() - began, 2)
        if status == "killed" and "::" in by and by not in proven:  # by the fault, or without one as well?
            file.write_bytes(source)
            if _child(functools.partial(_imported, job, by), 600)[0] != "survived":
                return tell({"problem": f"a test fails without a fault in a process of its own: {by}"})
            proven.add(by)
        tell({"key": mutant.key, "status": status, "by": by, "seconds": took})


def _notes() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(NOTES).read_text(encoding="utf-8"))
    return found


# -- processes -------------------------------------------------------------------------------------


def _child(work: Callable[[], str], cpu_seconds: float) -> tuple[str, str]:
    """Run it in a fork: ("killed", which test), ("timeout", ""), or ("survived", "")."""
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(ear)
        _quiet()
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds) + 1, int(cpu_seconds) + 2))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        by = "?"
        try:
            by = work()
        except BaseException as error:  # in the machinery of the tests: it is not what it was
            by = f"{type(error).__name__}: {error}"
        finally:
            os.write(mouth, f"done {by}".encode()[:4000])
            os._exit(0)
    os.close(mouth)
    try:
        ready, _, _ = select.select([ear], [], [], PATIENCE * cpu_seconds)
        said = os.read(ear, 4096).decode() if ready else ""
    finally:
        os.close(ear)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        _, code = os.waitpid(pid, 0)
    if said.startswith("done "):
        by = said.removeprefix("done ")
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
    """Ends a test that takes too long; Hypothesis does not try again, and a fixture that it ended raises it again."""


class _Tests:
    """A pytest plugin: picks the items that belong to the file, and leaves running them to a function."""

    def __init__(self, job: dict[str, Any], loop: Callable[[Any, _Tests], None], only: str = "") -> None:
        self._job = job
        self._loop = loop
        self._only = only
        self.failed = ""
        self.late = False

    def pytest_collection_modifyitems(self, session: Any, config: Any, items: list[Any]) -> None:
        codes = tuple(f"[{code}[" for code in self._job["codes"])
        wanting = {"slow": False, "integration": self._job["servers"], "spark": self._job["spark"]}
        skipped = [name for name, here in wanting.items() if not here]

        def wanted(item: Any) -> bool:
            if any(item.get_closest_marker(name) for name in skipped):
                return False
            if any(item.nodeid.startswith(name) for name in self._job["skipped"]):
                return False
            if "contract/test_contract.py" in item.nodeid:
                return any(code in item.nodeid for code in codes)
            return True

        items[:] = [item for item in items if wanted(item) and self._only in ("", item.nodeid)]

    def pytest_runtestloop(self, session: Any) -> bool:
        self._loop(session, self)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        # also where a fixture raises it again
        self.late |= call.excinfo is not None and isinstance(call.excinfo.value, _TooLong)

    def measure(self, session: Any) -> str:
        """Run all without a fault, note how long each takes, and return one that fails, if any."""
        seconds: dict[str, float] = {}
        long: list[str] = []

        def too_long(*_: Any) -> None:
            self.late = True
            raise _TooLong

        signal.signal(signal.SIGPROF, too_long)
        signal.signal(signal.SIGALRM, too_long)
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            self.failed, self.late = "", False
            before = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, LONG)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE * LONG)
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            except BaseException:  # of another class where pytest cannot describe the place at which it was told
                if not self.late:
                    raise
                with contextlib.suppress(BaseException):
                    session._setupstate.teardown_exact(None)  # noqa: SLF001
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
            took = time.process_time() - before
            if self.late or took >= 0.9 * LONG:
                long.append(item.nodeid)
            elif self.failed:
                return self.failed
            else:
                seconds[item.nodeid] = took
        Path(NOTES).write_text(json.dumps({"seconds": seconds, "long": long}), encoding="utf-8")
        return ""

    def arrange(self, session: Any) -> None:
        """The shortest first, and none that takes too long."""
        seconds = _notes()["seconds"] if Path(NOTES).exists() else None
        if seconds is not None:
            kept = [item for item in session.items if item.nodeid in seconds]
            session.items[:] = sorted(kept, key=lambda item: seconds[item.nodeid])

    def run(self, session: Any) -> str:
        """The first item that fails, or nothing."""
        from _pytest.main import pytest_runtestloop

        self.failed = ""
        with contextlib.suppress(session.Failed):
            pytest_runtestloop(session)
        return self.failed


def _pytest(plugin: _Tests, job: dict[str, Any]) -> int:
    import pytest

    options = ["-x", "-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:terminal"]
    return int(pytest.main([*options, "-o", "timeout=0", "-o", "addopts=--doctest-modules", *job["tests"]], [plugin]))


def _imported(job: dict[str, Any], only: str = "") -> str:
    """Import the mutated file with all the rest, and run the tests."""
    found: list[str] = []

    def loop(session: Any, tests: _Tests) -> None:
        tests.arrange(session)
        found.append(tests.run(session))

    code = _pytest(_Tests(job, loop, only), job)
    return found[0] if found else f"no collection ({code})"


# -- the process that has everything imported ------------------------------------------------------


def _session(job: dict[str, Any], mutants: list[Mutant], source: bytes) -> Iterator[dict[str, Any]]:
    """Results from a process that forks per mutant; ``again`` for what it cannot tell."""
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ear)
        with os.fdopen(mouth, "w") as out:

            def tell(result: dict[str, Any]) -> None:
                out.write(json.dumps(result) + "\n")
                out.flush()

            ran: list[bool] = []

            def loop(session: Any, tests: _Tests) -> None:
                ran.append(True)
                _all(job, mutants, source, session, tests, tell)

            said = ""
            try:
                code = _pytest(_Tests(job, loop), job)
                said = "" if ran else f"the tests cannot be collected (pytest's exit code {code})"
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            if said:
                tell({"problem": said})
        os._exit(0)
    os.close(mouth)
    with os.fdopen(ear) as lines:
        yield from (json.loads(line) for line in lines)
    os.waitpid(pid, 0)


def _all(job: dict[str, Any], mutants: list[Mutant], source: bytes, session: Any, tests: _Tests, tell: Tell) -> None:
    if not session.items:
        return tell({"problem": "no test belongs to it; name some in tests/mutants.toml"})
    status, by = _child(lambda: tests.measure(session), 1200)
    if status != "survived":
        return tell({"problem": f"the tests fail without a fault: {status} {by}"})
    tests.arrange(session)
    seconds = sum(_notes()["seconds"].values())
    if _notes()["long"]:
        tell({"long": _notes()["long"]})
    path = str(Path("src/riot_ops", job["file"]).resolve())
    functions = _functions(path)
    for mutant in mutants:
        start = time.monotonic()
        patches = _patches(source, mutant, path, functions)
        if patches is None:
            tell({"key": mutant.key, "status": "again"})
            continue

        def work(patches: list[tuple[Any, types.CodeType]] = patches) -> str:
            _forget()
            for function, code in patches:
                function.__code__ = code
            return tests.run(session)

        status, by = _child(work, LEAST + TIMES * seconds)
        if status == "survived":
            tell({"key": mutant.key, "status": "again"})
            continue
        # a test that found one fault of the file is likely to find the next
        session.items.sort(key=lambda item: item.nodeid != by)
        tell({"key": mutant.key, "status": status, "by": by, "seconds": round(time.monotonic() - start, 2)})


def _forget() -> None:
    """Empty caches that hold results of the code without a fault."""
    cached = type(functools.cache(len))
    for one in gc.get_objects():
        if isinstance(one, cached) and str(one.__module__).startswith("riot_ops"):
            one.cache_clear()


def _functions(path: str) -> dict[types.CodeType, list[Any]]:
    """The functions of a file, by code; those inside of others come about anew at each call."""
    found: dict[types.CodeType, list[Any]] = {}
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType) and os.path.realpath(one.__code__.co_filename) == path:
            found.setdefault(one.__code__, []).append(one)
    return found


def _codes(code: types.CodeType) -> list[types.CodeType]:
    return [c for c in code.co_consts if isinstance(c, types.CodeType)]


def _patches(
    source: bytes, mutant: Mutant, path: str, functions: dict[types.CodeType, list[Any]]
) -> list[tuple[Any, types.CodeType]] | None:
    """What to put into which functions; None where the fault lies elsewhere, such as in a default."""
    old = compile(source, path, "exec", dont_inherit=True)
    new = compile(mutant.apply(source), path, "exec", dont_inherit=True)
    live: dict[tuple[str, int], list[Any]] = {}
    for code, found in functions.items():
        live.setdefault((code.co_qualname, code.co_firstlineno), []).extend(found)
    patches: list[tuple[Any, types.CodeType]] = []

    def walk(a: types.CodeType, b: types.CodeType) -> bool:
        """Whether all that differs could be put in; bodies of modules and classes have run already."""
        if _same(a, b):
            return True
        targets = live.get((a.co_qualname, a.co_firstlineno), [])
        if targets and a.co_flags & 2 and a.co_freevars == b.co_freevars:
            patches.extend((target, b) for target in targets)
            return True
        inner_a, inner_b = _codes(a), _codes(b)
        if len(inner_a) != len(inner_b) or not _same(a, b, inside=False):
            return False
        return all(walk(x, y) for x, y in zip(inner_a, inner_b, strict=True))

    return patches if walk(old, new) and patches else None


def _same(a: types.CodeType, b: types.CodeType, *, inside: bool = True) -> bool:
    """Whether two codes do the same, lines aside."""
    if (a.co_code, a.co_names, a.co_varnames) != (b.co_code, b.co_names, b.co_varnames):
        return False
    if len(a.co_consts) != len(b.co_consts):
        return False
    for x, y in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(x, types.CodeType) != isinstance(y, types.CodeType):
            return False
        if isinstance(x, types.CodeType):
            if inside and not _same(x, y):
                return False
        elif (type(x), repr(x)) != (type(y), repr(y)):
            return False
    return True


if __name__ == "__main__":
    main()
