"""A fleet that may be asked only so much: what a run sends is counted before it is sent."""

from __future__ import annotations

from pagefence.fleet import Answer, Fleet, Keys, Leave, Request, Target

_FRAME = 8  # what an engine may put around a prompt: a first token, a template's end
_COST_NOTHING = (400, 401, 403, 404, 413, 422, 429, 503)  # refused before anything was computed


class Metered(Fleet):
    """Refuses to send what could cost more than `most` tokens in all, prompts and answers together.

    A request is counted before it goes out, at the most that it can cost: what the fleet's own tokenizer said of this
    very text, or one token for each byte of it. When its answer is there, what that says is taken instead; what an
    error refused has cost nothing.
    """

    def __init__(self, target: Target, keys: Keys, timeout_s: float, most: int) -> None:
        super().__init__(target, keys, timeout_s)
        self.most = most
        self.spent = 0
        self.saturated = 0
        self.turned_away = 0
        self._open = 0
        self._sizes: dict[tuple[int, int], int] = {}

    @property
    def charged(self) -> int:
        """What the run has cost so far; requests without an answer yet at the most that they can."""
        return self.spent + self._open

    async def tokenize(self, text: str, tenant: str = "a") -> tuple[int, ...] | None:
        tokens = await super().tokenize(text, tenant)
        if tokens is not None:
            self._sizes[_known(text)] = len(tokens)
        return tokens

    async def complete(
        self, request: Request, tenant: str, timeout_s: float | None = None, leave: Leave | None = None
    ) -> Answer:
        counted = self._sizes.get(_known(request.prompt))
        size = len(request.prompt.encode()) + _FRAME if counted is None else counted
        most = size + request.max_tokens
        if self.charged + most > self.most:
            self.turned_away += 1
            left = f"{self.most - self.charged:,} left of {self.most:,}"
            why = f"not asked: it may cost {most:,} tokens, and the run has {left}"
            return Answer(None, problem=why, stream=request.stream)
        self._open += most
        cost = most
        try:
            answer = await super().complete(request, tenant, timeout_s, leave)
            cost = _cost(answer, counted, most)
        finally:
            # A run that is cancelled has asked all the same.
            self._open -= most
            self.spent += cost
        self.saturated += answer.status in (429, 503) and not answer.contained
        return answer


def _known(text: str) -> tuple[int, int]:
    """A prompt by its hash: kept as they are, the prompts of one run could take gigabytes."""
    return len(text), hash(text)


def _cost(answer: Answer, counted: int | None, most: int) -> int:
    """What an answer has cost. Its own word counts where the fleet's tokenizer said nothing: one that stubbed a prompt
    reports fewer tokens than it was sent."""
    if answer.status in _COST_NOTHING and not answer.begun:
        return 0
    prompt = counted if counted is not None else answer.prompt_tokens
    if prompt is None or answer.completion_tokens is None:
        return most
    return min(most, prompt + answer.completion_tokens)
