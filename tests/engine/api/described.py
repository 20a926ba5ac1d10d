"""Schemathesis reads the API's own description and looks for a request whose answer is not as described.

Run by `test_schemathesis.py`; alone: `python -m pytest -p schemathesis.pytest.plugin tests/engine/api/described.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig

from pagefence.engine.api.app import create_app
from pagefence.protocol import errors
from pagefence.protocol.messages import ErrorInfo

from .scripted import KEYS, MAX_BODY, ByteText, ByteTokenizer, ScriptedGateway, begin, emit, refuse, two_tenants
from .test_answers import CHAT, TEXT, path_of

CONFIG = SchemathesisConfig.from_path(Path(__file__).parents[3] / "schemathesis.toml")
OUTCOMES = (
    errors.overloaded("too many requests"),
    errors.unavailable("the worker died", "worker_lost"),
    errors.timed_out("too slow"),
    errors.contained("frame_mismatch", "1 of 8 pages", "I1", "page-frames"),
)
# What the description says of names and of what must be there holds for everything that it lets pass.
NEVER_OF_GOOD_DATA = {"unknown_parameter", "missing_required_parameter", "invalid_json", "forbidden_parameter"}


GATEWAY = ScriptedGateway()
APP = create_app(GATEWAY, ByteTokenizer(), two_tenants(), ByteText, MAX_BODY)
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP, config=CONFIG)
ANN = {"Authorization": f"Bearer {KEYS['ann']}"}


@SCHEMA.parametrize()
@settings(max_examples=12, derandomize=True, deadline=None, database=None)
def test_every_answer_is_as_described_and_wrong_input_is_a_clients_error(case: schemathesis.Case[Any]) -> None:
    answer = case.call_and_validate(headers=ANN)
    if case.meta is not None and case.meta.generation.mode.is_positive and answer.status_code == 400:
        assert answer.json()["error"]["code"] not in NEVER_OF_GOOD_DATA


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("error", OUTCOMES, ids=[error.code for error in OUTCOMES])
@pytest.mark.parametrize("body", [TEXT, CHAT], ids=["text", "chat"])
def test_every_error_of_the_fleet_is_as_described(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], error: ErrorInfo, late: bool
) -> None:
    monkeypatch.setattr(GATEWAY, "script", lambda job: [*([begin()] if late else []), refuse(error)])
    assert as_described(body, ANN) == error.status


def test_a_fleet_that_is_not_ready_a_missing_key_and_a_large_body_are_as_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert as_described(TEXT, {}) == 401
    assert as_described({**TEXT, "prompt": "x" * MAX_BODY}, ANN) == 413
    monkeypatch.setattr(GATEWAY, "why_not", ("too small",))
    assert as_described(TEXT, ANN) == 503
    assert SCHEMA["/readyz"]["GET"].Case().call_and_validate(excluded_checks=[not_a_server_error]).status_code == 503


@pytest.mark.parametrize("body", [TEXT, CHAT], ids=["text", "chat"])
def test_every_event_of_a_stream_is_as_described_an_error_too(
    monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    scores = {"logprobs": 3} if body is TEXT else {"logprobs": True, "top_logprobs": 3}
    body = {**body, "n": 2, "stream": True, "stream_options": {"include_usage": True}, **scores}
    assert as_described(body, ANN) == 200
    monkeypatch.setattr(GATEWAY, "script", lambda job: [begin(), emit("a", 3), refuse(OUTCOMES[-1])])
    assert as_described(body, ANN) == 200


def as_described(body: dict[str, Any], headers: dict[str, str]) -> int:
    """The status of an answer that is as the description says of that status."""
    case = SCHEMA[path_of(body)]["POST"].Case(body=body, media_type="application/json")
    answer = case.call(headers=headers)
    case.validate_response(answer, headers=headers, excluded_checks=[not_a_server_error])
    return answer.status_code
