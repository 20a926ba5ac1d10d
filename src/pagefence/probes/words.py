"""The words that this fleet's own tokenizer takes for one token each: a model copies those best."""

from __future__ import annotations

from collections.abc import Sequence

from pagefence.fleet import Fleet
from pagefence.probes.sentinel import LEAST_BITS, bits
from pagefence.probes.wordlist import WORDS

_BLOCK = 128
_SMALLEST = 4  # a block of so many that holds a longer word is left out as a whole: asking for each costs more


async def words_for(fleet: Fleet, words: Sequence[str] = WORDS) -> Sequence[str]:
    """Words of one token, by asking the fleet's tokenizer block by block; all words where it does not tell, or where
    too few are left for a sentinel of 60 bits. Needs some tens of calls that compute nothing."""
    bare = await fleet.tokenize(f" {words[0]}")
    two = await fleet.tokenize(f" {words[0]} {words[0]}")
    if bare is None or two is None or len(two) <= len(bare):
        return words
    each = len(two) - len(bare)
    around = len(bare) - each  # marks that a tokenizer puts around every text
    blocks = [words[i : i + _BLOCK] for i in range(0, len(words), _BLOCK)]
    single: list[str] = []
    while blocks:
        block = blocks.pop()
        tokens = await fleet.tokenize("".join(f" {word}" for word in block))
        if tokens is None:
            return words
        if len(tokens) - around <= len(block):
            single += block
        elif len(block) > _SMALLEST:
            half = len(block) // 2
            blocks += [block[:half], block[half:]]
    return sorted(single) if bits(len(single)) >= LEAST_BITS else words
