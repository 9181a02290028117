"""Results as lines of JSON, each written as soon as it is known, and their evaluation."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import riot_bench
import riot_ops
from riot_bench.harness.machine import describe_machine, load_average
from riot_bench.harness.measure import Measure
from riot_bench.report.plan import PlannedExperiment

__all__ = [
    "RESULTS_FILE",
    "Result",
    "ResultStore",
    "Run",
    "code_digest",
    "commit",
    "commit_of",
    "differing_origin",
    "versions",
]

RESULTS_FILE = "results.jsonl"
#: States of a run: completed, raised an error, took too long, stopped by Ctrl-C, or with missing lines.
DONE, FAILED, LATE, STOPPED, DAMAGED = "done", "failed", "late", "stopped", "damaged"
#: State of an experiment without any run.
MISSING = "missing"
PACKAGES = ("pyspark", "numba", "numpy", "pyarrow", "scipy", "scikit-learn")
#: Types of fields of all lines, of the last line of a run, and of the lines of measures.
FIELDS: dict[str, Any] = {
    **dict.fromkeys(("suite", "experiment", "run", "commit", "machine", "time"), str),
    **{"quick": bool, "versions": dict},
    **{"state": str, "reason": str, "measures": int, "seconds": int | float},
    **{"measure": str, "unit": str, "against": str, "values": list, "load": list},
}
#: Packages whose code the results depend on.
CODE = (Path(riot_ops.__file__).parent, Path(riot_bench.__file__).parent)
#: Size in bytes up to which an untracked file is hashed as part of the commit.
MAX_HASHED_BYTES = 1 << 20
#: Results of :func:`commit` by package folders.
_COMMITS: dict[tuple[Path, ...], str] = {}


@dataclass
class Run:
    """A stored run of an experiment.

    Attributes
    ----------
    about : mapping
        Fields that all of its lines have: machine, versions, commit, begin …
    measures : list of Measure
    end : mapping or None
        Its last line; None if the program was killed.
    """

    about: Mapping[str, Any]
    measures: list[Measure] = field(default_factory=list)
    end: Mapping[str, Any] | None = None

    @property
    def state(self) -> str:
        """How the run ended."""
        if self.end is None:
            return STOPPED
        return DAMAGED if self._damage else str(self.end["state"])

    @property
    def reason(self) -> str:
        """Why the run ended so."""
        if self.end is None:
            return "the program was killed"
        return self._damage or str(self.end.get("reason", ""))

    @property
    def _damage(self) -> str:
        """How the measures differ from the count in the last line; empty if they do not."""
        lacking = int((self.end or {}).get("measures", len(self.measures))) - len(self.measures)
        if lacking < 0:
            return f"it has {-lacking} more lines than it wrote"
        return f"{lacking} of its lines cannot be read" if lacking else ""


@dataclass(frozen=True)
class Result:
    """The result of an experiment in one form, quick or full.

    Attributes
    ----------
    planned : Planned
    measures : list of Measure
        Measures of the runs that count: the completed runs of this commit and machine, else those of the last
        completed run's commit and machine. Without a completed run, the measures of the last run.
    runs : int
        Number of runs that count.
    state : str
        How the last run ended; ``missing`` if there was none.
    reason : str
        Why the last run was not completed.
    seconds : float
        Duration of the last run that counts.
    about : mapping
        Common fields of the lines of that run.
    besides : str
        Note on the other form, which is not shown.
    """

    planned: PlannedExperiment
    measures: list[Measure]
    runs: int
    state: str
    reason: str
    seconds: float
    about: Mapping[str, Any]
    besides: str = ""

    @property
    def form(self) -> str:
        """``quick`` or ``full``; empty if there was no run."""
        return "" if not self.about else "quick" if self.about.get("quick") else "full"


class ResultStore:
    """The file ``results.jsonl`` of a folder.

    Incomplete or damaged lines, for example after a power cut, are skipped, and a run that lacks lines does not count.
    The next write begins on a new line.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / RESULTS_FILE

    def begin(self, one: PlannedExperiment, quick: bool) -> RunWriter:
        """Begin a run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return RunWriter(self.path, one, quick)

    def results(self, plan: Sequence[PlannedExperiment], quick: bool) -> list[Result]:
        """Return the results of experiments in one form."""
        found: dict[str, dict[str, Run]] = {}
        for line in self._lines():
            if line.get("quick") != quick:
                continue
            run = found.setdefault(str(line.get("experiment")), {}).setdefault(str(line.get("run")), Run(line))
            if "state" in line:
                run.end = line
            elif "measure" in line:
                with contextlib.suppress(KeyError, TypeError, ValueError):  # the run's last line has the count
                    run.measures.append(Measure.from_json(json.dumps(line)))
        now = commit(), describe_machine()
        return [_result(one, list(found.get(one.key, {}).values()), now) for one in plan]

    def shown(self, plan: Sequence[PlannedExperiment]) -> list[Result]:
        """Return the results of experiments, each in the full form if completed, else in the form that exists."""
        quick, full = (self.results(plan, form) for form in (True, False))
        return [_preferred(*pair) for pair in zip(full, quick, strict=True)]

    def stored(self) -> dict[str, str]:
        """Return the suite of each experiment with stored runs, by key."""
        return {str(line["experiment"]): str(line.get("suite")) for line in self._lines() if "experiment" in line}

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", errors="replace") as file:
            seen: set[str] = set()
            for text in file:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                canonical = json.dumps(line, sort_keys=True)  # other programs may format it differently
                if _is_line(line) and canonical not in seen:  # merged files may contain duplicates
                    seen.add(canonical)
                    yield line


def _is_line(line: Any) -> bool:
    """Whether parsed JSON is a line of a run: the fields that it has are of the types that are written."""
    return isinstance(line, dict) and all(
        isinstance(value, FIELDS[name]) and (type(value) is not bool or FIELDS[name] is bool)
        for name, value in line.items()
        if name in FIELDS
    )


def _result(one: PlannedExperiment, runs: Sequence[Run], now: tuple[str, str]) -> Result:
    if not runs:
        return Result(one, [], 0, MISSING, "", 0.0, {})
    through = [run for run in runs if run.state == DONE]
    count = [run for run in through if _origin(run.about) == now]
    count = count or [run for run in through if _origin(run.about) == _origin(through[-1].about)]
    of_name: dict[str, list[Measure]] = {}
    for run in count or runs[-1:]:
        for measure in run.measures:
            of_name.setdefault(measure.measure, []).append(measure)
    shown, last = (count or runs)[-1], runs[-1]
    return Result(
        one,
        [_with_published(one, Measure.of_runs(several)) for several in of_name.values()],
        len(count),
        last.state,
        last.reason,
        float(shown.end["seconds"] if shown.end else 0),
        shown.about,
    )


def _with_published(one: PlannedExperiment, measure: Measure) -> Measure:
    """Add the published value that the experiment knows."""
    if measure.published is not None:
        return measure
    return replace(measure, published=one.experiment.published(measure.measure))


def _preferred(full: Result, quick: Result) -> Result:
    def worth(result: Result) -> tuple[bool, bool, bool]:
        return result.runs > 0, bool(result.measures), result.state != MISSING

    if worth(full) >= worth(quick):
        figures = full.planned.experiment.figures
        newer = [one.title for one in figures if not one.points(full.measures) and one.points(quick.measures)]
        return replace(full, besides=f"the quick form alone has {', '.join(newer)}") if newer else full
    return quick if full.state == MISSING else replace(quick, besides=f"in the full form {full.state}: {full.reason}")


def _origin(about: Mapping[str, Any]) -> tuple[Any, Any]:
    return about.get("commit"), about.get("machine")


def differing_origin(about: Mapping[str, Any]) -> list[str]:
    """Describe how a run's commit and machine differ from the current ones.

    >>> differing_origin({"commit": commit(), "machine": "a laptop"})
    ['on a laptop']
    """
    then = {"of commit": about.get("commit"), "on": about.get("machine")}
    return [
        f"{word} {then[word]}"
        for word, now in (("of commit", commit()), ("on", describe_machine()))
        if then[word] != now
    ]


class RunWriter:
    """Appends the lines of one run."""

    def __init__(self, path: Path, one: PlannedExperiment, quick: bool) -> None:
        self.begun = datetime.now(UTC)
        self.path = path
        self.about = {
            "suite": one.suite,
            "experiment": one.key,
            "quick": quick,
            "run": f"{self.begun.isoformat(timespec='microseconds')}-{os.getpid()}",
            "commit": commit(refresh=True),  # the run is a new process with the code on disk
            "seed": one.experiment.seed,
            "versions": versions(),
            "machine": describe_machine(),
        }
        self._code = list(map(code_digest, CODE))
        self._measures = 0

    def changed(self) -> bool:
        """Whether the code of the library or of the benchmarks has changed since the run began."""
        return list(map(code_digest, CODE)) != self._code

    def measure(self, line: str) -> None:
        """Append a line from :meth:`Measure.to_json`."""
        self._append(json.loads(line))
        self._measures += 1

    def end(self, state: str, reason: str = "") -> None:
        """Append how the run ended."""
        seconds = round((datetime.now(UTC) - self.begun).total_seconds(), 1)
        end = {"state": state, "reason": reason, "seconds": seconds, "measures": self._measures}
        self._append({**end, "load": [[load_average(), load_average()]]})

    def _append(self, line: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({**line, **self.about, "time": now}, ensure_ascii=False) + "\n"
        with self.path.open("ab+") as file:
            if file.tell() and _is_torn(file):
                text = "\n" + text
            file.write(text.encode())


def _is_torn(file: Any) -> bool:
    """Return whether the last line lacks its newline."""
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) != b"\n")


def commit(refresh: bool = False) -> str:
    """Return the commit of the code on disk, which the next process runs; the result is cached.

    Parameters
    ----------
    refresh : bool, default False
        Whether to ask git again: the code may change while a report runs. See :func:`commit_of`.

    Examples
    --------
    >>> commit() != ""
    True
    """
    if refresh or CODE not in _COMMITS:
        _COMMITS[CODE] = commit_of(*CODE)
    return _COMMITS[CODE]


def commit_of(*packages: Path) -> str:
    """Return the commit of package folders, or the library's version if one of them is not tracked by git.

    A suffix after ``+`` identifies uncommitted changes in these folders, new files included. Packages that are
    installed within the work tree of another project are not tracked there.
    """
    try:
        change, head = sha256(), b""
        changed = False
        for package in packages:
            _git(package, "ls-files", "--error-unmatch", "__init__.py")
            head = head or _git(package, "rev-parse", "--short=12", "HEAD")
            status = _git(package, "status", "--porcelain", "--untracked-files=all", "--", ".")
            if not status:
                continue
            changed = True
            change.update(status + _git(package, "diff", "--no-ext-diff", "HEAD", "--", "."))
            new = _git(package, "ls-files", "-z", "--others", "--exclude-standard", "--", ".")
            for name in filter(None, new.split(b"\0")):
                change.update(_contents(package / os.fsdecode(name)))
        return head.decode().strip() + (f"+{change.hexdigest()[:6]}" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return riot_ops.__version__


def code_digest(package: Path) -> str:
    """Return a digest of a package's files except hidden and compiled ones; unlike :func:`commit_of`, without git."""
    digest = sha256()
    for path in sorted(package.rglob("*")):
        within = path.relative_to(package)
        if not any(part.startswith((".", "__pycache__")) for part in within.parts):
            digest.update(os.fsencode(within) + b"\0" + sha256(_contents(path)).digest())
    return digest.hexdigest()


def _contents(path: Path) -> bytes:
    """Return the content of a file, or the size of a large one; empty if the file is missing."""
    try:
        size = path.stat().st_size if path.is_file() else 0
        return path.read_bytes() if 0 < size <= MAX_HASHED_BYTES else str(size).encode()
    except OSError:
        return b""


def _git(where: Path, *arguments: str) -> bytes:
    command = ["git", "--no-optional-locks", "-C", str(where), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on.

    >>> versions()["numpy"] >= "2"
    True
    """
    found = {"riot_ops": riot_ops.__version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found
