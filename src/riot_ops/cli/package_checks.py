"""What ``riot-ops doctor`` checks of packages: their versions, extras, and whether PySpark is as it was installed.

Nothing here imports what it looks at: that takes seconds, and what is broken may not be importable.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Literal

__all__ = ["Check", "Status", "check_extras", "check_packages", "check_pyspark", "installed_version", "satisfies"]

DISTRIBUTION = "riot-ops"
#: Distributions that all bring a package of the name ``pyspark``.
PYSPARK_NAMES = ("pyspark", "pyspark-client", "pyspark-connect", "databricks-connect")
#: What one extra of PySpark adds, for sessions of Spark Connect.
CONNECT_EXTRA = "connect"
#: Changed files that are named.
MAX_NAMED = 3

REQUIREMENT = re.compile(r"^\s*([\w.-]+)(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")


Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One thing that was checked: whether it is as it should be, what was found, and the line that mends it."""

    name: str
    status: Status
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Requirement:
    """A requirement of a distribution: a name, versions, and the extra that it belongs to."""

    name: str
    versions: str
    extra: str | None

    def __str__(self) -> str:
        return f"{self.name}{self.versions}"


def installed_version(name: str) -> str | None:
    """Return the version of a distribution; None if it is not installed."""
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None


def satisfies(version: str, versions: str) -> bool:
    """Whether a version is one of those that a requirement allows; only its numbers are compared.

    >>> satisfies("2.3.1", ">=2.2,<3"), satisfies("3.0", ">=2.2,<3"), satisfies("4.0.0.dbr17", ">=4.0,<4.4")
    (True, False, True)
    """
    have = _numbers(version)
    for one in re.findall(r"([<>=!~]+)\s*([\w.*+!-]+)", versions):
        sign, text = one
        want = _numbers(text)
        width = max(len(have), len(want))
        a, b = (part + (0,) * (width - len(part)) for part in (have, want))
        prefix = text.endswith(".*") and a[: len(want)] == want
        allowed = {
            ">=": a >= b,
            "<=": a <= b,
            ">": a > b,
            "<": a < b,
            "==": prefix or a == b,
            "!=": not (prefix or a == b),
            "~=": a >= b and a[: len(want) - 1] == b[: len(want) - 1],
        }
        if not allowed.get(sign, True):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()


def _requirements(name: str) -> Iterator[Requirement]:
    """Yield the requirements of a distribution; those that depend on the platform are left out."""
    try:
        texts = distribution(name).requires or ()
    except PackageNotFoundError:
        return
    for text in texts:
        found = REQUIREMENT.match(text)
        if not found:
            continue
        marker = (found[3] or "").strip()
        extra = re.fullmatch(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        if not marker or extra:
            yield Requirement(found[1], found[2].strip(), extra[1] if extra else None)


def check_packages() -> Iterator[Check]:
    """Check what riot_ops cannot do without, and what these packages ask of one another."""
    own = installed_version(DISTRIBUTION)
    if own is None:
        yield Check("packages", "warn", "riot_ops runs from its sources: versions are not compared", "pip install -e .")
        return
    needed = [one for one in _requirements(DISTRIBUTION) if one.extra is None]
    wrong = [problem for one in needed if (problem := _problem(one))]
    if wrong:
        for one, text in wrong:
            yield Check("packages", "fail", text, f"pip install '{one}'")
        return
    for one in needed:
        for wish in _requirements(one.name):
            have = installed_version(wish.name) if wish.extra is None else None
            if have is not None and not satisfies(have, wish.versions):
                text = f"{one.name} {installed_version(one.name)} asks for {wish}, and {have} is installed"
                yield Check("packages", "warn", text, f"pip install '{one}' '{wish}'")
    found = ", ".join(f"{one.name} {installed_version(one.name)}" for one in needed)
    yield Check("packages", "ok", f"riot-ops {own} with {found}")


def check_extras() -> Iterator[Check]:
    """Check the optional packages of each extra that is there, and name the others."""
    extras: dict[str, list[Requirement]] = {}
    for one in _requirements(DISTRIBUTION):
        if one.extra not in (None, "all", "dev"):
            extras.setdefault(one.extra or "", []).append(one)
    there, missing = [], []
    for extra, needed in sorted(extras.items()):
        problems = [problem for one in needed if (problem := _problem(one))]
        if not problems:
            there.append(extra)
        elif installed_version(needed[0].name) is None and not (extra == "spark" and _has_pyspark()):
            missing.append(extra)
        else:
            text = f"{extra}: {'; '.join(text for _, text in problems)}"
            yield Check("extras", "warn", text, "pip install " + " ".join(f"'{one}'" for one, _ in problems))
    if extras:
        text = f"installed: {', '.join(there) or 'none'}"
        text += f"; to add one of {', '.join(missing)}: pip install 'riot-ops[NAME]'" if missing else ""
        yield Check("extras", "ok", text)


def _problem(one: Requirement) -> tuple[Requirement, str] | None:
    have = installed_version(one.name)
    if have is None and one.name == "pyspark" and _has_pyspark():
        have = _version_in(_pyspark_folders()[0])  # a vendor's own, without metadata
    if have is None:
        return one, f"{one.name} is not installed"
    return None if satisfies(have, one.versions) else (one, f"{one.name} {have} is installed, {one} is needed")


# -- PySpark -------------------------------------------------------------------------------------------


def _has_pyspark() -> bool:
    return bool(_pyspark_folders())


def _pyspark_folders() -> list[Path]:
    """Return the packages ``pyspark`` on the path of modules; Python imports the first."""
    found = (Path(entry or ".") / "pyspark" for entry in sys.path)
    return list(dict.fromkeys(one.resolve() for one in found if (one / "__init__.py").is_file()))


def _version_in(folder: Path) -> str | None:
    """Return the version that a package ``pyspark`` states."""
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"__version__[^=\n]*=\s*['\"]([^'\"]+)", text)
    return found[1] if found else None


def check_pyspark() -> Iterator[Check]:
    """Check which PySpark runs: one, whole, and of the same version as the Spark that it starts."""
    folders = _pyspark_folders()
    if not folders:
        yield Check("spark", "ok", "not installed: dataflows run in process; pip install 'riot-ops[spark]' adds it")
        return
    version = _version_in(folders[0]) or "?"
    several = [name for name in PYSPARK_NAMES if installed_version(name) is not None]
    problems = [
        *_conflicts(folders, several),
        *_changed(folders[0], version),
        *_other_home(folders[0], version),
        *_other_python(),
    ]
    yield from problems
    if not problems:
        vendor = "" if several else ", which did not come from a package: a platform's own"
        yield Check("spark", "ok", f"PySpark {version}{vendor}")
    if several:
        yield _connect(several[0])


def _conflicts(folders: Sequence[Path], several: Sequence[str]) -> Iterator[Check]:
    if len(several) > 1:
        text = f"{' and '.join(several)} write to the same folder, {folders[0]}"
        keep = "pyspark" if "pyspark" in several else several[0]
        remedy = f"pip uninstall -y {' '.join(several)} && pip install '{keep}=={installed_version(keep)}'"
        yield Check("spark", "fail", text, remedy)
    if len(folders) > 1:
        others = ", ".join(map(str, folders[1:]))
        text = f"PySpark is there {len(folders)} times: {folders[0]} is used, {others} is not"
        remedy = "unset PYTHONPATH" if os.environ.get("PYTHONPATH") else f"rm -r {folders[1]}"
        yield Check("spark", "warn", text, remedy)


def _changed(folder: Path, version: str) -> Iterator[Check]:
    """Compare the sizes of files with those that the installer wrote down."""
    try:
        installed: Distribution = distribution("pyspark")
    except PackageNotFoundError:
        return
    if Path(str(installed.locate_file("pyspark"))).resolve() != folder:
        return
    changed = []
    for file in installed.files or ():
        if file.suffix == ".py" and file.parts[0] == "pyspark" and file.size is not None:
            try:
                if Path(str(installed.locate_file(file))).stat().st_size != file.size:
                    changed.append(str(file))
            except OSError:
                changed.append(str(file))
    remedy = f"pip install --force-reinstall --no-deps 'pyspark=={installed.version}'"
    if changed:
        named = ", ".join(changed[:MAX_NAMED]) + (" …" if len(changed) > MAX_NAMED else "")
        text = f"{len(changed)} files of PySpark are not as they were installed, so it may be patched: {named}"
        yield Check("spark", "warn", text, remedy)
    elif version != installed.version:
        yield Check("spark", "warn", f"PySpark says {version}, and {installed.version} was installed", remedy)


def _other_home(folder: Path, version: str) -> Iterator[Check]:
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    jars = sorted(Path(home).glob("jars/spark-core_*.jar"))
    if not jars:
        yield Check("spark", "fail", f"SPARK_HOME is {home}, where no Spark is", "unset SPARK_HOME")
        return
    found = re.search(r"spark-core_[\d.]+-(\d+\.\d+)", jars[0].name)
    if found and found[1] != ".".join(version.split(".")[:2]) and Path(home).resolve() != folder:
        text = f"SPARK_HOME is {home} with Spark {found[1]}, and PySpark is {version}"
        yield Check("spark", "fail", text, "unset SPARK_HOME")


def _other_python() -> Iterator[Check]:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        given = os.environ.get(name)
        if not given:
            continue
        found = shutil.which(given)
        if found is None:
            yield Check("spark", "fail", f"{name} is {given}, which cannot be run", f"unset {name}")
        elif Path(found).resolve() != Path(sys.executable).resolve():
            text = f"{name} is {found}, and this is {sys.executable}: workers need the same packages"
            yield Check("spark", "warn", text, f"export {name}={sys.executable}")


def _connect(name: str) -> Check:
    """Check what a session of Spark Connect needs, as one of a serverless platform is."""
    needed = [one for one in _requirements(name) if one.extra == CONNECT_EXTRA or (name != "pyspark" and not one.extra)]
    problems = [problem for one in needed if (problem := _problem(one))]
    remote = os.environ.get("SPARK_REMOTE")
    if not problems:
        return Check("connect", "ok", "Spark Connect and serverless sessions: all packages are there")
    text = f"Spark Connect and serverless sessions: {'; '.join(text for _, text in problems)}"
    remedy = "pip install " + " ".join(f"'{one}'" for one, _ in problems)
    if remote:
        return Check("connect", "fail", f"SPARK_REMOTE is set, and {text}", remedy)
    if installed_version(problems[0][0].name) is None:
        return Check(
            "connect", "ok", "Spark Connect and serverless sessions are not set up: pip install 'pyspark[connect]'"
        )
    return Check("connect", "warn", text, remedy)
