"""Whether some rank can hold a call, with all the tokens that it may make. Pure: what has to be counted is said.

A prompt that surely fits goes on and one that surely does not is refused, both without being tokenised; what lies
between is counted (`counting.py`). Whoever is admitted has new tokens reserved: they are what upstream must be told as
the most that it may generate, or an answer could outgrow what was checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pagefence.edge.bounds import TextBounds, constant_tokens, text_bounds
from pagefence.edge.call import Call
from pagefence.edge.capacity import Capacity, Room
from pagefence.edge.demand import Admitted, Chat, Demand, Prompt, demand_of
from pagefence.edge.refusal import Refusal
from pagefence.edge.template_bounds import TemplateBounds, template_bounds
from pagefence.engine.model.tokenizer import Tokenizer

RETRY_AFTER_S = 2
_MOST = 2**53  # tokens: no limit


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """`default_new_tokens`: reserved where a client names no number, or what is left if that is less.

    image_tokens   the most that one image can cost; None: images are refused, for nobody here can count them
    margin_tokens  kept free in any prompt, for an engine that adds what no template shows
    """

    default_new_tokens: int = 1024
    image_tokens: int | None = None
    margin_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelBounds:
    """What is known of a model without counting. `prefix`: tokens that its tokenizer puts around a text."""

    text: TextBounds | None
    template: TemplateBounds | None
    prefix: int


@dataclass(frozen=True, slots=True)
class Counted:
    """One prompt's tokens: from `least` to `most` (None: over the limit, nobody looked further), or `exact`."""

    least: int
    most: int | None
    exact: int | None = None


@dataclass(frozen=True, slots=True)
class NeedsCount:
    """Neither bound decides.

    limit    a prompt of more tokens is refused
    enough   a prompt of no more fits in any case, so counting may stop there too
    """

    call: Call
    demand: Demand
    room: Room
    settings: AdmissionSettings = field(repr=False)
    limit: int
    enough: int


def bounds_of_model(tokenizer: Tokenizer) -> ModelBounds:
    """Once per model; takes a second."""
    text = text_bounds(tokenizer)
    template = tokenizer.template
    if text is None or template is None:
        return ModelBounds(text, None, len(tokenizer.prefix))
    cost = template_bounds(template.syntax, template.tokens, lambda words: constant_tokens(tokenizer, words))
    return ModelBounds(text, cost, len(tokenizer.prefix))


def decide(
    call: Call, capacity: Capacity, bounds: ModelBounds, settings: AdmissionSettings
) -> Admitted | Refusal | NeedsCount:
    """Admit, refuse, or say what to count."""
    demand = demand_of(call, settings.image_tokens)
    if isinstance(demand, Refusal):
        return demand
    if capacity.room is None:
        # Why is for the operator (/readyz): it names addresses behind the edge.
        why = "How much the engines can hold is not known. Nothing is sent to them meanwhile."
        return Refusal(503, "capacity_unknown", why, retry_after_s=RETRY_AFTER_S)
    limit = _limit(demand, capacity.room, settings)
    enough = _enough(demand, capacity.room, settings)
    counts = [_bound(prompt, bounds, limit) for prompt in demand.prompts]
    hopeless = max(counts, key=lambda count: count.least, default=Counted(0, 0, 0))
    if hopeless.least > limit:
        return _too_long(demand, capacity.room, Counted(hopeless.least, None, hopeless.exact))
    needs = NeedsCount(call, demand, capacity.room, settings, limit, enough)
    if all(map(_decided, demand.prompts, counts, [needs] * len(counts))):
        return after_count(needs, counts)
    if any(prompt.loose for prompt in demand.prompts):
        return _uncountable(demand)
    return needs


def after_count(needs: NeedsCount, counts: Sequence[Counted]) -> Admitted | Refusal:
    """The decision, once every prompt was counted as far as it takes."""
    demand, room, settings = needs.demand, needs.room, needs.settings
    over = [count for count in counts if count.most is None or count.most > needs.limit]
    if over:
        return _too_long(demand, room, max(over, key=lambda count: count.least if count.most is None else count.most))
    most = [count.most or 0 for count in counts]
    left = room.total - settings.margin_tokens - max(most, default=0)
    wanted = settings.default_new_tokens if demand.new_tokens is None else demand.new_tokens
    exact = [count.exact for count in counts]
    return Admitted(
        call=needs.call,
        prompt_tokens=None if None in exact else sum(count for count in exact if count is not None),
        at_most=sum(most),
        new_tokens=min(wanted, left) if demand.generates else 0,
        demand=demand,
    )


def unchecked(call: Call, bounds: ModelBounds) -> Admitted:
    """Where the operator turned admission off: nothing is refused or reserved, and a bound is all that is known."""
    endless = Capacity(Room(_MOST, _MOST, "admission is off"), None, 0.0)
    verdict = decide(call, endless, bounds, AdmissionSettings())
    return replace(verdict, new_tokens=0) if isinstance(verdict, Admitted) else Admitted(call, None, _MOST, 0)


def least_tokens(admitted: Admitted, bounds: ModelBounds) -> int:
    """No fewer prompt tokens than this, without counting; 0 where nothing is known."""
    demand = admitted.demand
    if demand is None or bounds.text is None:
        return 0
    return sum(_least(prompt, bounds.text, bounds.template) for prompt in demand.prompts if not prompt.loose)


def _least(prompt: Prompt, text: TextBounds, template: TemplateBounds | None) -> int:
    parts = prompt.texts
    if prompt.chat is not None:
        written = prompt.chat.plain and template is not None and "content" in template.writes
        parts = tuple(string for message in prompt.chat.messages for string in _strings(message)) if written else ()
    return prompt.ids + text.at_least("".join(parts))


def reserved(admitted: Admitted) -> Mapping[str, Any]:
    """The body that goes upstream: where the client named no number, the reserved one stands in it."""
    body = admitted.call.body
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    if admitted.new_tokens == 0 or any(body.get(name) is not None for name in names):
        return body
    name = "max_output_tokens" if "input" in body else "max_tokens"
    return {**body, name: admitted.new_tokens}


def _limit(demand: Demand, room: Room, settings: AdmissionSettings) -> int:
    """The longest prompt that can go on: behind it is room for what was asked for, or for one token."""
    new = (1 if demand.new_tokens is None else demand.new_tokens) if demand.generates else 0
    return min(room.longest, room.total - new) - settings.margin_tokens


def _enough(demand: Demand, room: Room, settings: AdmissionSettings) -> int:
    """The longest prompt that leaves room for all the new tokens that we would like to reserve."""
    new = settings.default_new_tokens if demand.new_tokens is None else demand.new_tokens
    return min(room.longest, room.total - (new if demand.generates else 0)) - settings.margin_tokens


def _decided(prompt: Prompt, count: Counted, needs: NeedsCount) -> bool:
    """Whether counting would change nothing, or cannot be."""
    if count.most is None:
        return False
    certain = count.exact is not None or bool(prompt.loose)
    return count.most <= (needs.limit if certain else needs.enough)


def _bound(prompt: Prompt, bounds: ModelBounds, limit: int) -> Counted:
    if not prompt.texts and prompt.chat is None and not prompt.loose:
        return Counted(prompt.ids, prompt.ids + prompt.extra, None if prompt.extra else prompt.ids)
    if bounds.text is None:
        return Counted(prompt.ids, None)
    fixed = prompt.ids + prompt.extra + bounds.prefix
    if prompt.loose:
        return Counted(0, fixed + prompt.loose)
    if prompt.chat is not None:
        return _bound_chat(prompt.chat, bounds, fixed, limit)
    if (least := _at_least(bounds.text, prompt.texts, limit)) > limit:
        return Counted(least, None)
    return Counted(least, fixed + sum(map(bounds.text.at_most, prompt.texts)))


def _bound_chat(chat: Chat, bounds: ModelBounds, fixed: int, limit: int) -> Counted:
    text, template = bounds.text, bounds.template
    if text is None or template is None or not chat.plain:
        return Counted(0, None)  # rendered first, then measured
    texts = [string for message in chat.messages for string in _strings(message)]
    least = _at_least(text, texts, limit) if "content" in template.writes else 0
    if least > limit:
        return Counted(least, None)
    parts = sum(len(m["content"]) for m in chat.messages if isinstance(m.get("content"), list))
    size = sum(map(text.at_most, texts)) + parts
    return Counted(least, fixed + template.at_most(len(chat.messages), size))


def _at_least(text: TextBounds, parts: Sequence[str], limit: int) -> int:
    """Tokens of all parts together. Joined: of many short texts none is at least anything by itself."""
    if sum(map(len, parts)) <= limit:
        return 0  # hardly more than that, and the upper bound has yet to be asked
    return text.at_least("".join(parts), limit)


def _strings(message: Mapping[str, Any]) -> list[str]:
    content = message["content"]
    return [message["role"], *([content] if isinstance(content, str) else [part["text"] for part in content])]


def _too_long(demand: Demand, room: Room, count: Counted) -> Refusal:
    """In OpenAI's words."""
    tokens = count.exact if count.exact is not None else count.least if count.most is None else count.most
    about = "" if count.exact is not None else "at least " if count.most is None else "up to "
    what = {"messages": "your messages", "input": "your input"}.get(demand.param, "your prompt")
    said = f"This model's maximum context length is {room.total} tokens. However, "
    reduce = f"Please reduce the length of {what.replace('your', 'the')}"
    if demand.new_tokens is not None and tokens <= room.longest:
        said += f"you requested {about}{tokens + demand.new_tokens} tokens ({about}{tokens} in {what}, "
        said += f"{demand.new_tokens} in the completion). {reduce} or completion."
    else:
        said += f"{what} resulted in {about}{tokens} tokens. {reduce}."
    return Refusal(400, "context_length_exceeded", said, demand.param)


def _uncountable(demand: Demand) -> Refusal:
    said = "This input may be too long, and how its tools and calls are written to the model is not known here, so it"
    return Refusal(400, "prompt_not_countable", f"{said} cannot be counted. Use /v1/chat/completions.", demand.param)
