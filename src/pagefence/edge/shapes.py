"""The fields that a request of each kind may have, with types: OpenAI's, and engines' own that touch nobody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from pagefence.edge.call import Operation
from pagefence.edge.shape_parts import (
    ChatTool,
    Choice,
    Function,
    Item,
    Message,
    Name,
    Named,
    Reasoning,
    ResponseFormat,
    ResponseTool,
    StreamOptions,
    Strict,
    StructuredOutputs,
    TextOptions,
    TokenId,
)

MAX_CHOICES = 128
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Natural = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Whole = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Share = Annotated[float, Meta(ge=0, le=1)]
Bias = dict[Annotated[str, Meta(pattern=r"^[0-9]{1,10}$(?!\n)")], Annotated[float, Meta(ge=-100, le=100)]]
Stop = str | Annotated[list[str], Meta(max_length=64)]
Metadata = Annotated[dict[str, str], Meta(max_length=64)]

# What a template reads besides the messages. Short, or a prompt could grow beyond what was counted.
_Switch = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}$(?!\n)")]
TemplateSwitches = Annotated[
    dict[_Switch, bool | Whole | float | Annotated[str, Meta(max_length=64)] | None], Meta(max_length=16)
]

# A prompt: a text, texts, ids, or lists of ids. `policy.py` sees to it that a list holds one kind.
Prompt = Annotated[str, Meta(min_length=1)] | Annotated[list[TokenId | str | list[TokenId]], Meta(min_length=1)]


class _Any(Strict, frozen=True, kw_only=True):
    model: Name | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Metadata | None = None


class _Sampled(_Any, frozen=True, kw_only=True):
    """What shapes the request's own tokens, and nothing else."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Share | None = None
    top_k: Whole | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    stop_token_ids: list[TokenId] | None = None
    logit_bias: Bias | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    top_logprobs: Natural | None = None
    prompt_cache_key: str | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None


class _Generated(_Sampled, frozen=True, kw_only=True):
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    n: Choices | None = None
    min_tokens: Natural | None = None
    length_penalty: float | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[TokenId] | None = None
    spaces_between_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    add_special_tokens: bool | None = None
    echo: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    regex: str | None = None
    ebnf: str | None = None
    thinking_token_budget: Natural | None = None


class ChatRequest(_Generated, frozen=True, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    logprobs: bool | None = None
    tools: list[ChatTool] | None = None
    tool_choice: str | Choice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Function] | None = None
    function_call: str | Named | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    chat_template_kwargs: TemplateSwitches | None = None


class CompletionRequest(_Generated, frozen=True, kw_only=True):
    prompt: Prompt
    suffix: str | None = None
    logprobs: Natural | None = None
    best_of: Choices | None = None


class ResponseRequest(_Sampled, frozen=True, kw_only=True):
    input: str | Annotated[list[Item], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    max_tool_calls: Natural | None = None
    include: list[str] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | Choice | None = None
    chat_template_kwargs: TemplateSwitches | None = None


class EmbeddingRequest(_Any, frozen=True, kw_only=True):
    input: Prompt
    encoding_format: str | None = None
    dimensions: Count | None = None
    add_special_tokens: bool | None = None


Shape = ChatRequest | CompletionRequest | ResponseRequest | EmbeddingRequest

SHAPES: Mapping[Operation, type[msgspec.Struct]] = {
    Operation.CHAT: ChatRequest,
    Operation.COMPLETION: CompletionRequest,
    Operation.RESPONSE: ResponseRequest,
    Operation.EMBEDDING: EmbeddingRequest,
}
