"""The folder of a run's results: which run wrote it, and whether a new run may write there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.file_paths import absolute_path
from riot_ops.core.paths import write_atomic
from riot_ops.core.storage import Address

__all__ = ["RunFolder", "earlier_runner"]

#: The file that names the run whose results a folder holds.
MANIFEST = "run.json"
#: What may differ where a changed dataflow continues.
CHANGEABLE = ("dataflow", "form", "parameters")


class RunFolder:
    """A folder with the results of one run; those of an earlier run are refused, replaced or continued.

    Parameters
    ----------
    folder : Path or Address
        Created if missing. In a store, whose sinks remove what they replace, only the file that names the run is kept.
    run : mapping of str to JSON-able value
        What distinguishes runs: the application, and all options that decide its input.
    artifacts : iterable of str
        Files and folders that the run may write beside its streams. Those that exist already belong to the user and are
        never removed.
    checkpoint : path, optional
        Folder of the run's state; a run is continued if the folder holds any.
    overwrite : bool, default False
        Whether to remove what an earlier run wrote.
    changed : bool, default False
        Whether a continued run may be of a dataflow that differs.

    Attributes
    ----------
    continued : bool
        Whether this run continues an earlier one.
    """

    def __init__(
        self,
        folder: Path | Address,
        run: Mapping[str, Any],
        artifacts: Iterable[str],
        *,
        checkpoint: Path | Address | None = None,
        overwrite: bool = False,
        changed: bool = False,
    ) -> None:
        self._folder = folder
        self._changed = changed
        self.continued = checkpoint is not None and _is_nonempty_folder(checkpoint)
        checkpoint_path = None if checkpoint is None else absolute_path(str(checkpoint))
        try:
            if isinstance(folder, Path):
                folder.mkdir(parents=True, exist_ok=True)
            earlier = self._earlier()
            if self.continued:
                self._check_continued(earlier, run, checkpoint_path, overwrite, CHANGEABLE if changed else ())
                self._artifacts = list((earlier or {}).get("made", ()))
                self._manifest = {**(earlier or {}), "run": dict(run)}
                self._write(self._manifest)
                return
            if earlier is not None and not overwrite:
                raise ConfigError(
                    f"{folder} holds the results of {_describe_run(earlier)}: use another --out, or replace them with "
                    "--overwrite"
                    + (f", or continue with --checkpoint {earlier['checkpoint']}" if earlier.get("checkpoint") else "")
                )
            self._artifacts = []
            if isinstance(folder, Path):
                for name in (earlier or {}).get("made", ()):
                    _remove_artifact(folder, str(name))
                self._artifacts = [name for name in artifacts if not (folder / name).exists()]
            begun = datetime.now(UTC).isoformat(timespec="seconds")
            self._manifest = {"run": dict(run), "begun": begun, "checkpoint": checkpoint_path}
            self._write(self._manifest)
        except ConnectorError:
            raise
        except OSError as error:
            raise ConfigError(f"--out must be a writable folder, got {str(folder)!r}: {error}") from None

    def add(self, streams: Iterable[str]) -> None:
        """Record that the run writes folders for these streams."""
        if isinstance(self._folder, Path) and (not self.continued or self._changed):
            self._artifacts += [name for name in sorted(streams) if not (self._folder / name).exists()]
            self._write(self._manifest)

    def _earlier(self) -> dict[str, Any] | None:
        """Return the manifest of the run whose results are here, if any."""
        return _manifest(self._folder)

    def _check_continued(
        self,
        earlier: dict[str, Any] | None,
        run: Mapping[str, Any],
        checkpoint: str | None,
        overwrite: bool,
        changeable: Container[str],
    ) -> None:
        if overwrite:
            raise ConfigError(
                f"--checkpoint {checkpoint} holds a run to continue, and --overwrite starts a new one: leave out "
                "--overwrite, or use a new --checkpoint"
            )
        if earlier is None or earlier.get("checkpoint") != checkpoint:
            content = "no results of a run" if earlier is None else f"the results of {_describe_run(earlier)}"
            raise ConfigError(
                f"--checkpoint {checkpoint} holds a run to continue, but {self._folder} holds {content}: "
                "use that run's --out, or a new --checkpoint"
            )
        for name in sorted({*run, *earlier["run"]}):
            then, now = earlier["run"].get(name), run.get(name)
            if then != now and name not in changeable:
                raise ConfigError(
                    f"--checkpoint {checkpoint} holds a run with {name} {then!r}, got {now!r}: "
                    "continue with the same options, or use a new --checkpoint"
                    + ("; or --restart compatible keeps the state of unchanged steps" * (name in CHANGEABLE))
                )

    def _write(self, manifest: dict[str, Any]) -> None:
        data = json.dumps({**manifest, "made": self._artifacts}, indent=1).encode()
        path = self._folder / MANIFEST
        if isinstance(path, Address):
            path.write(data)
        else:
            write_atomic(path, data)


def earlier_runner(folder: Path | Address, checkpoint: Path | Address) -> str | None:
    """Return the runner of the run that a checkpoint continues; None if there is none to continue."""
    try:
        earlier = _manifest(folder) if _is_nonempty_folder(checkpoint) else None
    except OSError:  # the run says what is wrong
        return None
    return None if earlier is None else earlier["run"].get("runner")


def _manifest(folder: Path | Address) -> dict[str, Any] | None:
    path = folder / MANIFEST
    data = path.read() if isinstance(path, Address) else path.read_bytes() if path.exists() else None
    if data is None:
        return None
    try:
        manifest = json.loads(data)
        if (
            isinstance(manifest, dict)
            and isinstance(manifest.get("run"), dict)
            and isinstance(manifest.get("made"), list)
        ):
            return manifest
    except ValueError:
        pass
    raise ConfigError(f"{path} was not written by riot-ops run: use another --out")


def _is_nonempty_folder(folder: Path | Address) -> bool:
    if isinstance(folder, Address):
        return bool(folder.files())
    return folder.is_dir() and any(folder.iterdir())


def _describe_run(manifest: Mapping[str, Any]) -> str:
    run = manifest["run"]
    return f"{run.get('application')} over {run.get('input')} of {manifest.get('begun')}"


def _remove_artifact(folder: Path, name: str) -> None:
    path = folder / name
    if path.parent != folder or path.name in ("", ".."):
        raise ConfigError(f"{folder / MANIFEST} names {name!r}, which no run writes: remove the results yourself")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
