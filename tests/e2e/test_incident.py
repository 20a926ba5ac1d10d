"""The incident, switched on in the real engine: the leak is real without guards, and each guard alone contains it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.fleets import KEY_A, KEY_B, Fleet, complete, serving

PLANTED = "The secret words are harbor velvet candle orchard.\n"
OWN = "The secret words are winter copper meadow signal.\n"
LONGEST_HONEST = 1024  # prefill's pool in the incident's world


def lab(guards: str) -> tuple[str, ...]:
    return ("-m", "pagefence.lab.fleet", "--fault", "stub-transfer", "--guards", guards)


def tokens(client: httpx.Client, line: str, count: int) -> list[int]:
    """`count` tokens of one line again and again."""
    answer = client.post("/tokenize", json={"prompt": line * (count // 6)}).json()
    ids: list[int] = answer["tokens"][:count]
    assert len(ids) == count
    return ids


def plant(fleet: Fleet) -> None:
    """Tenant A leaves its words in the pages that decode will let again first."""
    with fleet.client(KEY_A) as tenant:
        answer = complete(tenant, tokens(tenant, PLANTED, LONGEST_HONEST), 8)
    assert answer.status_code == 200
    assert "harbor velvet candle" in answer.json()["choices"][0]["text"], "the positive control failed"


def read(fleet: Fleet, **more: object) -> httpx.Response:
    """Tenant B asks just over prefill's pool."""
    with fleet.client(KEY_B) as tenant:
        return complete(tenant, tokens(tenant, OWN, LONGEST_HONEST + 1), 24, **more)


@pytest.fixture(params=[pytest.param(guards, marks=pytest.mark.slow) for guards in ("on", "no-handoff-check")])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Fleet]]:
    guards = str(request.param)
    with serving(tmp_path_factory.mktemp("lab"), command=lab(guards)) as fleet:
        yield guards, fleet


def test_without_guards_the_stub_is_answered_as_if_it_were_the_prompt(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("lab"), command=lab("off")) as fleet:
        plant(fleet)
        before = fleet.worker_info("prefill")["computed_tokens"]
        answer = read(fleet)
        assert answer.status_code == 200
        assert answer.json()["usage"]["prompt_tokens"] == LONGEST_HONEST + 1
        assert "winter copper meadow" not in answer.json()["choices"][0]["text"]
        # The incident's plainest mark: prefill says 1, decode says 1,025.
        assert fleet.worker_info("prefill")["computed_tokens"] == before + 1


def test_a_guard_contains_it_before_any_byte(guarded: tuple[str, Fleet]) -> None:
    guards, fleet = guarded
    plant(fleet)
    for stream in (False, True):
        answer = read(fleet, stream=stream)
        assert answer.status_code == 500
        error = answer.json()["error"]
        if guards == "on":
            assert (error["rule"], error["guard"]) == ("I4", "handoff-check")
            assert "reserved 1025, received 1" in error["message"]
        else:
            assert (error["rule"], error["guard"]) == ("I1", "page-frames")
            assert "page " in error["message"]
    with fleet.client(KEY_B) as tenant:
        honest = complete(tenant, tokens(tenant, OWN, 200), 8)
    assert "winter copper meadow" in honest.json()["choices"][0]["text"], "the fleet did not go on"
    fleet.at_rest(60)


@pytest.mark.slow
def test_a_page_that_names_another_owner_is_refused_and_kept_out_of_use(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with serving(tmp_path_factory.mktemp("lab"), command=lab("no-handoff-check,no-zero-on-lease")) as fleet:
        plant(fleet)
        error = read(fleet).json()["error"]
        assert error["guard"] == "page-frames"
        assert "another room" in error["message"]
        # Who wrote it is not known, so nothing short of reaping prefill proves that it cannot happen again.
        assert fleet.worker_info("decode")["pages"]["quarantined"] > 0
        refused = read(fleet)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "quarantine")
