"""Flags and edge.toml: what they mean, and one clear line for what they cannot mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagefence.edge.command import settings
from pagefence.edge.edge_file import read_edge_file
from pagefence.edge.settings import Settings
from pagefence.edge.upstream.address import parse
from pagefence.mistakes import Usage


def file(folder: Path, text: str) -> Path:
    path = folder / "edge.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_upstream_is_enough(tmp_path: Path) -> None:
    by_flag = settings(["http://a:1"], None, None, None, None, None)
    by_file = read_edge_file(file(tmp_path, '[upstream]\nurls = ["http://a:1"]'), {})
    assert by_flag == by_file == Settings((parse("http://a:1"),))


def test_every_name_of_the_file_is_read(tmp_path: Path) -> None:
    text = """
        models = ["m"]
        [listen]
        host = "::1"
        port = 1
        workers = 2
        connections = 3
        metrics = false
        [upstream]
        urls = ["https://a"]
        ca = "ca.pem"
        client_cert = "c.pem"
        client_key = "k.pem"
        key_env = "KEY"
        connections = 4
        keep = 5
        timeouts = { connect = 6, first_byte = 7, idle = 8, total = 9 }
        health = { path = "/h", every = 10, timeout = 11, failures = 12, out = 13, longest = 14 }
        [limits]
        head_bytes = 2048
        body_bytes = 16
        bodies_bytes = 17
        answer_bytes = 18
        requests = 19
        tenant_requests = 20
        head = 21
        body = 22
        idle = 23
        write = 24
        [cors]
        origins = ["https://b"]
        max_age = 25
        [drain]
        delay = 26
        seconds = 27
        [log]
        requests = false
        [policy]
        unknown = "strip"
    """
    found = read_edge_file(file(tmp_path, text), {"KEY": "k"})
    assert (found.host, found.port, found.workers, found.metrics, found.models) == ("::1", 1, 2, False, ("m",))
    front = found.front
    assert (front.connections, front.head_bytes, front.body_bytes, front.bodies_bytes) == (3, 2048, 16, 17)
    assert (front.head_s, front.body_s, front.idle_s, front.write_s) == (21, 22, 23, 24)
    assert (found.answer_bytes, found.requests, found.tenant_requests) == (18, 19, 20)
    assert (found.tls.ca, found.tls.certificate) == (tmp_path / "ca.pem", tmp_path / "c.pem")
    assert (found.upstream_connections, found.upstream_keep_s, found.authorization) == (4, 5, "Bearer k")
    times = found.timeouts
    assert (times.connect_s, times.first_byte_s, times.idle_s, times.total_s) == (6, 7, 8, 9)
    health = found.health
    assert (health.path, health.every_s, health.timeout_s, health.failures) == ("/h", 10, 11, 12)
    assert (health.out_s, health.longest_s) == (13, 14)
    assert (found.cors.origins, found.cors.max_age_s) == (("https://b",), 25)
    assert (found.delay_s, found.drain_s, found.log_requests) == (26, 27, False)
    assert found.tables == {"policy": {"unknown": "strip"}}
    assert "Bearer k" not in repr(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "upstream"),
        ("[upstream]\nurls = []", "stands in front of something"),
        ('[upstream]\nurls = ["http://a", "http://a"]', "named twice"),
        ('[upstream]\nurls = ["a:1"]', "no address of an upstream"),
        ('[upstream]\nurls = ["http://u:secret@a"]', "no address of an upstream"),
        ('[upstream]\nurls = ["http://a"]\nkey_env = "NOT_THERE"', "NOT_THERE"),
        ('[upstream]\nurls = ["http://a"]\ncolour = 1', "unknown field `colour`"),
        ('[upstream]\nurls = ["http://a"]\ntimeouts = { idle = -1 }', "upstream.timeouts.idle"),
        ('[upstream]\nurls = ["http://a"]\ntimeouts = { idle = nan }', "upstream.timeouts.idle"),
        ('[upstream]\nurls = ["http://a"]\n[listen]\nport = 70000', "listen.port"),
        ('[upstream]\nurls = ["http://a"]\n[cors]\norigins = ["b.example"]', "no origin"),
        ('policy = 1\n[upstream]\nurls = ["http://a"]', "write [policy]"),
        ("[upstream", "no TOML"),
    ],
)
def test_what_cannot_be_is_one_line_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Usage) as error:
        read_edge_file(file(tmp_path, text), {})
    assert words in str(error.value)
    assert "\n" not in str(error.value).strip()
    assert "secret" not in str(error.value)


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = file(tmp_path, '[upstream]\nurls = ["http://a"]\n[listen]\nport = 1')
    found = settings(["http://b"], path, None, 2, 3, None)
    assert (found.upstreams[0].host, found.port, found.workers) == ("b", 2, 3)


def test_without_an_upstream_it_says_what_is_missing() -> None:
    with pytest.raises(Usage, match="--upstream"):
        settings(None, None, None, None, None, None)


def test_what_needs_a_restart_is_known() -> None:
    old = settings(["http://a"], None, None, None, None, None)
    assert old.needs_restart(settings(["http://b"], None, None, 1, None, None)) == ["port"]
