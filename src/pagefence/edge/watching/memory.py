"""What a process remembers of texts, all of it under keyed hashes, and of which texts an answer may hold a run.

A k-gram of an answer speaks against it only if one other tenant sent it lately, and nobody else. It does not when

- the answer's own prompt holds it, what the assistant had said in it included, or an earlier prompt of the same tenant;
- several tenants sent it: templates, boilerplate, shared documents;
- it stands in a text that the operator named as public;
- the model has said it to several tenants whom it was not another's: its habits.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from pagefence.edge.watching.generations import Bounds, Generations, Hit
from pagefence.edge.watching.grams import COMMON, Roll, Secrets, Words, winnowed

EVERY = 96
_NONE = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Manner:
    """What makes a finding of a scan. Raises ValueError for what cannot be.

    distinct   different k-grams of one other tenant that it takes
    gap        folded bytes that may lie between two of them, for both to be of one run
    every      bytes of a stream that are scanned at once; a run is seen so much later at most
    learned    hashes of an answer that the model's habits are learned from; 0: none are
    """

    distinct: int = 3
    gap: int = 64
    every: int = EVERY
    learned: int = 4096

    def __post_init__(self) -> None:
        if not 1 <= self.distinct <= 64 or self.gap < 1 or self.every < 1 or self.learned < 0:
            raise ValueError("a finding takes 1 to 64 k-grams; gap and every are 1 or more, learned 0 or more")


@dataclass(frozen=True, slots=True)
class Shared:
    """What makes several processes remember as one.

    secrets, key  equal in all of them: what k-grams are hashed with, and under what findings show them
    told          gets what was noted here, its tag, and whether it was an answer's (habits); on any thread. It returns
                  at once and may keep the array
    """

    secrets: Secrets
    key: bytes
    told: Callable[[Words, str, bool], None]


class Memory:
    """Shared by all answers of a process."""

    def __init__(
        self,
        bounds: Bounds | None = None,
        manner: Manner | None = None,
        now: float = 0.0,
        compiled: bool = True,
        shared: Shared | None = None,
    ) -> None:
        self.bounds = bounds = bounds or Bounds()
        self.manner = manner or Manner()
        self.secrets = shared.secrets if shared else Secrets.make()
        self.prompts = Generations(bounds, now, compiled)
        self.habits = Generations(replace(bounds, slots_log2=max(10, bounds.slots_log2 - 2)), now, compiled)
        self._public = _NONE
        self._key = shared.key if shared else secrets.token_bytes(32)
        self._told = shared.told if shared else None
        self._compiled = compiled

    def hashes(self, texts: Sequence[bytes]) -> Words:
        """What is taken of texts, one behind the other. Works beside other threads."""
        return winnowed(b"\n".join(texts), Roll(), self.secrets, self._compiled)[0] if texts else _NONE

    def sent(self, theirs: Sequence[bytes], said: Sequence[bytes], tag: str, now: float) -> Words:
        """Remember the texts of a prompt that its tenant wrote; not what the assistant had `said`. What of both its
        answer may hold: 8 bytes a hash, to be kept as long as the request lives."""
        written = self.hashes(theirs)
        self.prompts.note(written, tag, now)
        if self._told is not None:
            self._told(written, tag, False)
        return np.concatenate([written, self.hashes(said)]) if said else written

    def publish(self, texts: Iterable[bytes]) -> None:
        """All texts that anybody may get: licences, the operator's own templates. All of their k-grams, so that it does
        not matter what stands around a quote; 8 bytes for each byte of text."""
        taken = [winnowed(text, Roll(), self.secrets, self._compiled, window=1)[0] for text in texts]
        self._public = np.unique(np.concatenate([_NONE, *taken]))

    def learn(self, hashes: Words, tag: str, now: float) -> None:
        """What an answer without a finding held, for the model's habits."""
        self.habits.note(hashes, tag, now)
        if self._told is not None:
            self._told(hashes, tag, True)

    def heard(self, hashes: Words, tag: str, habit: bool, now: float) -> None:
        """Remember what another process told: of a prompt that went through it, or of an answer without a finding."""
        (self.habits if habit else self.prompts).note(hashes, tag, now)

    def foreign(self, hits: list[Hit], own: Words) -> list[Hit]:
        """Of what one other tenant sent, what nothing explains."""
        hashes = np.array([hit[0] for hit in hits], np.uint64)
        explained = np.isin(hashes, own) | (self.habits.owners(hashes) == COMMON)
        if len(self._public):
            place = np.minimum(np.searchsorted(self._public, hashes), len(self._public) - 1)
            explained |= self._public[place] == hashes
        return [hit for hit, known in zip(hits, explained.tolist(), strict=True) if not known]

    def name(self, value: int) -> str:
        """A hash as a finding may show it: keyed once more, so that equal text has equal names in all that share."""
        return blake2b(value.to_bytes(8, "little"), digest_size=8, key=self._key).hexdigest()
