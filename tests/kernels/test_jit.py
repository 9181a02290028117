"""Compilation of kernels: recompilation after a change, and the cache of machine code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from riot_ops.kernels.jit import kernel

SOURCE = '''
from riot_ops.kernels.jit import kernel
from {other} import FACTOR
TABLE = __import__("numpy").array([1, 2, {entry}])
{lines}
@kernel
def inner(x):
    """{doc}"""
    return x * FACTOR

@kernel
def outer(values):
    total = {start}
    for {index} in range(values.size):
        total += inner(values[{index}])
    total += inner(1)
    return total

@kernel
def unrelated(values):
    return values[0] + TABLE[2]
'''


def digests(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> dict[str, bytes]:
    """Digests of the kernels of a module that is written, imported and removed again."""
    given = {
        "other": "other_of_jit",
        "entry": 3,
        "start": 0,
        "factor": 2,
        "lines": "",
        "doc": "Scale.",
        "index": "i",
        **changes,
    }
    (folder / "other_of_jit.py").write_text(f"FACTOR = {given['factor']}\n")
    (folder / "kernels_of_jit.py").write_text(SOURCE.format(**given))
    monkeypatch.syspath_prepend(str(folder))
    for name in ("kernels_of_jit", "other_of_jit"):
        sys.modules.pop(name, None)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        module = __import__("kernels_of_jit")
    finally:
        sys.dont_write_bytecode = before
    return {name: getattr(module, name).digest for name in ("inner", "outer", "unrelated")}


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({}, set()),
        ({"factor": 3}, {"inner", "outer"}),  # a constant of another module
        ({"factor": 2.0}, {"inner", "outer"}),
        ({"start": 1}, {"outer"}),
        ({"entry": 4}, {"unrelated"}),
        ({"doc": "Scale a number."}, set()),
        ({"index": "row"}, set()),
    ],
)
def test_digest_covers_all_inputs_of_machine_code(tmp_path, monkeypatch, change, changed):
    before, after = digests(tmp_path, monkeypatch), digests(tmp_path, monkeypatch, **change)
    assert {name for name in before if before[name] != after[name]} == changed


def test_unhashable_global_is_refused():
    @kernel
    def reads_a_path(x):
        return x + len(os.environ)

    assert reads_a_path.digest  # a module is identified by its name
    reads_a_path.python.__globals__["SOMETHING"] = {}
    try:

        @kernel
        def reads_a_dict(x):
            return x + len(SOMETHING)  # noqa: F821

        with pytest.raises(TypeError, match=r"reads_a_dict reads SOMETHING, a dict; kernels read numbers"):
            _ = reads_a_dict.digest
    finally:
        del reads_a_path.python.__globals__["SOMETHING"]


#: For each folder read from standard input, fork a process that has imported numba but not compiled anything.
RUN = """
import os, sys
import numpy as np
from numba.core import event
import riot_ops.kernels.jit

class Listener(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass

compiled = []
for folder in iter(sys.stdin.readline, ""):
    if os.fork():
        os.wait()
        continue
    try:
        sys.path.insert(0, folder.rstrip())
        event.register("numba:compile", Listener())
        from kernels_of_jit import outer, unrelated
        a = np.arange(3)
        print(outer(a), unrelated(a), ",".join(compiled), flush=True)
    except BaseException as error:
        print(repr(error), flush=True)
    os._exit(0)
"""


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_only_changed_kernels_are_compiled_and_once_per_type(tmp_path, monkeypatch):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)

    with subprocess.Popen(
        [sys.executable, "-c", RUN],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:

        def run(place: str = "first", **changes: object) -> list[str]:
            folder = tmp_path / place
            folder.mkdir(exist_ok=True)
            digests(folder, monkeypatch, **changes)
            print(folder, file=process.stdin)
            assert process.stdout is not None
            return process.stdout.readline().rstrip("\n").split(" ")

        # inner is compiled once, although it is also called with a literal
        assert run() == ["8", "3", "outer,inner,unrelated"]
        assert run() == ["8", "3", ""]
        assert run(place="second", lines="\n# moved\n") == ["8", "3", ""]  # another path, line and time
        assert run(factor=3) == ["12", "3", "outer,inner"]  # the file of outer is unchanged


@pytest.mark.long
def test_machine_code_is_cached_in_the_given_folder_only(tmp_path):
    """Neither other folders nor the global settings of numba change."""
    code = (
        "import numba, numpy as np; from riot_ops.kernels.arrays.lazy_rows import any_infinite\n"
        "before = {k: v for k, v in vars(numba.config).items() if k.startswith('CACHE')}\n"
        "any_infinite(np.zeros(2))\n"
        "assert before == {k: v for k, v in vars(numba.config).items() if k.startswith('CACHE')}"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "given"), "XDG_CACHE_HOME": str(tmp_path / "not")}
    environment.pop("NUMBA_DISABLE_JIT", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert [p.name.partition("-")[0] for p in (tmp_path / "given").iterdir()] == [
        "kernels.arrays.lazy_rows.any_infinite"
    ]
    assert not (tmp_path / "not").exists()


@pytest.mark.long
def test_kernel_runs_where_no_cache_can_be_written(tmp_path):
    """As for workers of a platform whose user has no home."""
    code = (
        "import numpy as np; from riot_ops.kernels.arrays.lazy_rows import any_infinite\n"
        "assert any_infinite(np.array([1.0, np.inf])) and not any_infinite(np.zeros(2))"
    )
    environment = {**os.environ, "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache", "TMPDIR": str(tmp_path)}
    for name in ("NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_inline_applies_to_calls_by_kernels():
    def step(x):
        return x + 1

    plain, inline = kernel(step), kernel(inline=True)(step)
    assert plain(1) == inline(1) == 2
    assert plain.digest != inline.digest
    assert not plain.inlined().targetoptions["forceinline"]
    assert inline.inlined().targetoptions["forceinline"]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_numba_function_replaces_the_kernel_in_callers():
    def zeros(w):
        return w

    there = kernel(numba="numba.cpython.unsafe.numbers.trailing_zeros")(zeros)
    assert there.inlined() is not kernel(zeros).inlined()
    assert there.inlined().__name__ == "trailing_zeros"
    assert there.digest != kernel(zeros).digest
    for name in ("numba.cpython.unsafe.numbers.no_such_function", "numba.no_such_module.zeros"):
        assert kernel(numba=name)(zeros).inlined().py_func.__name__ == "zeros"
