"""`watch.toml`: what it says is what is watched, and what it should not say is told in one line without quoting it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from pagefence.cli import app
from pagefence.mistakes import Usage
from pagefence.probes.sentinel_file import SentinelFile
from pagefence.run import run
from pagefence.watch.config import GATE, VERIFY, Settings
from pagefence.watch.config_file import __doc__ as EXAMPLE
from pagefence.watch.config_file import read_watch_file

SHORT = '[[target]]\nname = "eu"\nurl = "http://router:8000"\n'


def read(folder: Path, text: str, **environment: str) -> Settings:
    (folder / "watch.toml").write_text(text)
    return read_watch_file(folder / "watch.toml", environment)


def test_three_lines_are_enough(tmp_path: Path) -> None:
    settings = read(tmp_path, SHORT, PAGEFENCE_KEY_A="a", PAGEFENCE_KEY_B="b")
    (eu,) = settings.targets
    assert eu.modules == (GATE, VERIFY)
    assert eu.keys.two
    assert eu.allowance.rate > eu.asked_for
    assert settings.state == tmp_path / "watch.db"
    assert settings.host == "127.0.0.1"


def test_the_example_in_its_documentation_is_one(tmp_path: Path) -> None:
    assert EXAMPLE is not None
    text = dedent(EXAMPLE.partition("\n")[2])  # Python 3.13 takes the indentation off itself
    (tmp_path / "fleet.toml").write_text(
        'headroom = 1.5\n[router]\nurl = "http://r:1"\n[[prefill]]\nurl = "http://p:1"\n'
    )
    (tmp_path / "eu.env").write_text("PAGEFENCE_KEY_A=one\nPAGEFENCE_KEY_B=two\n")
    settings = read(tmp_path, text.replace("/etc/pagefence/eu.env", "eu.env"))
    (eu,) = settings.targets
    assert eu.target.prefill == ("http://p:1",)
    assert (eu.policy.headroom, eu.policy.inside) == (1.5, True)
    assert (eu.keys.a, eu.keys.b) == ("one", "two")
    assert (eu.allowance.tokens, eu.allowance.burst) == (240_000, 40_000)


def test_planted_words_go_where_the_target_says_under_the_names_that_it_says(tmp_path: Path) -> None:
    text = SHORT + 'sentinels = "live.json"\ntenant_b = "globex"\n' + SHORT.replace("eu", "us")
    eu, us = read(tmp_path, text).targets
    assert eu.sentinels == SentinelFile(tmp_path / "live.json", ("canary-a", "globex"))
    assert us.sentinels is None


def test_flags_say_the_same_for_the_one_fleet_of_a_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Settings] = []

    def watch(settings: Settings, *_: object) -> int:
        begun.append(settings)
        return 0

    monkeypatch.setattr("pagefence.watch.command.watch", watch)
    path = tmp_path / "live.json"
    flags = ["--sentinels", str(path), "--tenant-b", "globex"]
    assert run(app, ["watch", "http://router:8000", *flags]) == 0
    assert begun.pop().targets[0].sentinels == SentinelFile(path, ("canary-a", "globex"))
    path.write_text("something else")
    assert run(app, ["watch", "http://router:8000", *flags]) == 2
    assert "holds no sentinels" in capsys.readouterr().err
    (tmp_path / "watch.toml").write_text(SHORT)
    assert run(app, ["watch", "--config", str(tmp_path / "watch.toml"), *flags]) == 2
    assert "--sentinels cannot go with --config" in capsys.readouterr().err
    assert begun == []


def test_each_target_has_keys_of_its_own(tmp_path: Path) -> None:
    text = SHORT + 'keys_env = "EU"\n' + SHORT.replace("eu", "us")
    eu, us = read(tmp_path, text, EU_A="1", EU_B="2", PAGEFENCE_KEY_A="3").targets
    assert (eu.keys.a, eu.keys.b, us.keys.a, us.keys.b) == ("1", "2", "3", None)
    assert "1" not in repr(eu.keys)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "target"),
        ("nonsense", "no TOML"),
        (SHORT + SHORT, "two targets are called eu"),
        (SHORT.replace("eu", "E u"), "no name of a target"),
        (SHORT + 'fleet = "f.toml"', "needs a url or a fleet file"),
        (SHORT + 'modules = ["nightly"]', "there are gate, verify"),
        (SHORT + "modules = []", "no module"),
        (SHORT + "[module.x]\nprobes = ['gate', 'exfiltrate']", "there are gate, "),
        (SHORT + "[module.x]\nprobes = []", "needs probes"),
        (SHORT + "[module.x]\nprobes = ['gate']\nevery = 0.2", "no period"),
        (SHORT + "[module.x]\nprobes = ['gate']\njitter = 0.9", "no part of a period"),
        (SHORT + "[module.x]\nprobes = ['canary']\ntokens = 0", "needs tokens"),
        (SHORT + "[module.x]\nprobes = ['gate']\ndeadline = nan", "no time to answer"),
        (SHORT + "budget = { tokens = 1000, burst = 10 }", "raise burst or lower"),
        (SHORT + "budget = { tokens = 100000, window = 0 }", "window of 0 seconds"),
        (SHORT + "speed = 9", "unknown field `speed`"),
        (SHORT.replace("router:8000", "user:hunter2@router"), "must hold no password"),
        (SHORT + 'keys_file = "none.env"', "cannot read the keys"),
        (SHORT + 'sentinels = "live.json"\ntenant_a = "canary-b"', "both tenants"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Usage) as error:
        read(tmp_path, text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("name", ["api_key", "token", "key_a", "password"])
def test_a_key_in_the_file_is_refused_and_not_quoted(tmp_path: Path, name: str) -> None:
    with pytest.raises(Usage, match="keys are never in this file") as error:
        read(tmp_path, SHORT + f'{name} = "sk-hunter2"')
    assert "hunter2" not in str(error.value)
