"""The description at /openapi.json names what is routed, parsed and answered, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pagefence.engine.api.app import ENDPOINTS
from pagefence.engine.api.description import describe
from pagefence.engine.api.parameters import NEUTRAL, ChatRequest, CompletionRequest, TokenizeRequest

from .scripted import MODEL, Running, anybody


@pytest.fixture
def described(fleet: Running) -> dict[str, Any]:
    answer = anybody.get(f"{fleet.url}/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    document: dict[str, Any] = answer.json()
    return document


def test_it_is_served_without_a_key_and_describes_every_path_that_is_routed(described: dict[str, Any]) -> None:
    assert described["openapi"] == "3.1.0"
    assert set(described["paths"]) == {endpoint.described_path for endpoint in ENDPOINTS}
    assert "/v1/models/{name}" in described["paths"]


@pytest.mark.parametrize("request_type", [CompletionRequest, ChatRequest, TokenizeRequest])
def test_a_request_has_the_parsers_fields_and_the_neutral_ones_and_no_other(
    described: dict[str, Any], request_type: type[msgspec.Struct]
) -> None:
    schema = described["components"]["schemas"][request_type.__name__]
    assert set(schema["properties"]) == {*request_type.__struct_fields__, *NEUTRAL.get(request_type, {})}
    assert schema["additionalProperties"] is False


def test_a_neutral_parameter_is_described_with_the_values_that_are_accepted(described: dict[str, Any]) -> None:
    properties = described["components"]["schemas"]["ChatRequest"]["properties"]
    assert properties["tool_choice"]["enum"] == ["none", "auto", None]


def test_the_one_model_is_named(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert schemas["ChatRequest"]["properties"]["model"] == {"enum": [MODEL]}
    assert schemas["TokenizeRequest"]["properties"]["model"] == {"enum": [MODEL, None]}


def test_a_key_is_asked_for_exactly_where_there_is_one_to_ask_for(described: dict[str, Any]) -> None:
    for endpoint in ENDPOINTS:
        operation = described["paths"][endpoint.described_path][endpoint.method.lower()]
        assert ("security" in operation) == ("401" in operation["responses"]) == endpoint.keyed
    without = describe(ENDPOINTS, MODEL, open_access=True)
    assert "bearer" not in msgspec.json.encode(without).decode()


def test_what_is_described_as_keyed_is_refused_without_a_key(described: dict[str, Any], fleet: Running) -> None:
    for endpoint in ENDPOINTS:
        answer = anybody.request(endpoint.method, fleet.url + endpoint.described_path)
        assert (answer.status_code == 401) == endpoint.keyed
