"""Who is asking (I7): keys to tenants, tenants to isolation keys."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from pagefence.engine.api.tenants import is_loopback, load_tenants, open_tenants, tenants_from

from .scripted import KEYS, Running, ScriptedGateway, anybody, running

ASK = {"model": "scripted-1", "prompt": "hello"}
NEEDS_KEY = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/tokenize"),
    ("GET", "/v1/models"),
]


@pytest.mark.parametrize(("method", "path"), NEEDS_KEY)
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "Bearer wrong")],
        [("Authorization", "Bearer")],
        [("Authorization", KEYS["ann"])],
        [("Authorization", f"Basic {KEYS['ann']}")],
        [("Authorization", f"Bearer {KEYS['ann']}"), ("Authorization", f"Bearer {KEYS['bob']}")],
    ],
)
def test_without_its_own_key_nobody_gets_in(
    fleet: Running, ann: httpx.Client, method: str, path: str, headers: list[tuple[str, str]]
) -> None:
    request = ann.build_request(method, path, json=ASK if method == "POST" else None)
    del request.headers["Authorization"]
    request.headers = httpx.Headers([*request.headers.multi_items(), *headers])
    answer = ann.send(request)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert not fleet.gateway.jobs


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz", "/metrics", "/server_info", "/get_server_info"])
def test_operators_need_no_key(fleet: Running, path: str) -> None:
    assert anybody.get(fleet.url + path).status_code == 200


def test_tenants_have_different_isolation_keys_and_each_always_its_own(fleet: Running) -> None:
    for tenant in ("ann", "bob", "ann"):
        anybody.post(f"{fleet.url}/v1/completions", headers={"Authorization": f"bearer {KEYS[tenant]}"}, json=ASK)
    first, second, third = (job.isolation_key for job in fleet.gateway.jobs)
    assert first == third != second
    assert "ann" not in first


def test_two_keys_of_a_tenant_are_one_tenant_and_the_secret_matters() -> None:
    tenants = tenants_from(["ann=k1", "ann=k2", "bob=k3"], b"s")
    assert tenants.isolation_key(b"k1") == tenants.isolation_key(b"k2") != tenants.isolation_key(b"k3")
    assert tenants.isolation_key(b"k1") != tenants_from(["ann=k1"], b"other").isolation_key(b"k1")
    assert tenants.isolation_key(b"k4") is None


def test_keys_are_not_kept_or_shown() -> None:
    assert "top-secret" not in repr(tenants_from(["ann=top-secret"]))
    with pytest.raises(ValueError, match="entry 2 is the key of another tenant, too") as error:
        tenants_from(["ann=top-secret", "bob=top-secret"])
    assert "top-secret" not in str(error.value)


@pytest.mark.parametrize("entry", ["ann", "=key", "ann=", " = "])
def test_a_broken_entry_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="entry 1"):
        tenants_from([entry])


def test_keys_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# staff\nbob = k=2,3\n\n")
    tenants = load_tenants({"PAGEFENCE_API_KEYS": "ann=k1, cid=k9"}, file=file)
    assert all(tenants.isolation_key(key) for key in (b"k1", b"k9", b"k=2,3"))


def test_open_access_is_asked_for_by_name_and_stays_on_loopback() -> None:
    with pytest.raises(ValueError, match="no API keys"):
        load_tenants({})
    with pytest.raises(ValueError, match="loopback only"):
        load_tenants({}, open_access=True, host="0.0.0.0")
    with pytest.raises(ValueError, match="would ignore"):
        load_tenants({"PAGEFENCE_API_KEYS": "ann=k"}, open_access=True)
    assert load_tenants({}, open_access=True, host="::1").isolation_key(None)
    assert is_loopback("localhost")
    assert not is_loopback("example.org")


def test_an_open_server_answers_with_any_key_or_none() -> None:
    with running(ScriptedGateway(), open_tenants()) as fleet:
        assert anybody.post(f"{fleet.url}/v1/completions", json=ASK).status_code == 200
        headers = {"Authorization": "Bearer whatever"}
        assert anybody.post(f"{fleet.url}/v1/completions", json=ASK, headers=headers).status_code == 200
        assert len({job.isolation_key for job in fleet.gateway.jobs}) == 1
