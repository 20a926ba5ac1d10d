"""What engines that could not be run here answer to an over-length prompt, written after their sources."""

from __future__ import annotations

import pytest

from pagefence.fleet.answer import Answer, decode_json, read_error


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(
            400,
            '{"object":"error","message":"The sum of prompt length (1500.0), query length (0) should not exceed '
            'max_num_tokens (1024)","type":"BadRequestError","param":null,"code":400}',
            id="tensorrt-llm",
        ),
        pytest.param(
            422,
            '{"error":"Input validation error: `inputs` must have less than 1024 tokens. Given: 1500",'
            '"error_type":"validation"}',
            id="tgi, prompt",
        ),
        pytest.param(
            422,
            '{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1024. Given: 1020 '
            '`inputs` tokens and 8 `max_new_tokens`","error_type":"validation"}',
            id="tgi, prompt and answer",
        ),
        pytest.param(
            400,
            '{"object":"error","message":"The request exceeds the model context length.",'
            '"type":"invalid_request_error","code":400,"param":null}',
            id="lmdeploy",
        ),
        pytest.param(
            400,
            '{"error":{"message":"request (8889 tokens) exceeds the available context size (4096 tokens), try '
            'increasing it","type":"invalid_request_error","param":null,"code":null}}',
            id="ollama",
        ),
        pytest.param(
            400,
            '{"error":{"message":"This model\'s maximum context length is 8192 tokens. However, you requested 9000 '
            'tokens.","type":"invalid_request_error","code":400}}',
            id="dynamo",
        ),
    ],
)
def test_a_refusal_for_length_is_read_as_one(status: int, body: str) -> None:
    assert Answer(status, error=read_error(decode_json(body.encode()))).refused_as_too_long
