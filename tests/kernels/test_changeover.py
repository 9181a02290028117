"""Kernels start as plain Python and change over to machine code, without a call that waits and with equal results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.kernels import changeover
from riot_ops.kernels.changeover import Changeover, described_type

KERNELS = """
from riot_ops.kernels.jit import kernel

@kernel
def twice(x):
    return 2 * x

@kernel
def total(values):
    found = 0.1
    for i in range(values.size):
        found += twice(values[i])
    return found

@kernel
def checked(values):
    for i in range(values.size):
        if values[i] < 0:
            raise ValueError("negative")
    return values.size

@kernel
def uncompilable(values):
    return sorted({1: values.size}.items(), key=str)[0][1]
"""
#: What a new process runs before the test's own code: ``total`` and the names of the functions that it compiles.
PRELUDE = """
import os, signal, sys, time, warnings
import numpy as np
from riot_ops.kernels import changeover
from kernels_of_changeover import checked, total, uncompilable

values = np.arange(7.0) / 3
plain = total.python(values)
compiled = []

def listen():
    from numba.core import event
    class Listener(event.Listener):
        def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
        def on_end(self, e): pass
    event.register("numba:compile", Listener())

def wait(kernel):
    until = time.monotonic() + 120
    while kernel._compiled is None and time.monotonic() < until:
        assert kernel(values) == plain
        time.sleep(0.01)
"""


def run(folder: Path, code: str, **environment: str) -> list[str]:
    """Run code in a new process whose kernels are deferred; returns what it prints."""
    (folder / "kernels_of_changeover.py").write_text(KERNELS)
    settings = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), "RIOT_OPS_COMPILE": "deferred"}
    settings.pop("NUMBA_DISABLE_JIT", None)
    settings["PYTHONPATH"] = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env={**settings, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_few_records_load_no_compiler(tmp_path):
    code = "print([total(values) == plain for _ in range(50)].count(True), {'numba', 'llvmlite'} & set(sys.modules))"
    assert run(tmp_path, code) == ["50 set()"]


@pytest.mark.long
def test_busy_kernel_is_compiled_by_another_process_while_it_goes_on(tmp_path):
    code = "changeover.PLAIN_SECONDS = 0\nlisten()\nwait(total)\nprint(total(values) == plain, compiled)"
    assert run(tmp_path, code) == ["True []"]
    assert [path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()] == ["kernels_of_changeover.total"]
    # cached now: a large call loads it at once, and types without machine code wait for nothing
    large = (
        "many = np.arange(5000.0)\nlisten()\n"
        "print(total(many) == total.python(many), total._compiled is not None, compiled)\n"
        "print(total(values.astype(np.float32)) == total.python(values.astype(np.float32)), len(total._compiled.signatures))"
    )
    assert run(tmp_path, large) == ["True True []", "True 1"]
    patient = f"changeover.prefer_plain_python()\n{large.splitlines()[0]}\ntotal(many)\nprint('numba' in sys.modules)"
    assert run(tmp_path, patient) == ["False"]


@pytest.mark.slow
def test_very_large_call_is_compiled_at_once(tmp_path):
    code = "changeover.HUGE = 7\nchangeover.LARGE = 7\nlisten()\nprint(total(values) == plain, compiled)"
    assert run(tmp_path, code) == ["True ['total', 'twice']"]


@pytest.mark.slow
def test_setting_compiles_at_the_first_call(tmp_path):
    code = "listen()\nprint(total(values) == plain, compiled)"
    assert run(tmp_path, code, RIOT_OPS_COMPILE="immediate") == ["True ['total', 'twice']"]


def test_unknown_setting_is_refused(monkeypatch):
    monkeypatch.setenv("RIOT_OPS_COMPILE", "never")
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    with pytest.raises(ConfigError, match="RIOT_OPS_COMPILE must be deferred or immediate, got 'never'"):
        Changeover().code(None, ())  # type: ignore[arg-type]


@pytest.mark.slow
def test_kernel_that_fails_to_compile_stays_plain_python_with_one_warning(tmp_path):
    code = """
changeover.PLAIN_SECONDS = 0
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    until = time.monotonic() + 120
    while not seen and time.monotonic() < until:
        assert uncompilable(values) == 7
        time.sleep(0.01)
    for _ in range(20):
        assert uncompilable(values) == 7
    time.sleep(0.2)
print(len(seen), str(seen[0].message).partition(" (")[0], uncompilable._compiled)
"""
    assert run(tmp_path, code) == ["1 kernel kernels_of_changeover.uncompilable cannot be compiled None"]


@pytest.mark.long
def test_forks_while_machine_code_is_brought(tmp_path):
    code = """
changeover.PLAIN_SECONDS = 0
total(values)
while changeover.CHANGEOVER._compiler is None:
    time.sleep(0.001)
process = changeover.CHANGEOVER._compiler.process
process.send_signal(signal.SIGSTOP)
time.sleep(0.2)  # the thread waits for the answer now
right = 0
for i in range(3):
    if i == 1:
        process.send_signal(signal.SIGCONT)
    child = os.fork()
    if not child:
        signal.alarm(60)
        if i:
            wait(total)
        else:
            os._exit(0)
        os._exit(0 if total(values) == plain and total._compiled is not None else 1)
    right += os.waitpid(child, 0)[1] == 0
print(right)
"""
    assert run(tmp_path, code) == ["3"]


@pytest.mark.slow
def test_threads_meet_the_changeover(tmp_path):
    """Each call of each thread gives the same result, and the kernel changes over once."""
    code = """
import threading
changeover.PLAIN_SECONDS = 0
wrong, over = [], threading.Event()

def call(kind):
    mine = values.astype(kind)
    wanted = total.python(mine)
    while not over.is_set():
        if total(mine) != wanted:
            wrong.append(kind)

threads = [threading.Thread(target=call, args=(kind,)) for kind in ("f8", "f8", "i8", "i8", "f8", "f8")]
for thread in threads:
    thread.start()
wait(total)
time.sleep(0.2)
over.set()
for thread in threads:
    thread.join()
print(wrong, len(changeover.CHANGEOVER._failed))
"""
    assert run(tmp_path, code) == ["[] 0"]


@pytest.mark.long
def test_exception_of_a_kernel_is_raised_before_and_after_the_changeover(tmp_path):
    code = """
changeover.PLAIN_SECONDS = 0
negative = np.array([1.0, -1.0])
raised = {False: 0, True: 0}
until = time.monotonic() + 120
while not raised[True] and time.monotonic() < until:
    over = checked._compiled is not None
    try:
        checked(negative)
    except ValueError as error:
        raised[over] += str(error) == "negative"
    assert checked(values) == 7
    time.sleep(0.01)
print(raised[False] > 0, raised[True])
"""
    assert run(tmp_path, code) == ["True 1"]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["shutil.rmtree(folder, ignore_errors=True)", "damage(folder)"])
def test_cache_that_is_lost_in_mid_run_costs_time_only(tmp_path, attack):
    """The machine code is compiled again, whenever its files are removed or damaged."""
    code = f"""
import pathlib, shutil, threading
changeover.PLAIN_SECONDS = 0
folder, over = os.environ["NUMBA_CACHE_DIR"], threading.Event()

def damage(folder):
    for path in pathlib.Path(folder).rglob("*"):
        try:
            if path.is_file() and path.suffix in (".nbi", ".nbc"):
                path.write_bytes(b"no code")
        except OSError:
            pass

def attack():
    while not over.is_set():
        {attack}
        time.sleep(0.001)

thread = threading.Thread(target=attack)
thread.start()
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    until = time.monotonic() + 60
    while total._compiled is None and not seen and time.monotonic() < until:
        assert total(values) == plain
        time.sleep(0.01)
    over.set()
    thread.join()
    many = np.arange(5000.0)
    assert total(many) == total.python(many) and total(values) == plain
print(total._compiled is not None)
"""
    assert run(tmp_path, code) == ["True"]
    again = "many = np.arange(5000.0)\nprint(total(many) == total.python(many), total(values) == plain)"
    assert run(tmp_path, again) == ["True True"]


@pytest.mark.long
def test_damaged_cache_is_made_again(tmp_path):
    """A loss of power may leave files of any content; they are replaced."""
    code = "listen()\nprint(total(values) == plain, compiled)"
    compiled = ["True ['total', 'twice']"]
    assert run(tmp_path, code, RIOT_OPS_COMPILE="immediate") == compiled
    files = [path for path in (tmp_path / "cache").rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert files
    for path in files:
        path.write_bytes(b"")
    assert run(tmp_path, code, RIOT_OPS_COMPILE="immediate") == compiled
    assert run(tmp_path, code, RIOT_OPS_COMPILE="immediate") == ["True []"]


#: Tasks of many kinds, under all checks of the contract, while their kernels change over.
CONTRACT = """
import sys, warnings
from riot_ops.kernels import changeover
from riot_ops.task import registered_tasks
from riot_ops.testing import CHECKS, applies

changeover.PLAIN_SECONDS = 0
kinds = {kind.code: kind for kind in registered_tasks()}
done = 0
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for code in sys.argv[1:]:
        case = next(iter(kinds[code].cases()))
        for check in CHECKS:
            if applies(check, case):
                check(case)
                done += 1
print(done, "numba" in sys.modules, [str(one.message) for one in seen])
"""


@pytest.mark.slow
@pytest.mark.parametrize("setting", [{"RIOT_OPS_COMPILE": "deferred"}, {"NUMBA_DISABLE_JIT": "1"}], ids=str)
def test_tasks_fulfil_the_contract_while_kernels_change_over(tmp_path, setting):
    codes = ("KAL", "AVG", "BLF", "PRS", "SQI", "DAC", "SLR", "SOM", "SML", "XML")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("RIOT_OPS_COMPILE", "NUMBA_DISABLE_JIT"):
        environment.pop(name, None)
    command = [sys.executable, "-c", CONTRACT, *codes]
    child = subprocess.run(command, env=environment | setting, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    done, uses_numba, rest = child.stdout.strip().split(" ", 2)
    assert int(done) > 10 * len(codes) and rest == "[]"
    assert uses_numba == str("RIOT_OPS_COMPILE" in setting)


def test_missing_numba_gives_one_warning_and_equal_results(tmp_path):
    code = """
sys.modules["numba"] = None
changeover.PLAIN_SECONDS = 0
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(5):
        assert total(values) == plain
    until = time.monotonic() + 60
    while not seen and time.monotonic() < until:
        time.sleep(0.01)
    changeover.compile_immediately()
    assert total(values) == plain
print([str(one.message).partition(" (")[0] for one in seen])
"""
    assert run(tmp_path, code) == ["['numba cannot be imported']"]


def test_time_of_plain_python_counts_within_a_window_if_memory_is_scarce(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(changeover.time, "perf_counter", lambda: now[0])
    one = Changeover()
    one.spent = changeover.PLAIN_SECONDS
    assert one._is_due()
    one.patient = True
    assert not one._is_due()
    one.spent = changeover.BUSY_SECONDS
    assert one._is_due()
    now[0] = changeover.BUSY_WITHIN + 1
    assert not one._is_due()


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="numba describes the types")
@pytest.mark.parametrize(
    "value",
    [
        np.zeros(2),
        np.zeros((2, 3), np.uint8),
        np.zeros((2, 3)).T,
        np.zeros(4, np.int32)[::2],
        np.zeros(1, np.bool_),
        3,
        2.5,
        True,
        np.uint64(1),
        np.int8(1),
    ],
)
def test_types_of_arguments_reach_the_other_process(value):
    import numba

    for frozen in (False, True):
        if isinstance(value, np.ndarray):
            value.flags.writeable = not frozen
        kind = numba.typeof(value)
        assert described_type(changeover.describe_type(kind)) == kind  # type: ignore[arg-type]
    assert changeover.describe_type(numba.typeof("text")) is None
