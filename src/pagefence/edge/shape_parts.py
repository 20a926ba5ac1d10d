"""The pieces that requests are made of: messages, parts, tools, formats. A field that stands here may go upstream.

Where a type is `Any`, what is in it is the user's own (a JSON schema, the arguments of a function): its names mean
nothing to an engine and are not looked at.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Text = str
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Nothing = Annotated[list[Any], Meta(max_length=0)]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every field may be left out or null; no other field may stand beside them."""


# --- content ------------------------------------------------------------------------------------------------------


class MediaUrl(Strict, frozen=True, kw_only=True):
    url: str | None = None
    detail: str | None = None


class InlineAudio(Strict, frozen=True, kw_only=True):
    data: str | None = None
    format: str | None = None


class InlineFile(Strict, frozen=True, kw_only=True):
    file_data: str | None = None
    filename: str | None = None


class Part(Strict, frozen=True, kw_only=True):
    """A part of a message. `media.py` says which may be other than text."""

    type: str
    text: Text | None = None
    refusal: Text | None = None
    annotations: Nothing | None = None
    logprobs: Nothing | None = None
    image_url: str | MediaUrl | None = None
    video_url: str | MediaUrl | None = None
    audio_url: str | MediaUrl | None = None
    input_audio: InlineAudio | None = None
    file: InlineFile | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    detail: str | None = None


Content = Text | list[Part]


# --- messages -----------------------------------------------------------------------------------------------------


class FunctionCall(Strict, frozen=True, kw_only=True):
    name: Name | None = None
    arguments: Any = None


class CustomCall(Strict, frozen=True, kw_only=True):
    name: Name | None = None
    input: str | None = None


class ToolCall(Strict, frozen=True, kw_only=True):
    id: str | None = None
    type: Literal["function", "custom"] | None = None
    index: int | None = None
    function: FunctionCall | None = None
    custom: CustomCall | None = None


class Message(Strict, frozen=True, kw_only=True):
    """What clients write, and what they copy back from earlier answers."""

    role: Annotated[str, Meta(min_length=1, max_length=64)]
    content: Content | None = None
    name: Name | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None
    refusal: Text | None = None
    reasoning: Text | None = None
    reasoning_content: Text | None = None
    annotations: Nothing | None = None
    audio: None = None  # the id of an answer that the server keeps: nobody would know whose


class Item(Strict, frozen=True, kw_only=True):
    """One of /v1/responses' inputs. `item_reference` is not among them: it names what the server keeps."""

    type: (
        Literal[
            "message",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
            "reasoning",
        ]
        | None
    ) = None
    role: str | None = None
    content: Content | None = None
    id: str | None = None
    status: str | None = None
    call_id: str | None = None
    name: Name | None = None
    arguments: str | None = None
    input: str | None = None
    output: Content | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None


# --- tools and formats --------------------------------------------------------------------------------------------


class Function(Strict, frozen=True, kw_only=True):
    name: Name
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None


class CustomTool(Strict, frozen=True, kw_only=True):
    name: Name
    description: str | None = None
    format: Any = None


class ChatTool(Strict, frozen=True, kw_only=True):
    type: Literal["function", "custom"] = "function"
    function: Function | None = None
    custom: CustomTool | None = None


class ResponseTool(Strict, frozen=True, kw_only=True):
    """A tool that the client runs. Those that a server runs (search, code, MCP) reach from inside to anywhere."""

    type: Literal["function", "custom"]
    name: Name
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None
    format: Any = None


class Named(Strict, frozen=True, kw_only=True):
    name: Name


class Choice(Strict, frozen=True, kw_only=True):
    type: Literal["function", "custom"] | None = None
    function: Named | None = None
    custom: Named | None = None
    name: Name | None = None


class JsonSchema(Strict, frozen=True, kw_only=True):
    name: Name | None = None
    description: str | None = None
    schema: Any = None
    strict: bool | None = None


class ResponseFormat(Strict, frozen=True, kw_only=True):
    type: str
    json_schema: JsonSchema | None = None
    schema: Any = None
    regex: str | None = None
    ebnf: str | None = None


class TextFormat(Strict, frozen=True, kw_only=True):
    type: str
    name: Name | None = None
    description: str | None = None
    schema: Any = None
    strict: bool | None = None


class TextOptions(Strict, frozen=True, kw_only=True):
    format: TextFormat | None = None
    verbosity: str | None = None


class Reasoning(Strict, frozen=True, kw_only=True):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class StructuredOutputs(Strict, frozen=True, kw_only=True):
    """vLLM's."""

    json: Any = None
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    whitespace_pattern: str | None = None


class StreamOptions(Strict, frozen=True, kw_only=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None
