"""Results as lines of JSON, each written as soon as it is found, and what they come to."""

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

import riot_ops
from riot_bench.harness.measure import Measure, load, machine
from riot_bench.report.plan import Planned

__all__ = ["FILE", "Result", "Run", "Store", "code_of", "commit", "commit_of", "elsewhere", "versions"]

FILE = "results.jsonl"
#: Ends of a run: through, raised an error, took too long, stopped by Ctrl-C; and one whose lines are not all there.
DONE, FAILED, LATE, STOPPED, DAMAGED = "done", "failed", "late", "stopped", "damaged"
#: There was no run.
MISSING = "missing"
PACKAGES = ("pyspark", "numba", "numpy", "pyarrow", "scipy", "scikit-learn")
PACKAGE = Path(riot_ops.__file__).parent
#: Bytes up to which a file that git does not keep is read to tell one change from another.
SMALL = 1 << 20
#: What :func:`commit` found, by folder.
_ASKED: dict[Path, str] = {}


@dataclass
class Run:
    """One run of an experiment, as it was stored.

    Attributes
    ----------
    about : mapping
        What each of its lines tells: machine, versions, commit, time of its beginning …
    measures : list of Measure
    end : mapping or None
        Its last line; None where the program was killed.
    """

    about: Mapping[str, Any]
    measures: list[Measure] = field(default_factory=list)
    end: Mapping[str, Any] | None = None

    @property
    def state(self) -> str:
        """How it ended."""
        if self.end is None:
            return STOPPED
        return DAMAGED if self._damage else str(self.end["state"])

    @property
    def reason(self) -> str:
        """Why."""
        if self.end is None:
            return "the program was killed"
        return self._damage or str(self.end.get("reason", ""))

    @property
    def _damage(self) -> str:
        """What its last line tells otherwise; nothing where all is well."""
        lacking = int((self.end or {}).get("measures", len(self.measures))) - len(self.measures)
        if lacking < 0:
            return f"it has {-lacking} lines more than it wrote"
        return f"{lacking} of its lines cannot be read" if lacking else ""


@dataclass(frozen=True)
class Result:
    """What is known of an experiment in one form, the quick or the full one.

    Attributes
    ----------
    planned : Planned
    measures : list of Measure
        Of the runs that count: those that are through of this commit and machine, else of those of the last that is
        through; where there is none, what the last run found before it ended.
    runs : int
        How many count.
    state : str
        How the last run ended; ``missing`` where there was none.
    reason : str
        Why, where it was not through.
    seconds : float
        How long the last of those took.
    about : mapping
        What the lines of that tell.
    besides : str
        What the other form, which is not shown, came to.
    """

    planned: Planned
    measures: list[Measure]
    runs: int
    state: str
    reason: str
    seconds: float
    about: Mapping[str, Any]
    besides: str = ""

    @property
    def form(self) -> str:
        """``quick`` or ``full``; empty where there was no run."""
        return "" if not self.about else "quick" if self.about.get("quick") else "full"


class Store:
    """The file ``results.jsonl`` of a folder.

    Lines that are torn, as by a power cut, or damaged are passed over, and a run that lacks some does not count. What
    is written next begins on a line of its own.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE

    def begin(self, one: Planned, quick: bool) -> Writer:
        """Begin a run."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return Writer(self.path, one, quick)

    def results(self, plan: Sequence[Planned], quick: bool) -> list[Result]:
        """What is known of experiments in one form."""
        found: dict[str, dict[str, Run]] = {}
        for line in self._lines():
            if line.get("quick") != quick:
                continue
            run = found.setdefault(str(line.get("experiment")), {}).setdefault(str(line.get("run")), Run(line))
            if "state" in line:
                run.end = line
            elif "measure" in line:
                with contextlib.suppress(KeyError, TypeError, ValueError):  # the run's last line tells how many it has
                    run.measures.append(Measure.from_json(json.dumps(line)))
        now = commit(), machine()
        return [_result(one, list(found.get(one.key, {}).values()), now) for one in plan]

    def shown(self, plan: Sequence[Planned]) -> list[Result]:
        """What is known of experiments: of each in the full form where that is through, else in that which there is."""
        quick, full = (self.results(plan, form) for form in (True, False))
        return [_rather(*pair) for pair in zip(full, quick, strict=True)]

    def stored(self) -> dict[str, str]:
        """Experiments that were run, by key, and their suites."""
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
                said = json.dumps(line, sort_keys=True)  # by other programs it may be written otherwise
                if isinstance(line, dict) and said not in seen:  # files that were put together
                    seen.add(said)
                    yield line


def _result(one: Planned, runs: Sequence[Run], now: tuple[str, str]) -> Result:
    if not runs:
        return Result(one, [], 0, MISSING, "", 0.0, {})
    through = [run for run in runs if run.state == DONE]
    count = [run for run in through if _circumstances(run.about) == now]
    count = count or [run for run in through if _circumstances(run.about) == _circumstances(through[-1].about)]
    of_name: dict[str, list[Measure]] = {}
    for run in count or runs[-1:]:
        for measure in run.measures:
            of_name.setdefault(measure.measure, []).append(measure)
    shown, last = (count or runs)[-1], runs[-1]
    return Result(
        one,
        [_beside(one, Measure.of_runs(several)) for several in of_name.values()],
        len(count),
        last.state,
        last.reason,
        float(shown.end["seconds"] if shown.end else 0),
        shown.about,
    )


def _beside(one: Planned, measure: Measure) -> Measure:
    """With what the papers found, as it is known today."""
    if measure.published is not None:
        return measure
    return replace(measure, published=one.experiment.published(measure.measure))


def _rather(full: Result, quick: Result) -> Result:
    def worth(result: Result) -> tuple[bool, bool, bool]:
        return result.runs > 0, bool(result.measures), result.state != MISSING

    if worth(full) >= worth(quick):
        figures = full.planned.experiment.figures
        newer = [one.title for one in figures if not one.points(full.measures) and one.points(quick.measures)]
        return replace(full, besides=f"the quick form alone has {', '.join(newer)}") if newer else full
    return quick if full.state == MISSING else replace(quick, besides=f"in the full form {full.state}: {full.reason}")


def _circumstances(about: Mapping[str, Any]) -> tuple[Any, Any]:
    return about.get("commit"), about.get("machine")


def elsewhere(about: Mapping[str, Any]) -> list[str]:
    """What of a run's circumstances is other than now, in words.

    >>> elsewhere({"commit": commit(), "machine": "a laptop"})
    ['on a laptop']
    """
    then = {"of commit": about.get("commit"), "on": about.get("machine")}
    return [f"{word} {then[word]}" for word, now in (("of commit", commit()), ("on", machine())) if then[word] != now]


class Writer:
    """Appends the lines of one run."""

    def __init__(self, path: Path, one: Planned, quick: bool) -> None:
        self.begun = datetime.now(UTC)
        self.path = path
        self.about = {
            "suite": one.suite,
            "experiment": one.key,
            "quick": quick,
            "run": f"{self.begun.isoformat(timespec='microseconds')}-{os.getpid()}",
            "commit": commit(anew=True),  # the run is a process of its own, of what is on disk now
            "seed": one.experiment.seed,
            "versions": versions(),
            "machine": machine(),
        }
        self._code = code_of(PACKAGE)
        self._measures = 0

    def changed(self) -> bool:
        """Whether the library's code is other than it was when the run began."""
        return code_of(PACKAGE) != self._code

    def measure(self, line: str) -> None:
        """Append what :meth:`Measure.to_json` wrote."""
        self._append(json.loads(line))
        self._measures += 1

    def end(self, state: str, reason: str = "") -> None:
        """Append how it ended."""
        seconds = round((datetime.now(UTC) - self.begun).total_seconds(), 1)
        end = {"state": state, "reason": reason, "seconds": seconds, "measures": self._measures}
        self._append({**end, "load": [[load(), load()]]})

    def _append(self, line: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({**line, **self.about, "time": now}, ensure_ascii=False) + "\n"
        with self.path.open("ab+") as file:
            if file.tell() and _torn(file):
                text = "\n" + text
            file.write(text.encode())


def _torn(file: Any) -> bool:
    """Whether the last line has no end."""
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) != b"\n")


def commit(anew: bool = False) -> str:
    """The commit of the code on disk, which the next process runs, as it was when git was last asked.

    Parameters
    ----------
    anew : bool, default False
        Ask again: while a report runs, somebody may change the code. See :func:`commit_of`.

    Examples
    --------
    >>> commit() != ""
    True
    """
    if anew or PACKAGE not in _ASKED:
        _ASKED[PACKAGE] = commit_of(PACKAGE)
    return _ASKED[PACKAGE]


def commit_of(package: Path) -> str:
    """The commit of a package's folder; the library's version where the folder is not kept by git.

    Behind a ``+`` stands what tells one change since then from another, also of files that are new. A folder of
    installed packages within a work tree of something else is not kept there.
    """
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        head = _git(package, "rev-parse", "--short=12", "HEAD")
        changed = _git(package, "status", "--porcelain", "--untracked-files=all", "--", ".")
        if not changed:
            return head.decode().strip()
        change = sha256(changed + _git(package, "diff", "--no-ext-diff", "HEAD", "--", "."))
        new = _git(package, "ls-files", "-z", "--others", "--exclude-standard", "--", ".")
        for name in filter(None, new.split(b"\0")):
            change.update(_contents(package / os.fsdecode(name)))
        return f"{head.decode().strip()}+{change.hexdigest()[:6]}"
    except (OSError, subprocess.CalledProcessError):
        return riot_ops.__version__


def code_of(package: Path) -> str:
    """A digest of a package's files but hidden and compiled ones; unlike :func:`commit_of`, of nothing beside it."""
    digest = sha256()
    for path in sorted(package.rglob("*")):
        within = path.relative_to(package)
        if not any(part.startswith((".", "__pycache__")) for part in within.parts):
            digest.update(os.fsencode(within) + b"\0" + sha256(_contents(path)).digest())
    return digest.hexdigest()


def _contents(path: Path) -> bytes:
    """What is in a file: of a large one its size; nothing where there is none, or it is gone meanwhile."""
    try:
        size = path.stat().st_size if path.is_file() else 0
        return path.read_bytes() if 0 < size <= SMALL else str(size).encode()
    except OSError:
        return b""


def _git(where: Path, *arguments: str) -> bytes:
    command = ["git", "--no-optional-locks", "-C", str(where), *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603


@cache
def versions() -> dict[str, str]:
    """Versions of what the figures depend on.

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
