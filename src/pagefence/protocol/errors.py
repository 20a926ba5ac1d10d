"""The errors a client can get, OpenAI-shaped, each made in one place."""

from __future__ import annotations

from pagefence.protocol.messages import ErrorInfo

RETRY_AFTER_S = 2


def context_length(limit: int, prompt_tokens: int, param: str, max_new_tokens: int = 0) -> ErrorInfo:
    """The prompt, or the prompt with the answer asked for, does not fit."""
    asked, what = "", "messages"
    if max_new_tokens:
        asked, what = f" and asked for {max_new_tokens} more", "messages or the completion"
    return ErrorInfo(
        status=400,
        code="context_length_exceeded",
        message=f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
        f"{prompt_tokens} tokens{asked}. Please reduce the length of the {what}.",
        type="invalid_request_error",
        param=param,
    )


def invalid(message: str, param: str) -> ErrorInfo:
    """The request itself is at fault."""
    return ErrorInfo(400, "invalid_value", message, "invalid_request_error", param)


def overloaded(message: str) -> ErrorInfo:
    """The client may try again: there are too many requests."""
    return ErrorInfo(429, "rate_limit_exceeded", message, "rate_limit_error", retry_after_s=RETRY_AFTER_S)


def unavailable(message: str, code: str = "service_unavailable") -> ErrorInfo:
    """The fleet cannot take the request now."""
    return ErrorInfo(503, code, message, "server_error", retry_after_s=RETRY_AFTER_S)


def timed_out(message: str) -> ErrorInfo:
    """The fleet did not answer within its own deadline."""
    return ErrorInfo(504, "deadline_exceeded", message, "server_error")


def internal(message: str) -> ErrorInfo:
    """The fleet failed."""
    return ErrorInfo(500, "internal_error", message, "server_error")


def contained(code: str, message: str, rule: str, guard: str) -> ErrorInfo:
    """A guard stopped a fault before it could reach a client."""
    return ErrorInfo(500, code, message, "isolation_error", rule=rule, guard=guard)
