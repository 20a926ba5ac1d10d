"""fleet.toml: what it says becomes a target; what it should not say is refused by file, table and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagefence.fleet.fleet_file import read_fleet_file
from pagefence.mistakes import Usage
from pagefence.options import build

WHOLE = """
disaggregated = true
headroom = 1.5
edge_limit = 8000
timeout = 30
retries = 0
proxy = "http://proxy:3128"
[router]
url = "https://router.example/v1/"
[[prefill]]
url = "https://p0.example"
pool = 680000
[[decode]]
url = "https://d0.example"
[[worker]]
url = "https://w0.example"
[tls]
ca = "ca.pem"
certificate = "/etc/me.pem"
[declared]
context = 262144
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


def test_what_a_file_says_becomes_a_target(tmp_path: Path) -> None:
    said = read_fleet_file(written(tmp_path, WHOLE))
    target = said.target
    assert (target.router, target.prefill, target.decode, target.workers) == (
        "https://router.example",
        ("https://p0.example",),
        ("https://d0.example",),
        ("https://w0.example",),
    )
    assert target.declared == {"": {"context": 262144}, "https://p0.example": {"pool": 680000}}
    assert (target.tls.ca, target.tls.certificate, target.tls.key) == (tmp_path / "ca.pem", Path("/etc/me.pem"), None)
    assert (target.proxy, target.retries, target.disaggregated) == ("http://proxy:3128", 0, True)
    assert (said.headroom, said.edge_limit, said.timeout_s) == (1.5, 8000, 30)


def test_flags_win_where_both_speak(tmp_path: Path) -> None:
    text = WHOLE.replace("[tls]", "").replace('ca = "ca.pem"', "").replace('certificate = "/etc/me.pem"', "")
    given = {"fleet": written(tmp_path, text), "headroom": 2.0, "retries": 3, "declare": ["pool=5"], "edge_limit": 9}
    options = build("gate", ("gate",), given, {})
    assert (options.headroom, options.edge_limit, options.timeout_s) == (2.0, 9, 30)
    assert options.target is not None
    assert options.target.retries == 3
    assert options.target.declared == {"": {"context": 262144, "pool": 5}, "https://p0.example": {"pool": 5}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no node"),
        ("[router", "is no TOML"),
        ("[router]\nurl = 5", "[router], url"),
        ("[router]\nuri = 'http://a'", "[router]: "),
        ("[router]\nuri = 'http://a'", "uri"),
        ("[[prefill]]\nurl = 'http://a'\n[[prefill]]\nurl = 'http://b'\npools = 5", "[[prefill]] number 2: "),
        ("[[prefill]]\nurl = 'http://a'\n[[prefill]]\nurl = 'http://b'\npools = 5", "pools"),
        ("[[prefill]]\nurl = 'http://a'\npool = 0", "[[prefill]] number 1, pool"),
        ("[[prefill]]\nurl = 'http://a'\npool = true", "[[prefill]] number 1, pool"),
        ("[[prefill]]\nurl = 'http://a'\npool = '5'", "[[prefill]] number 1, pool"),
        ("[[prefill]]\nurl = 'http://a'\n[[decode]]\nurl = 'http://a/'", "named twice"),
        ("[[prefill]]\npool = 5", "url"),
        ("[prefill]\nurl = 'http://a'", "prefill"),
        ("headrom = 2\n[router]\nurl = 'http://a'", "headrom"),
        ("headroom = 0.5\n[router]\nurl = 'http://a'", "headroom"),
        ("headroom = nan\n[router]\nurl = 'http://a'", "headroom"),
        ("timeout = inf\n[router]\nurl = 'http://a'", "timeout"),
        ("retries = 99\n[router]\nurl = 'http://a'", "retries"),
        ("edge_limit = 0\n[router]\nurl = 'http://a'", "edge_limit"),
        ("proxy = 'proxy'\n[router]\nurl = 'http://a'", "http://HOST:PORT"),
        ("[router]\nurl = 'a'", "http://HOST:PORT"),
        ("disaggregated = false\n[[prefill]]\nurl = 'http://a'", "[[worker]]"),
        ("[declared]\nranks = 3\n[router]\nurl = 'http://a'", "[declared]: "),
    ],
)
def test_each_mistake_names_file_table_and_key(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(Usage) as caught:
        read_fleet_file(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "$" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[router]\nurl = 'http://a'\napi_key = 'sesame'", "[router] api_key"),
        ("key_a = 'sesame'", "key_a"),
        ("PAGEFENCE_KEY_A = 'sesame'", "PAGEFENCE_KEY_A"),
        ("[[prefill]]\nurl = 'http://a'\n[prefill.headers]\nAuthorization = 'sesame'", "Authorization"),
        ("[keys]\na = 'sesame'", "keys"),
        ("[tls]\nkey = '''-----BEGIN PRIVATE KEY-----\nsesame'''\n[router]\nurl = 'http://a'", "[tls]"),
        ("proxy = 'http://me:sesame@proxy'\n[router]\nurl = 'http://a'", "HTTPS_PROXY"),
        ("[router]\nurl = 'http://me:sesame@a'", "PAGEFENCE_KEY_A"),
    ],
)
def test_a_key_in_the_file_is_refused_and_not_repeated(text: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(Usage) as caught:
        read_fleet_file(written(tmp_path, text))
    assert where in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_a_file_that_is_no_text_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Usage, match="is no TOML"):
        read_fleet_file(path)
    with pytest.raises(Usage, match="cannot read"):
        read_fleet_file(tmp_path)
