"""What the API needs from the rest of the engine, as types: no process, socket or tensor shows through."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pagefence.engine.model.sampling_params import SamplingParams
from pagefence.protocol.effects import Begin, Emit, End, Refuse

CallEvent = Begin | Emit | End | Refuse
PromptParam = Literal["prompt", "messages"]


@dataclass(frozen=True, slots=True)
class Job:
    """One authenticated, tokenised request. It carries no name that a client chose (I9) and no tenant (I7)."""

    isolation_key: str
    token_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: SamplingParams
    param: PromptParam


class Call(Protocol):
    """A submitted job. Its events are Begin, any number of Emit, then End; or a Refuse at any point (I5)."""

    def events(self) -> AsyncIterator[CallEvent]:
        """Read once, on the loop that submitted."""
        ...

    def cancel(self) -> None:
        """The client is gone or has all it wants. The API says it exactly once per call, after the outcome too."""
        ...


class Gateway(Protocol):
    """The router, as the API sees it. Every method is called on the event loop and must not block."""

    @property
    def model_name(self) -> str: ...

    @property
    def context(self) -> int:
        """Tokens that prompt and answer may have together."""
        ...

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that every living worker can hold: the real limit, not an advertised one (I8)."""
        ...

    @property
    def max_in_flight(self) -> int:
        """How many requests the router takes at a time."""
        ...

    def reasons(self) -> tuple[str, ...]:
        """Why the fleet must not take traffic; empty when it may (I8)."""
        ...

    def submit(self, job: Job) -> Call:
        """Hand a job to the router. A refusal comes as an event, never as an exception."""
        ...

    def server_info(self) -> dict[str, object]: ...

    def metrics(self) -> bytes:
        """Prometheus text of the router. Names start `pagefence_`, but not `pagefence_api_`: those are the API's."""
        ...


class TextStream(Protocol):
    """Token ids in, whole characters out."""

    def push(self, ids: Sequence[int], /) -> str: ...

    def finish(self) -> str:
        """What was held back because its last character was not whole."""
        ...


class Tokenizer(Protocol):
    """Used from several threads at once. `engine.model.tokenizer.Tokenizer` is one."""

    @property
    def vocab(self) -> int:
        """How many token ids there are."""
        ...

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of token ids, without control tokens; what is no whole character becomes U+FFFD."""
        ...

    def token_bytes(self, token: int, skip_special: bool, /) -> bytes:
        """What one token stands for: a control token for its name, or for nothing if `skip_special`."""
        ...

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Plain text: what a user writes never becomes a special token. `add_special`: begin as the model wants."""
        ...

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """ValueError or ModelError when the template refuses the messages or there is none."""
        ...
