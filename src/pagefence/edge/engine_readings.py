"""How engines turn the same call into different prompts. Pure.

They join the parts of a message with nothing, a blank or a line end; one takes the name of a control token in a text
for that token, the other for text. Whoever does not know which engine answers has to reckon with all of them.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes

from pagefence.edge.demand import Chat
from pagefence.engine.model.tokenizer import Tokenizer
from pagefence.models import ModelError


@dataclass(frozen=True, slots=True)
class EngineReading:
    """`joint`: between the parts of a message. `control`: names of control tokens in a text become those tokens.
    `parses`: the arguments of a tool call reach the template as objects, else as they came."""

    engine: str
    joint: str
    control: bool
    parses: bool


PAGEFENCE = EngineReading("pagefence", "", control=False, parses=False)
VLLM = EngineReading("vllm", "\n", control=True, parses=True)
SGLANG = EngineReading("sglang", " ", control=True, parses=True)
ALL = (PAGEFENCE, VLLM, SGLANG)


def readings_of(engine: str | None) -> tuple[EngineReading, ...]:
    """How this engine reads, or every way where it is not known."""
    return tuple(reading for reading in ALL if reading.engine == engine) or ALL


Segments = list[str | int]


def chat_readings(tokenizer: Tokenizer, chat: Chat, readings: Sequence[EngineReading]) -> list[Segments]:
    """The different prompts that a conversation becomes: texts, and control tokens between them.

    Raises ValueError when the template refuses the messages in every reading, ModelError when there is no template.
    """
    if chat.plain and not any(_read_differently(tokenizer, message) for message in chat.messages):
        readings = readings[:1]
    found: list[Segments] = []
    refused: ValueError | None = None
    for reading in readings:
        try:
            segments = _chat(tokenizer, chat, reading)
        except ValueError as error:
            refused = error
            continue
        if segments not in found:
            found.append(segments)
    if not found:
        raise refused or ValueError("there is nobody to read the messages")
    return found


def text_readings(tokenizer: Tokenizer, text: str, readings: Sequence[EngineReading]) -> list[Segments]:
    """The same for a text."""
    if not _may_name_control(tokenizer, text):
        return [[text]]
    parsed: Segments = tokenizer.segments(text)
    found: list[Segments] = [[text]] if any(not reading.control for reading in readings) else []
    return [*found, *([parsed] if any(r.control for r in readings) and parsed not in found else [])]


def _read_differently(tokenizer: Tokenizer, message: Mapping[str, Any]) -> bool:
    role, content = message["role"], message["content"]
    return not isinstance(content, str) or role == "developer" or _may_name_control(tokenizer, role + content)


def _may_name_control(tokenizer: Tokenizer, text: str) -> bool:
    return any(first in text for first in {name[0] for name in tokenizer.control})


def _chat(tokenizer: Tokenizer, chat: Chat, reading: EngineReading) -> Segments:
    if tokenizer.template is None:
        raise ModelError("the model has no chat template here, so a conversation cannot be counted")
    parts = reading.control and _takes_parts(tokenizer.template.syntax)
    messages = [_message(message, reading, parts) for message in chat.messages]
    variables = {"add_generation_prompt": True, **chat.variables}
    if not reading.control:
        return tokenizer.chat_segments(messages, variables)
    return tokenizer.segments(tokenizer.template.render(messages, variables))


def _message(message: Mapping[str, Any], reading: EngineReading, parts: bool) -> dict[str, Any]:
    made = {name: value for name, value in message.items() if value is not None or name == "content"}
    if made.get("role") == "developer" and not reading.control:
        made["role"] = "system"
    if isinstance(made.get("content"), list) and not parts:
        texts = (part.get("text") for part in made["content"])
        made["content"] = reading.joint.join(text for text in texts if isinstance(text, str))
    if reading.parses and isinstance(made.get("tool_calls"), list):
        made["tool_calls"] = [_parsed(call) for call in made["tool_calls"]]
    return made


def _parsed(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    with contextlib.suppress(ValueError, RecursionError):
        return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}
    return call


@functools.lru_cache(maxsize=16)
def _takes_parts(template: nodes.Template) -> bool:
    """Whether a template goes over the parts of a message itself; engines look for that too."""
    for loop in template.find_all(nodes.For):
        over = loop.iter
        if isinstance(over, nodes.Getattr) and over.attr == "content":
            return True
        if isinstance(over, nodes.Getitem) and isinstance(over.arg, nodes.Const) and over.arg.value == "content":
            return True
        if isinstance(over, nodes.Name) and over.name == "content":
            return True
    return False
