"""The process that compiles kernels for another one: a request and an answer per line, in JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from riot_ops.kernels.changeover import described_type
from riot_ops.kernels.jit import Kernel, import_kernel

__all__ = ["answer", "serve"]


def answer(line: str) -> str:
    """Compile the kernel of a request into the cache; returns ``compiled``, or why not.

    >>> answer('["riot_ops.kernels.jit", "Kernel", "00", []]')
    'not the kernel asked for'
    """
    module, name, digest, types = json.loads(line)
    found: Any = import_kernel(module, name)
    if not isinstance(found, Kernel) or found.digest.hex() != digest:
        return "not the kernel asked for"
    found.dispatcher().compile(tuple(map(described_type, types)))
    return "compiled"


def serve() -> None:
    """Answer the requests of standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    os.nice(10)
    for line in sys.stdin:
        try:
            text = answer(line)
        except Exception as error:  # the other process reports it, as it fails there too
            text = f"{type(error).__name__}"
        print(text, file=answers, flush=True)


if __name__ == "__main__":
    serve()
