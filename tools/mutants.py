"""Put small faults into the product, one at a time, and see whether the tests notice.

    python tools/mutants.py src/riot_ops/tasks --sample 100 --jobs 2
    python tools/mutants.py src/riot_ops/tasks/join/assemble_message.py

It works on a copy of the tree. For each file one process imports everything and collects the tests that belong to it
(`tests/mutants.toml`), and measures once what each takes and reaches; for each mutant it forks, puts the mutated code
into the functions that are there, and runs the tests that reach it until one fails. What cannot be put in so, such as a
default of a dataclass, or runs in processes that tests start, is tried by a process that imports the mutated file.

A mutant is killed if a test fails, or if it takes far longer than the tests do without it. Results go to
a file of JSON lines and are not repeated while the source and the tests stay.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import difflib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mutations import Mutant, compiles, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/riot_ops")
COPIED = ("src", "tests", "scripts", "docs", "examples", "README.md", "CHANGELOG.md", "pyproject.toml", "Makefile")
SETTINGS = "tests/mutants.toml"
#: What holds for every task: run for those of a file.
CONTRACTS = ("tests/contract/test_contract.py", "tests/contract/test_field_names.py")
#: Kernels run as plain Python: slower, but a fault in a kernel needs no compilation.
PLAIN = os.environ.get("NUMBA_DISABLE_JIT") == "1"
#: Machine code of the kernels, and what each test takes and reaches: both last as long as their sources.
KERNELS, NOTES = ROOT / "build" / "mutants" / "kernels", ROOT / "build" / "mutants" / "tests.json"


def main() -> int:
    """Choose, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", help="files or folders below src/riot_ops")
    parser.add_argument("--sample", type=int, help="this many mutants of each path, at random; default: all")
    parser.add_argument("--without", action="append", default=[], help="a file or folder that is left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", help="only faults of this kind, such as ignored: an option whose default is taken")
    parser.add_argument("--jobs", type=int, default=1, help="files at the same time")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutants.jsonl")
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    parser.add_argument(
        "--survivors", action="store_true", help="only those that no test noticed when they were last run"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants only")
    parser.add_argument("--least", type=float, default=0.0, help="fail below this percentage of killed ones")
    options = parser.parse_args()
    settings = tomllib.loads((ROOT / SETTINGS).read_text(encoding="utf-8"))
    chosen = {path: _chosen(path, options) for path in options.paths}
    if options.survivors:
        last = {key: result["status"] for (key, _), result in _earlier(options.results).items()}
        chosen = {path: [m for m in found if last.get(m.key) == "survived"] for path, found in chosen.items()}
    if options.list:
        for mutant in (m for found in chosen.values() for m in found):
            print(f"{mutant.file}:{mutant.line}: {mutant.kind}: {mutant.before} -> {mutant.after}")
        return 0
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        options.results.unlink(missing_ok=True)
    done = _earlier(options.results)
    by_file: dict[str, list[Mutant]] = defaultdict(list)
    digests = _digests((m.file for found in chosen.values() for m in found), settings)
    for mutant in {m.key: m for found in chosen.values() for m in found}.values():
        if (mutant.key, digests[mutant.file]) not in done and not _equivalent(mutant, settings):
            by_file[mutant.file].append(mutant)
    _run(by_file, settings, options.results, options.jobs)
    return _report(chosen, _earlier(options.results), settings, options.least)


def _chosen(path: str, options: argparse.Namespace) -> list[Mutant]:
    top, left_out = ROOT / path, [ROOT / other for other in options.without]
    files = [top] if top.is_file() else sorted(top.rglob("*.py"))
    files = [f for f in files if not any(f.is_relative_to(other) for other in left_out)]
    if not files:
        sys.exit(f"mutants: no Python files in {path}")
    found = [m for f in files for m in mutants_of(str(f.relative_to(ROOT / PACKAGE)), f.read_bytes())]
    if options.kind:
        found = [m for m in found if m.kind == options.kind]
    if options.sample is not None and options.sample < len(found):
        places = random.Random(options.seed).sample(range(len(found)), options.sample)
        found = [found[i] for i in sorted(places)]
    return [m for m in found if compiles(m, (ROOT / PACKAGE / m.file).read_bytes())]


def tests_of(file: str, settings: dict[str, Any]) -> list[str]:
    """Return the test files for a source file: the one at the mirrored path, its doctests, and those of the table."""
    named = sorted((ROOT / "tests").rglob(f"test_{Path(file).name}"))
    found = [*(str(test.relative_to(ROOT)) for test in named), str(PACKAGE / file)]
    for place, tests in settings.get("tests", {}).items():
        if _belongs(file, place):
            found += [t for t in tests if t not in found]
    if codes_of(file):
        found += [test for test in CONTRACTS if test not in found]
    return found


def _belongs(file: str, place: str) -> bool:
    return file == place or (place.endswith("/") and file.startswith(place))


def codes_of(file: str) -> list[str]:
    """Return the codes of the tasks in a file: the contract suite runs for these alone."""
    return re.findall(r'code: ClassVar\[str\] = "(\w+)"', (ROOT / PACKAGE / file).read_text(encoding="utf-8"))


def _equivalent(mutant: Mutant, settings: dict[str, Any]) -> bool:
    """Whether ``mutants.toml`` lists the mutant as equivalent to the original."""
    return any(
        entry["file"] == mutant.file
        and entry["function"] == mutant.function
        and entry["before"] == mutant.before
        and entry["after"] == mutant.after
        for entry in settings.get("equivalent", ())
    )


def _digests(files: Iterable[str], settings: dict[str, Any]) -> dict[str, str]:
    """Return a digest of each file's source and tests, on which its results depend."""
    found = {}
    for file in set(files):
        state = hashlib.blake2b((ROOT / PACKAGE / file).read_bytes(), digest_size=8)
        for path in (ROOT / test for test in tests_of(file, settings)):
            for part in [path] if path.is_file() else sorted(path.rglob("*.py")):
                state.update(part.read_bytes())
        found[file] = state.hexdigest()
    return found


def _earlier(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    if not results.exists():
        return {}
    lines = results.read_text(encoding="utf-8").splitlines()
    return {(r["key"], r["digest"]): r for r in map(json.loads, lines)}


# -- running ---------------------------------------------------------------------------------------


def _run(by_file: dict[str, list[Mutant]], settings: dict[str, Any], results: Path, jobs: int) -> None:
    if not by_file:
        return
    NOTES.parent.mkdir(parents=True, exist_ok=True)
    if not PLAIN and not KERNELS.exists():
        print("mutants: compiling all kernels with checks of their indices", flush=True)
        settled = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(KERNELS)}
        subprocess.run([sys.executable, "-m", "riot_ops", "warm"], env=settled, cwd=ROOT, check=True)
    total, done, killed = sum(map(len, by_file.values())), 0, 0
    # the longest first, so that no job is left alone at the end
    order = sorted(by_file, key=lambda f: -len(by_file[f]))
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        open(results, "a", encoding="utf-8") as out,
        concurrent.futures.ThreadPoolExecutor(jobs) as pool,
    ):
        waiting = [pool.submit(_file, f, by_file[f], settings, Path(folder), out) for f in order]
        for one in concurrent.futures.as_completed(waiting):
            n, k = one.result()
            done, killed = done + n, killed + k
            print(f"{done} of {total} done, {killed} killed", flush=True)


def _file(file: str, mutants: list[Mutant], settings: dict[str, Any], folder: Path, out: Any) -> tuple[int, int]:
    """Run the mutants of a file in a copy of the tree; returns how many there were and how many were killed."""
    copy = Path(tempfile.mkdtemp(dir=folder))
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, copy / name)
    job = {
        "file": file,
        "tests": tests_of(file, settings),
        "codes": codes_of(file),
        "skipped": settings.get("skipped", []),
        "servers": any(_belongs(file, place) for place in settings.get("servers", ())),
        "spark": any(_belongs(file, place) for place in settings.get("spark", ())),
        "notes": str(NOTES),
        "mutants": [vars(m) for m in mutants],
    }
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        # an index that a fault has moved raises, as in plain Python; such machine code has a place of its own
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(KERNELS),
        "HYPOTHESIS_PROFILE": "mutants",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTEST_DEBUG_TEMPROOT": str(copy),
        "TMPDIR": str(copy),
        "RIOT_OPS_SHARED_DATA": os.environ.get("RIOT_OPS_SHARED_DATA", str(ROOT.parent / "shared" / "data")),
    }
    if not Path(environment["RIOT_OPS_SHARED_DATA"]).is_dir():
        del environment["RIOT_OPS_SHARED_DATA"]  # tests read the project's own samples only
    digest = _digests([file], settings)[file]
    worker = [sys.executable, str(ROOT / "tools" / "mutant_runner.py"), *(["--least", "3"] if PLAIN else [])]
    killed = seen = 0
    by_key = {m.key: m for m in mutants}
    with subprocess.Popen(
        worker, cwd=copy, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        for line in process.stdout:
            result = json.loads(line)
            if "problem" in result:
                print(f"mutants: {file}: {result['problem']}", file=sys.stderr)
                break
            if "key" not in result:
                ((what, tests),) = result.items()
                why = {"long": "they take long", "failed": "they fail without a fault"}[what]
                print(f"mutants: {file}: left out, as {why}: {', '.join(tests)}", file=sys.stderr)
                continue
            mutant = by_key[result["key"]]
            place = {"file": file, "line": mutant.line, "function": mutant.function, "kind": mutant.kind}
            entry = {**place, "before": mutant.before, "after": mutant.after, **result, "digest": digest}
            out.write(json.dumps(entry, ensure_ascii=False) + "\n")
            out.flush()
            seen += 1
            killed += result["status"] != "survived"
    shutil.rmtree(copy, ignore_errors=True)
    return seen, killed


# -- report ----------------------------------------------------------------------------------------


def _report(
    chosen: dict[str, list[Mutant]], results: dict[tuple[str, str], Any], settings: dict[str, Any], least: float
) -> int:
    digests = _digests((m.file for found in chosen.values() for m in found), settings)
    failed = False
    for path, mutants in chosen.items():
        survivors, ways, unknown, equivalent = [], defaultdict(int), 0, 0
        for mutant in mutants:
            result = results.get((mutant.key, digests[mutant.file]))
            if _equivalent(mutant, settings):
                equivalent += 1
            elif result is None:
                unknown += 1
            elif result["status"] == "survived":
                survivors.append(mutant)
            else:
                ways[result["status"]] += 1
        for mutant in survivors:
            _show(mutant)
        caught = sum(ways.values())
        tried = caught + len(survivors)
        share = 100 * caught / tried if tried else 100.0
        how = ", ".join(f"{n} {way}" for way, n in sorted(ways.items()))
        print(
            f"{path}: {share:.1f} % of {tried} killed ({how or 'none'}), {len(survivors)} survived"
            + (f", {equivalent} equivalent" if equivalent else "")
            + (f", {unknown} without a result" if unknown else "")
        )
        failed |= share < least or unknown > 0
    return int(failed)


def _show(mutant: Mutant) -> None:
    source = (ROOT / PACKAGE / mutant.file).read_bytes()
    a, b = (s.decode().splitlines() for s in (source, mutant.apply(source)))
    print(f"\n{PACKAGE / mutant.file}:{mutant.line}: survived: {mutant.kind} in {mutant.function or 'the module'}:")
    print(f"    {mutant.before}  ->  {mutant.after}")
    for line in _changes(difflib.unified_diff(a, b, lineterm="", n=1)):
        print(f"    {line}")


def _changes(diff: Iterable[str]) -> list[str]:
    return [line for line in diff if not line.startswith(("---", "+++", "@@"))]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
