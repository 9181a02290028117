"""Build the wheel riot-ops-kernels: machine code of the kernels for any processor of this platform.

    tools/build_kernels.py [FOLDER] [--units "task KAL,application stats"]    default: build/kernels, all kernels

Kernels are compiled for numba's CPU ``generic``, by this Python and the numba installed for it; the wheel says which,
and riot_ops ignores it elsewhere.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import riot_ops
from riot_ops.kernels.code_cache import MANIFEST, SHIPPED, this_platform

WARM = "import sys\nfrom riot_ops.cli.kernel_warm_up import warm\nfor e in warm(units=sys.argv[1:]).items(): print(*e)"


def compile_kernels(folder: Path, units: list[str]) -> None:
    """Compile the kernels of units into a folder, for any processor."""
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(folder),
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "RIOT_OPS_COMPILE": "immediate",
    }
    environment.pop("NUMBA_DISABLE_JIT", None)
    subprocess.run([sys.executable, "-c", WARM, *units], env=environment, check=True)


def pack(code: Path, target: Path) -> Path:
    """Pack compiled kernels into a wheel; returns its path."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform_tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"{python}-{python}-{platform_tag}"
    info = f"riot_ops_kernels-{riot_ops.__version__}.dist-info"
    numba = this_platform()["numba"]
    files = dict(_code_files(code))
    files[f"{SHIPPED}/__init__.py"] = b'"""Machine code of the kernels of riot_ops."""\n'
    files[f"{SHIPPED}/{MANIFEST}"] = json.dumps(this_platform()).encode()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: riot-ops-kernels\nVersion: {riot_ops.__version__}\n"
        f"Summary: Machine code of the kernels of riot_ops\nLicense: Apache-2.0\n"
        f"Requires-Dist: riot-ops=={riot_ops.__version__}\nRequires-Dist: numba=={numba}\n"
    ).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: riot_ops\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    target.mkdir(parents=True, exist_ok=True)
    wheel = target / f"riot_ops_kernels-{riot_ops.__version__}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def _code_files(code: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(code.rglob("*.nb[ic]")):
        yield f"{SHIPPED}/code/{path.relative_to(code).as_posix()}", path.read_bytes()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main() -> None:
    """Compile and pack."""
    parser = argparse.ArgumentParser(description="Build the wheel riot-ops-kernels.")
    parser.add_argument("folder", nargs="?", default="build/kernels", type=Path)
    parser.add_argument("--units", help="units of `riot-ops warm`, separated by commas")
    given = parser.parse_args()
    from riot_ops.cli.kernel_warm_up import UNITS

    with tempfile.TemporaryDirectory() as code:
        compile_kernels(Path(code), given.units.split(",") if given.units else list(UNITS))
        print(pack(Path(code), given.folder))


if __name__ == "__main__":
    main()
