"""A key or a trusted proxy says whose request it is; neither key nor name leaves the edge."""

from __future__ import annotations

import ipaddress
import os
import re
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.edge.call import Tenant
from pagefence.edge.refusal import Refusal
from pagefence.edge.tenant_file import (
    ENV_KEYS,
    ENV_PROXY_SECRET,
    ENV_SECRET,
    load_tenants,
    read_identity,
    read_trusted_header,
)
from pagefence.edge.tenants import Identity, Tenants, TrustedHeader, bearer, hash_key, tenants_of
from pagefence.mistakes import Usage

IDENTITY = Identity(b"s" * 32)
KEY, OTHER, NEXT = (f"pf-a-key-of-these-tests-0123456789-{number}" for number in range(3))
PAIRS = [("acme", hash_key(KEY)), ("globex", hash_key(OTHER)), ("acme", hash_key(NEXT))]
PROXY = b"p" * 32
BY_PEER = TrustedHeader(b"x-tenant", peers=(ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")))
BY_SECRET = TrustedHeader(b"x-tenant", secrets=frozenset({sha256(PROXY).digest(), sha256(b"old" * 16).digest()}))
SHOWN = (b"X-Pagefence-Proxy-Secret", PROXY)


def keyed(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"Authorization", b"Bearer " + key.encode())]


def name_of(outcome: Tenant | Refusal) -> str | int:
    return outcome.name if isinstance(outcome, Tenant) else outcome.status


# --- keys ---------------------------------------------------------------------------------------------------------


def test_each_key_is_its_tenants_and_a_tenant_may_have_several() -> None:
    tenants = tenants_of(IDENTITY, PAIRS)
    assert [name_of(tenants.identify(keyed(key))) for key in (KEY, OTHER, NEXT)] == ["acme", "globex", "acme"]
    assert tenants.identify(keyed(KEY)) == tenants.identify(keyed(NEXT))


@pytest.mark.parametrize(
    "headers",
    [
        [],
        keyed(""),
        keyed(KEY + "x"),
        keyed(KEY[:-1]),
        keyed(hash_key(KEY)),
        keyed(KEY) + keyed(KEY),
        [(b"authorization", b"Basic " + KEY.encode())],
        [(b"authorization", KEY.encode())],
        [(b"x-api-key", KEY.encode())],
        keyed("x" * 100_000),
    ],
)
def test_whoever_has_no_key_is_refused_without_a_word_about_why(headers: list[tuple[bytes, bytes]]) -> None:
    refusal = tenants_of(IDENTITY, PAIRS).identify(headers)
    assert refusal == Refusal(401, "invalid_api_key", "Missing or incorrect API key.")


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=64))
def test_nothing_but_a_key_opens(shown: bytes) -> None:
    assert name_of(tenants_of(IDENTITY, PAIRS[:1]).identify([(b"authorization", b"bearer " + shown)])) == 401


def test_a_key_is_read_as_clients_write_it() -> None:
    assert bearer([(b"AUTHORIZATION", b" bEaReR   abc ")]) == b"abc"


def test_a_table_shows_neither_keys_nor_secrets() -> None:
    tenants = tenants_of(IDENTITY, PAIRS, BY_SECRET)
    text = repr(tenants) + repr(IDENTITY) + repr(BY_SECRET)
    assert not any(part in text for part in (KEY, OTHER, hash_key(KEY)[7:], "s" * 32, "acme"))


def test_hashes_in_one_table_say_nothing_about_another() -> None:
    one, two = tenants_of(IDENTITY, PAIRS), tenants_of(IDENTITY, PAIRS)
    assert not one.by_key.keys() & two.by_key.keys()


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("acme", KEY)], "is not hashed"),
        ([("acme", "sha256:" + "0" * 63)], "is not hashed"),
        ([("a/b", hash_key(KEY))], "name of the tenant"),
        ([("acme", hash_key(KEY)), ("globex", hash_key(KEY))], "key of another tenant"),
        ([], "nobody could ask"),
    ],
)
def test_a_mistake_in_a_table_is_told_without_quoting_it(pairs: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        tenants_of(IDENTITY, pairs)
    assert KEY not in str(error.value)


@pytest.mark.parametrize("key", ["short", "", "with blanks in between", "nön-ascii-letters-in-it", "x" * 600])
def test_a_key_that_could_be_guessed_or_not_be_sent_is_none(key: str) -> None:
    with pytest.raises(ValueError, match="a key"):
        hash_key(key)


# --- isolation keys -----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_isolation_keys_differ_as_tenants_do(one: str, two: str) -> None:
    a, b = (IDENTITY.tenant(name) for name in (one, two))
    assert (a.isolation_key == b.isolation_key) == (one == two)
    assert re.fullmatch(r"[0-9a-f]{64}", a.isolation_key)
    assert re.fullmatch(r"[0-9a-f]{16}", a.tag)
    assert not a.isolation_key.startswith(a.tag)


def test_without_the_secret_nothing_follows_from_a_name() -> None:
    assert Identity(b"t" * 32).tenant("acme").isolation_key != IDENTITY.tenant("acme").isolation_key


def test_the_secret_comes_from_file_or_environment_or_is_made_and_told(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("f" * 64 + "\n")
    assert read_identity({ENV_SECRET: "e" * 64}, file).secret == b"f" * 64
    assert read_identity({ENV_SECRET: "e" * 64}).secret == b"e" * 64
    made = read_identity({})
    assert made.made_here
    assert made.secret != read_identity({}).secret
    assert not read_identity({ENV_SECRET: "e" * 64}).made_here


@pytest.mark.parametrize("text", ["", "too short"])
def test_a_secret_that_could_be_guessed_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret").write_text(text)
    with pytest.raises(Usage, match="shorter than 32") as error:
        read_identity({}, tmp_path / "secret")
    assert text not in str(error.value) or not text


# --- a trusted proxy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "headers", "peer", "outcome"),
    [
        (BY_PEER, [(b"X-Tenant", b"initech")], "10.1.2.3", "initech"),
        (BY_PEER, [(b"X-Tenant", b"initech")], "::ffff:10.1.2.3", "initech"),
        (BY_PEER, [(b"X-Tenant", b"initech")], "fd00::1", "initech"),
        (BY_PEER, [(b"X-Tenant", b"initech")], "11.1.2.3", 403),
        (BY_PEER, [(b"X-Tenant", b"initech")], None, 403),
        (BY_PEER, [(b"X-Tenant", b"initech"), (b"x-forwarded-for", b"10.1.2.3")], "11.1.2.3", 403),
        (BY_PEER, keyed(KEY), "11.1.2.3", "acme"),
        (BY_PEER, [(b"X-Tenant", b"initech"), *keyed(KEY)], "11.1.2.3", 403),
        (BY_PEER, [(b"X-Tenant", b"initech"), *keyed(KEY)], "10.1.2.3", "initech"),
        (BY_PEER, [(b"X-Tenant", b"a"), (b"X-Tenant", b"b")], "10.1.2.3", 400),
        (BY_PEER, [(b"X-Tenant", b"")], "10.1.2.3", 400),
        (BY_PEER, [(b"X-Tenant", b"a,b")], "10.1.2.3", 400),
        (BY_PEER, [(b"X-Tenant", "ä".encode())], "10.1.2.3", 400),
        (BY_PEER, [], "10.1.2.3", 401),
        (BY_SECRET, [(b"X-Tenant", b"initech"), SHOWN], None, "initech"),
        (BY_SECRET, [(b"X-Tenant", b"initech"), (SHOWN[0], b"old" * 16)], None, "initech"),
        (BY_SECRET, [(b"X-Tenant", b"initech"), (SHOWN[0], PROXY + b"p")], None, 403),
        (BY_SECRET, [(b"X-Tenant", b"initech"), SHOWN, SHOWN], None, 403),
        (BY_SECRET, [(b"X-Tenant", b"initech")], "10.1.2.3", 403),
    ],
)
def test_a_tenants_name_is_taken_from_the_proxy_and_from_nobody_else(
    header: TrustedHeader, headers: list[tuple[bytes, bytes]], peer: str | None, outcome: str | int
) -> None:
    assert name_of(tenants_of(IDENTITY, PAIRS, header).identify(headers, peer)) == outcome


def test_secret_and_addresses_are_both_asked_for_where_both_are_declared() -> None:
    both = TrustedHeader(b"x-tenant", BY_SECRET.secrets, peers=BY_PEER.peers)
    tenants = tenants_of(IDENTITY, [], both)
    named = [(b"x-tenant", b"initech")]
    outcomes = [tenants.identify(h, p) for h, p in ((named, "10.1.1.1"), ([*named, SHOWN], "9.9.9.9"))]
    assert [name_of(outcome) for outcome in outcomes] == [403, 403]
    assert name_of(tenants.identify([*named, SHOWN], "10.1.1.1")) == "initech"


def test_a_header_that_anybody_could_send_is_not_to_be_had() -> None:
    with pytest.raises(ValueError, match="shared secret"):
        TrustedHeader(b"x-tenant")


def test_a_trusted_header_is_configured_by_addresses_and_by_secrets_of_the_environment() -> None:
    environment = {ENV_PROXY_SECRET: f"{PROXY.decode()}, {'o' * 32}"}
    header = read_trusted_header("X-Tenant", environment, ["10.0.0.0/8"])
    assert header.trusts([SHOWN], "10.9.9.9")
    assert header.trusts([(SHOWN[0], b"o" * 32)], "10.9.9.9")
    assert not header.trusts([SHOWN], "11.9.9.9")
    assert read_trusted_header("x-tenant", {}, ["::1"]).trusts([], "::1")


@pytest.mark.parametrize(
    ("secret", "peers", "said"),
    [("short", [], "shorter"), ("", [], "shared secret"), ("", ["10.0.0.1/8"], "peers"), ("", ["proxy"], "peers")],
)
def test_a_trusted_header_that_would_be_anybodys_is_refused(secret: str, peers: list[str], said: str) -> None:
    with pytest.raises(Usage, match=said):
        read_trusted_header("x-tenant", {ENV_PROXY_SECRET: secret}, peers)


def test_a_proxy_may_be_held_to_tenants_that_are_listed() -> None:
    tenants = tenants_of(IDENTITY, PAIRS, BY_PEER, listed=frozenset({"acme"}))
    asked = [tenants.identify([(b"x-tenant", name)], "10.0.0.1") for name in (b"acme", b"initech")]
    assert [name_of(outcome) for outcome in asked] == ["acme", 403]


# --- files --------------------------------------------------------------------------------------------------------


def load(path: Path, text: str, **environment: str) -> Tenants:
    path.write_text(text)
    return load_tenants(IDENTITY, environment, path)


def toml(*pairs: tuple[str, str]) -> str:
    return "".join(f'[tenant.{name}]\nkeys = ["{hash_key(key)}"]\n' for name, key in pairs)


def test_a_key_is_replaced_by_another_without_a_gap(tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    before = load(file, toml(("acme", KEY)))
    both = load(file, f'[tenant.acme]\nkeys = ["{hash_key(KEY)}", "{hash_key(NEXT)}"]\n')
    after = load(file, toml(("acme", NEXT)))
    opened = [[name_of(table.identify(keyed(key))) for key in (KEY, NEXT)] for table in (before, both, after)]
    assert opened == [["acme", 401], ["acme", "acme"], [401, "acme"]]


def test_the_environment_may_hold_keys_as_they_are_or_hashed(tmp_path: Path) -> None:
    tenants = load(tmp_path / "t", toml(("acme", KEY)), **{ENV_KEYS: f"globex={OTHER}, initech={hash_key(NEXT)},"})
    assert [name_of(tenants.identify(keyed(key))) for key in (KEY, OTHER, NEXT)] == ["acme", "globex", "initech"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'[tenant.acme]\nkeys = ["{KEY}"]', "not hashed"),
        (f"[tenant.acme]\nkeys = [{KEY}]", r"no TOML \(at line 2, column [0-9]+\)$"),
        (toml(("acme", KEY), ("acme", KEY)), r"no TOML \(at line [0-9]+, column [0-9]+\)$"),
        (f'[tenant.acme]\nkey = "{KEY}"', "unknown field `key`"),
        (toml(("acme", KEY), ("globex", KEY)), "another tenant"),
        ("[tenant]", "nobody could ask"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_quotes_no_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Usage, match=said) as error:
        load(tmp_path / "tenants.toml", text)
    assert KEY not in str(error.value)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("entries", ["acme", "=key", "acme=", "acme=short"])
def test_a_mistake_in_the_environment_names_the_entry(entries: str) -> None:
    with pytest.raises(Usage, match="entry 2"):
        load_tenants(IDENTITY, {ENV_KEYS: f"globex={OTHER},{entries}"})


def test_open_access_is_one_tenant_and_ignores_no_key() -> None:
    assert name_of(load_tenants(IDENTITY, {}, open_access=True).identify([])) == "default"
    with pytest.raises(Usage, match="would ignore"):
        load_tenants(IDENTITY, {ENV_KEYS: f"acme={KEY}"}, open_access=True)
    with pytest.raises(Usage, match="nobody could ask"):
        load_tenants(IDENTITY, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    file.touch(mode=0)
    with pytest.raises(Usage, match="cannot read"):
        load_tenants(IDENTITY, {}, file)
