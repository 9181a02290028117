"""Which change compiles what anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from riot_ops.kernels.jit import kernel

SOURCE = """
from riot_ops.kernels.jit import kernel
from {other} import FACTOR
TABLE = __import__("numpy").array([1, 2, {entry}])
{lines}
@kernel
def inner(x):
    return x * FACTOR

@kernel
def outer(values):
    total = {start}
    for i in range(values.size):
        total += inner(values[i])
    total += inner(1)
    return total

@kernel
def unrelated(values):
    return values[0] + TABLE[2]
"""


def digests(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> dict[str, bytes]:
    """Of the kernels of a module that is written, imported and forgotten."""
    given = {"other": "other_of_jit", "entry": 3, "start": 0, "factor": 2, "lines": "", **changes}
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
    ("change", "anew"),
    [
        ({}, set()),
        ({"factor": 3}, {"inner", "outer"}),  # a constant of another module
        ({"factor": 2.0}, {"inner", "outer"}),
        ({"start": 1}, {"outer"}),
        ({"entry": 4}, {"unrelated"}),
    ],
)
def test_what_goes_into_machine_code_names_it(tmp_path, monkeypatch, change, anew):
    before, after = digests(tmp_path, monkeypatch), digests(tmp_path, monkeypatch, **change)
    assert {name for name in before if before[name] != after[name]} == anew


def test_a_global_that_cannot_be_told_from_another_is_refused():
    @kernel
    def reads_a_path(x):
        return x + len(os.environ)

    assert reads_a_path.digest  # a module is known by its name
    reads_a_path.python.__globals__["SOMETHING"] = {}
    try:

        @kernel
        def reads_a_dict(x):
            return x + len(SOMETHING)  # noqa: F821

        with pytest.raises(TypeError, match=r"reads_a_dict reads SOMETHING, a dict; kernels read numbers"):
            _ = reads_a_dict.digest
    finally:
        del reads_a_path.python.__globals__["SOMETHING"]


#: For each folder that it is told, a process that has compiled nothing yet, forked from one that has read the compiler.
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


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_only_what_changed_is_compiled_and_once_per_type(tmp_path, monkeypatch):
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

        # inner but once, though it is called with a literal as well
        assert run() == ["8", "3", "outer,inner,unrelated"]
        assert run() == ["8", "3", ""]
        assert run(place="second", lines="\n# moved\n") == ["8", "3", ""]  # another path, another line, another time
        assert run(factor=3) == ["12", "3", "outer,inner"]  # the file of outer is as it was


def test_kept_in_a_folder_of_ones_own(tmp_path):
    """Nothing but the folder that is named gets files."""
    code = (
        "import numba, numpy as np; from riot_ops.kernels.text.senml.messages import repeat\n"
        "before = {k: v for k, v in vars(numba.config).items() if k.startswith('CACHE')}\n"
        "repeat(np.arange(2), 2, np.empty(4, np.int64))\n"
        "assert before == {k: v for k, v in vars(numba.config).items() if k.startswith('CACHE')}"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "given"), "XDG_CACHE_HOME": str(tmp_path / "not")}
    environment.pop("NUMBA_DISABLE_JIT", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert [p.name.partition("-")[0] for p in (tmp_path / "given").iterdir()] == ["kernels.senml.messages.repeat"]
    assert not (tmp_path / "not").exists()


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_inline_is_for_the_machine_code_of_callers():
    def step(x):
        return x + 1

    plain, inline = kernel(step), kernel(inline=True)(step)
    assert plain(1) == inline(1) == 2
    assert plain.digest != inline.digest
    assert not plain.inlined().targetoptions["forceinline"]
    assert inline.inlined().targetoptions["forceinline"]


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_numba_names_what_other_kernels_call_instead():
    def zeros(w):
        return w

    there = kernel(numba="numba.cpython.unsafe.numbers.trailing_zeros")(zeros)
    assert there.inlined() is not kernel(zeros).inlined()
    assert there.inlined().__name__ == "trailing_zeros"
    assert there.digest != kernel(zeros).digest
    for name in ("numba.cpython.unsafe.numbers.no_such_function", "numba.no_such_module.zeros"):
        assert kernel(numba=name)(zeros).inlined().py_func.__name__ == "zeros"
