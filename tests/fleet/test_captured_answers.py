"""What real engines answered to prompts around their limits is read for what it was."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from pagefence.fleet import Answer
from tests.fleet.replay import CAPTURED, HANG, Document, Stage, answers

REFUSED = "refused for its length, before any body byte"
BROKEN = "a stream that began with HTTP 200 and then refused for the length"
FAILED = "failed with HTTP 500"
FAILED_LATE = "a stream that began with HTTP 200 and then failed"
ANSWERED = "answered"
OTHER = "an answer of the engine's own API, which is none to /v1/completions"
SILENT = "no answer came"

# Folder and name of an answer: what it was. The first pattern that fits counts.
WHAT = (
    ("llama-server-b11434 over_1023_native_*", OTHER),
    ("llama-server-b11434 over_1023_*", ANSWERED),
    ("llama-server-b11434 over_1024_chat_*", ANSWERED),  # 922 tokens
    ("llama-server-b11434 over_*", REFUSED),
    ("sglang-0.5.23/single over_1017_completions_*", ANSWERED),
    ("sglang-0.5.23/single over_1017_native_*", OTHER),
    ("sglang-0.5.23/single over_2100_native_stream", BROKEN),
    ("sglang-0.5.23/single over_2100_*", REFUSED),
    ("sglang-0.5.23/single over_*_plain", REFUSED),
    ("sglang-0.5.23/single over_*_stream", BROKEN),
    ("sglang-0.5.23/pd-prefill over_1100_chat_*", SILENT),
    ("sglang-0.5.23/pd-prefill over_2100_completions_*", REFUSED),
    ("sglang-0.5.23/pd-prefill over_*_plain", REFUSED),
    ("sglang-0.5.23/pd-prefill over_*_stream", BROKEN),
    ("sglang-0.5.23/pd-decode over_2100_completions_*", REFUSED),
    ("sglang-0.5.23/pd-decode over_2100_chat_plain", FAILED),
    ("sglang-0.5.23/pd-decode over_2100_chat_stream", FAILED_LATE),
    ("sglang-0.5.23/pd-router over_*_plain.prefill-leg", REFUSED),
    ("sglang-0.5.23/pd-router over_*_stream.prefill-leg", BROKEN),
    ("sglang-0.5.23/pd-router over_*_plain", FAILED),
    ("sglang-0.5.23/pd-router over_*_stream", FAILED_LATE),
    ("vllm-0.32.0 over_*", REFUSED),
    ("vllm-0.32.0/pd-router over_1100_*", ANSWERED),  # within its limit of 2,048
    ("*/pd-router normal_*", ANSWERED),
)

CAPTURES = [
    (str(index.parent.relative_to(CAPTURED)), name, document)
    for index in sorted(CAPTURED.rglob("index.json"))
    for name, document in answers(str(index.parent.relative_to(CAPTURED))).items()
    if name.startswith(("over_", "normal_"))
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage().open() as opened:
        yield opened


def what(folder: str, name: str) -> str:
    return next(was for pattern, was in WHAT if fnmatch(f"{folder} {name}", pattern))


def read_as(answer: Answer) -> str:
    """What our client takes an answer for, by the properties that probes ask."""
    late = answer.status == 200 and answer.error is not None and not answer.answered and not answer.begun
    if answer.answered and answer.text and answer.prompt_tokens:
        return ANSWERED
    if answer.refused_as_too_long:
        return REFUSED
    if late and answer.error is not None:
        return BROKEN if answer.error.about_length else FAILED_LATE
    if answer.status == 500 and answer.error is not None and not answer.error.about_length:
        return FAILED
    if answer.status is None:
        return SILENT
    return OTHER if answer.problem is not None and answer.error is None else "read wrongly"


@pytest.mark.parametrize(
    ("folder", "name", "document"), CAPTURES, ids=[f"{folder} {name}" for folder, name, _ in CAPTURES]
)
def test_an_answer_is_read_for_what_it_was(stage: Stage, folder: str, name: str, document: Document) -> None:
    answer = stage.complete(document, stream="_stream" in name, timeout_s=0.5 if document == HANG else 10.0)
    assert read_as(answer) == what(folder, name)


def test_every_form_was_captured() -> None:
    assert {what(folder, name) for folder, name, _ in CAPTURES} == {
        REFUSED, BROKEN, FAILED, FAILED_LATE, ANSWERED, OTHER, SILENT,
    }  # fmt: skip


def of(stage: Stage, folder: str, name: str) -> Answer:
    return stage.complete(answers(folder)[name], stream="_stream" in name)


def test_the_three_shapes_of_vllm(stage: Stage) -> None:
    """The third blames a parameter that the client set well: it asked for 8 tokens, and 0 were left."""
    short, long, equal = (
        of(stage, "vllm-0.32.0", name).error
        for name in ("over_2100_completions_plain", "over_2048_chat_plain", "over_2048_completions_plain")
    )
    assert short and long and equal
    assert (short.param, long.param, equal.param) == ("input_tokens", "input_tokens", "max_tokens")
    assert "contains 2100 input tokens" in short.message
    assert "contains at least 2049 input tokens" in long.message
    assert equal.message == "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"
    assert equal.about_length


def test_the_usage_behind_an_error_is_no_beginning_of_an_answer(stage: Stage) -> None:
    """SGLang tells the usage of its one-token placeholder behind the refusal."""
    answer = of(stage, "sglang-0.5.23/single", "over_1500_completions_stream")
    assert (answer.status, answer.begun, answer.ttft_s, answer.prompt_tokens) == (200, False, None, 1)
    assert answer.error is not None
    assert (answer.error.code, answer.error.type) == ("400", "BAD_REQUEST")


def test_an_abort_of_sglangs_own_api_is_an_error(stage: Stage) -> None:
    """Its placeholder was answered with a token of text."""
    error = of(stage, "sglang-0.5.23/single", "over_1018_native_stream").error
    assert error is not None
    assert (error.code, error.type, error.about_length) == ("400", "BadRequestError", True)


def test_llama_server_names_its_refusal_by_type(stage: Stage) -> None:
    error = of(stage, "llama-server-b11434", "over_1024_completions_plain").error
    assert error is not None
    assert (error.type, error.code) == ("exceed_context_size_error", "400")


def test_decode_tells_nothing_of_the_length_when_prefill_refused(stage: Stage) -> None:
    """The original error stays on the prefill leg; the client gets a time-out of the transfer."""
    leg = of(stage, "sglang-0.5.23/pd-router", "over_1100_completions_plain.prefill-leg")
    client = of(stage, "sglang-0.5.23/pd-router", "over_1100_completions_plain")
    assert leg.refused_as_too_long
    assert client.status == 500
    assert client.error is not None
    assert "KVTransferError" in client.error.message
    assert not client.refused_as_too_long


@pytest.mark.parametrize(
    "body",
    [
        # TGI: router/src/validation.rs, and its error with `error_type` beside the words.
        b'{"error":"Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",'
        b'"error_type":"validation"}',
        b'{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2000 `inputs` '
        b'tokens and 100 `max_new_tokens`","error_type":"validation"}',
        # TensorRT-LLM without chunked prefill.
        b'{"object":"error","message":"The sum of prompt length (72417.0), query length (0) should not exceed '
        b'max_num_tokens (69632)","type":"BadRequestError","param":null,"code":400}',
    ],
)
def test_refusals_of_engines_that_were_read_in_their_source(stage: Stage, body: bytes) -> None:
    assert stage.complete(Document(422, body), stream=False).refused_as_too_long


def test_an_error_about_another_thing_is_no_refusal_for_length(stage: Stage) -> None:
    for body in (
        b'{"error":{"message":"max_tokens must be at least 1, got -5","param":"max_tokens","code":400}}',
        b'{"error":{"message":"The model `absent` does not exist.","type":"NotFoundError","code":404}}',
        b'{"meta_info":{"finish_reason":{"type":"abort","message":"Aborted by the client","status_code":400}}}',
        b'{"detail":"Not Found"}',
    ):
        answer = stage.complete(Document(400, body), stream=False)
        assert answer.error is not None
        assert not answer.refused_as_too_long
