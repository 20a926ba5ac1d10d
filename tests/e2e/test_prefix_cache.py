"""The prefix cache on a real model: the same tokens faster, for their own tenant only (I1, I6, I7)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from pagefence.engine.command import serve_app
from pagefence.engine.settings import Settings
from tests.e2e.fleets import KEY_A, KEY_B, Fleet, complete

TEXT = "A lighthouse keeper wrote in his book of the prefix cache, every evening and for thirty years. " * 9
PAGE = 64


def answer(client: httpx.Client, prompt: str, **more: Any) -> tuple[list[int], int, int]:
    """Token ids, prompt tokens, cached tokens."""
    body = complete(client, prompt, 16, return_token_ids=True, **more).json()
    usage = body["usage"]
    return body["choices"][0]["token_ids"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def test_the_same_prompt_again_computes_its_last_page_only_and_says_the_same(fleet: Fleet) -> None:
    before = fleet.worker_info("prefill")
    with fleet.client(KEY_A) as a, fleet.client(KEY_B) as b:
        first, tokens, none = answer(a, TEXT)
        again, _, cached = answer(a, TEXT)
        other, _, foreign = answer(b, TEXT)
        stream = complete(a, TEXT, 16, stream=True, stream_options={"include_usage": True})
    assert none == foreign == 0
    assert cached == (tokens - 1) // PAGE * PAGE >= 2 * PAGE
    assert first == again == other
    usage = json.loads(stream.text.split("data: ")[-2])["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": cached}
    after = fleet.worker_info("prefill")
    assert after["cached_tokens"] - before["cached_tokens"] == 2 * cached
    assert after["computed_tokens"] - before["computed_tokens"] == 4 * tokens - 2 * cached
    assert after["prefix_cache"] is True
    assert fleet.worker_info("decode")["prefix_cache"] is False
    pages = fleet.at_rest()
    assert pages["prefill-0"]["cached"] >= 2 * (tokens // PAGE)
    assert pages["decode-0"]["cached"] == 0
    for counts in pages.values():
        assert counts["free"] + counts["cached"] + counts["retired"] == counts["total"]


@pytest.mark.parametrize(("flags", "cached"), [([], True), (["--no-prefix-cache"], False)])
def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch, flags: list[str], cached: bool) -> None:
    seen: list[Settings] = []
    monkeypatch.delenv("PAGEFENCE_API_KEYS", raising=False)

    def serve(settings: Settings, *_: object) -> int:
        seen.append(settings)
        return 0

    monkeypatch.setattr("pagefence.engine.serve.serve", serve)
    CliRunner().invoke(serve_app, ["--open", *flags])
    assert [settings.prefix_cache for settings in seen] == [cached]
