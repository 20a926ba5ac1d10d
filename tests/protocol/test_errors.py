"""What a client is told, in OpenAI's shape: whose fault it is, and whether it is worth trying again."""

from __future__ import annotations

from pagefence.protocol import errors
from pagefence.protocol.messages import ErrorInfo


def at_fault() -> list[ErrorInfo]:
    return [errors.context_length(8, 9, "messages"), errors.invalid("no", "prompt")]


def come_back() -> list[ErrorInfo]:
    return [errors.overloaded("busy"), errors.unavailable("down"), errors.unavailable("down", "worker_lost")]


def ours() -> list[ErrorInfo]:
    contained = errors.contained("frame_mismatch", "foreign", "I1", "page-frames")
    return [errors.timed_out("late"), errors.internal("broken"), contained]


def test_a_request_at_fault_gets_400_and_the_name_of_what_to_change() -> None:
    for error in at_fault():
        assert (error.status, error.type, error.retry_after_s) == (400, "invalid_request_error", None)
        assert error.param is not None


def test_a_fleet_that_cannot_just_now_says_when_to_come_back_and_blames_no_parameter() -> None:
    for error in come_back():
        assert error.retry_after_s == 2
        assert error.param is None


def test_a_fault_of_ours_blames_no_parameter_and_invites_no_retry() -> None:
    for error in ours():
        assert error.status in (500, 504)
        assert (error.param, error.retry_after_s) == (None, None)


def test_the_codes_are_those_that_clients_know() -> None:
    known = {(e.code, e.status, e.type) for e in (*at_fault(), *come_back(), *ours())}
    assert known == {
        ("context_length_exceeded", 400, "invalid_request_error"),
        ("invalid_value", 400, "invalid_request_error"),
        ("rate_limit_exceeded", 429, "rate_limit_error"),
        ("service_unavailable", 503, "server_error"),
        ("worker_lost", 503, "server_error"),
        ("deadline_exceeded", 504, "server_error"),
        ("internal_error", 500, "server_error"),
        ("frame_mismatch", 500, "isolation_error"),
    }


def test_what_a_guard_contained_names_the_rule_and_the_guard() -> None:
    error = errors.contained("frame_mismatch", "foreign", "I1", "page-frames")
    assert (error.message, error.rule, error.guard) == ("foreign", "I1", "page-frames")


def test_the_length_error_reads_as_openai_writes_it_with_and_without_an_answer_asked_for() -> None:
    prompt = errors.context_length(8, 9, "messages")
    assert prompt.message == (
        "This model's maximum context length is 8 tokens. However, your messages resulted in 9 tokens. "
        "Please reduce the length of the messages."
    )
    both = errors.context_length(8, 5, "prompt", 4)
    assert both.param == "prompt"
    assert both.message == (
        "This model's maximum context length is 8 tokens. However, your messages resulted in 5 tokens and asked for 4 "
        "more. Please reduce the length of the messages or the completion."
    )
