"""The cache of machine code: a directory per kernel, in the user's cache or in the distribution riot-ops-kernels."""

# ruff: noqa: SLF001 (numba offers no public way to its cache)

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import platform
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

__all__ = [
    "COMPILE_LOCK",
    "CacheLocator",
    "Compilable",
    "cache_directory",
    "cache_root",
    "caching_in",
    "directory_name",
    "has_signature",
    "is_cached",
    "load_numba",
    "shipped_root",
    "tolerate_damage",
    "use_shipped_code",
]

#: Guards compilation: numba takes the cache directory of a function from a global setting.
COMPILE_LOCK = threading.RLock()
#: The package of the distribution with machine code for any processor of a platform, and its description.
SHIPPED, MANIFEST = "riot_ops_kernels", "manifest.json"


class Compilable(Protocol):
    """What caching and changing over need of a kernel."""

    python: Callable[..., Any]

    @property
    def digest(self) -> bytes:
        """A hash of everything that determines the machine code."""

    @property
    def plain(self) -> Callable[..., Any]:
        """The kernel as plain Python."""

    def dispatcher(self) -> Any:
        """Return the numba dispatcher."""

    def compile(self) -> Any:
        """Use machine code from now on, and return what is called."""

    def use(self, code: Any) -> None:
        """Call a function from now on."""


@functools.cache
def load_numba() -> Any:
    """Return the numba module, or None if kernels run as plain Python."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return None
    try:
        import numba
    except Exception as error:  # a broken LLVM raises more than ImportError
        warnings.warn(
            f"numba cannot be imported ({error}); kernels run as plain Python, about 70 times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return numba


class CacheLocator:
    """Locates the cached machine code of a kernel for numba: in the directory named by its digest.

    The locators of numba also depend on path, line and time of the source, and so would recompile kernels in every
    environment in which the library is installed.
    """

    def __init__(self, directory: str, source: str) -> None:
        self.directory = directory
        self._py_file = source  # numba names it in warnings

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> CacheLocator:
        """Return the locator of the kernel that is being compiled."""
        return cls(vars(load_numba().config)["CACHE_DIR"], py_file)

    def ensure_cache_path(self) -> None:
        """Create the directory, if that is possible."""
        with contextlib.suppress(OSError):
            os.makedirs(self.directory, exist_ok=True)

    def get_cache_path(self) -> str:
        """Return the directory."""
        return self.directory

    def get_source_stamp(self) -> str:
        """Nothing: the digest in the directory's name covers the source."""
        return ""

    def get_disambiguator(self) -> str:
        """Nothing: each kernel has its own directory."""
        return ""


@contextlib.contextmanager
def caching_in(directory: Path, config: dict[str, Any]) -> Iterator[None]:
    """Let numba cache functions decorated within the context in a directory; a user's own functions are unaffected."""
    settings = {"CACHE_DIR": str(directory), "CACHE_LOCATOR_CLASSES": f"{__name__}.{CacheLocator.__name__}"}
    before = {name: config.get(name, "") for name in settings}
    config.update(settings)
    try:
        yield
    finally:
        config.update(before)


def cache_directory(kernel: Compilable) -> Path:
    """Return the cache directory of a kernel."""
    return cache_root() / directory_name(kernel)


def directory_name(kernel: Compilable) -> str:
    """Return the name of the directory of a kernel's machine code: equal names mean equal machine code."""
    digest = kernel.digest.hex()[:16]
    return f"{kernel.python.__module__.removeprefix('riot_ops.')}.{kernel.python.__name__}-{digest}"


@functools.cache
def cache_root() -> Path:
    """Return a writable directory: ``NUMBA_CACHE_DIR``, the user's cache, or a temporary one."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return Path(given)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        path = base / "numba" / "riot_ops"
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK):
            return path
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="riot_ops-"))


def is_cached(kernel: Compilable) -> bool:
    """Whether there is machine code of a kernel, for any types."""
    shipped = shipped_root()
    roots = [cache_root()] if shipped is None else [cache_root(), shipped]
    return any((root / directory_name(kernel)).is_dir() for root in roots)


def has_signature(dispatcher: Any, signature: tuple[Any, ...]) -> bool:
    """Whether the machine code of a function for types of arguments is cached."""
    cache = dispatcher._cache
    codegen = dispatcher.targetctx.codegen()
    try:
        if cache._index_key(signature, codegen) in cache._cache_file._load_index():
            return True
    except Exception:
        _forget(cache)
    shipped = getattr(cache, "shipped", None)
    return shipped is not None and shipped.has(signature, codegen)


def tolerate_damage(dispatcher: Any) -> None:
    """Let a function do without its cached code where files are damaged, as by a loss of power, or cannot be written.

    It is compiled again then. Unpickling a damaged file may raise anything.
    """
    cache = dispatcher._cache
    load, save = cache.load_overload, cache.save_overload

    def load_overload(signature: Any, target: Any) -> Any:
        try:
            return load(signature, target)
        except Exception:
            _forget(cache)
            return None

    def save_overload(signature: Any, code: Any) -> None:
        for _ in range(2):
            try:
                save(signature, code)
            except Exception:
                _forget(cache)
            else:
                return

    cache.load_overload, cache.save_overload = load_overload, save_overload


def _forget(cache: Any) -> None:
    """Remove the index of cached code, by which the next code that is saved replaces the files."""
    with contextlib.suppress(OSError):
        os.unlink(cache._cache_file._index_path)


@functools.cache
def shipped_root() -> Path | None:
    """Return the folder of riot-ops-kernels, if it is installed and made for this Python, numba and platform."""
    try:
        found = importlib.util.find_spec(SHIPPED)
    except (ImportError, ValueError):
        return None
    if found is None or not found.submodule_search_locations:
        return None
    root = Path(next(iter(found.submodule_search_locations)))
    try:
        manifest = json.loads((root / MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return root / "code" if manifest == this_platform() else None


def this_platform() -> dict[str, str]:
    """Return what shipped machine code depends on, apart from the kernels: their digests cover those.

    >>> sorted(this_platform())
    ['machine', 'numba', 'python', 'system']
    """
    from importlib.metadata import version

    return {
        "python": f"{sys.implementation.name}{sys.version_info.major}.{sys.version_info.minor}",
        "numba": version("numba"),
        "machine": platform.machine(),
        "system": platform.system(),
    }


class _ShippedCode:
    """The machine code of one function in riot-ops-kernels, made for any processor of the platform."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    @functools.cached_property
    def index(self) -> dict[Any, str]:
        """The files by types of arguments, target triple and bytecode, without the processor."""
        found = self.cache._cache_file._load_index()
        return {(key[0], key[1][0], key[2]): name for key, name in found.items()}

    def has(self, signature: Any, codegen: Any) -> bool:
        return self._key(signature, codegen) in self.index

    def load(self, signature: Any, target: Any) -> Any:
        """Return the compiled function, or None."""
        name = self.index.get(self._key(signature, target.codegen()))
        if name is None:
            return None
        try:
            return self.cache._impl.rebuild(target, self.cache._cache_file._load_data(name))
        except OSError:  # part of the distribution is missing
            return None

    def _key(self, signature: Any, codegen: Any) -> Any:
        key = self.cache._index_key(signature, codegen)
        return key[0], key[1][0], key[2]


def use_shipped_code(dispatcher: Any, kernel: Compilable) -> None:
    """Let a function load its machine code from riot-ops-kernels where the user's cache has none."""
    root = shipped_root()
    if root is None or not (root / directory_name(kernel)).is_dir():
        return
    own = dispatcher._cache
    with caching_in(root / directory_name(kernel), vars(load_numba().config)):
        shipped = _ShippedCode(type(own)(dispatcher.py_func))
    of_user = own.load_overload

    def load_overload(signature: Any, target: Any) -> Any:
        found = of_user(signature, target)
        return shipped.load(signature, target) if found is None else found

    own.load_overload, own.shipped = load_overload, shipped
