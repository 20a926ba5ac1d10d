"""The incident as a game lobby.

A match of eight has just ended. The next party of eight asks for the table; the matchmaker reserves eight seats, then
rejects the party, fills one seat with a placeholder and starts the match, because the match was "not finished". The
other seven seats still hold the last match's players.
"""

from __future__ import annotations

import pytest

from pagefence.pool.slots import Handle, NotValid, SlotPool, StaleHandle

SEATS = 8
LAST_MATCH = tuple(f"player {i} of the last match" for i in range(SEATS))
PLACEHOLDER = "placeholder"


class NaiveLobby:
    """What was built: seats are recycled without being cleared, and a seat is shown when its match is not finished."""

    def __init__(self) -> None:
        self.seats = ["" for _ in range(SEATS)]
        self.finished = True

    def play(self, players: tuple[str, ...]) -> None:
        """Take the seats; write only what there is to write."""
        self.finished = False
        self.seats[: len(players)] = players

    def show(self, seat: int) -> str:
        """Asks the wrong question."""
        if self.finished:
            raise LookupError("the match is over")
        return self.seats[seat]


def play_last_match(lobby: SlotPool[str]) -> tuple[SlotPool[str], tuple[Handle, ...]]:
    """Eight seats taken, eight players seated."""
    lobby, seats = lobby.reserve(SEATS)
    for seat, player in zip(seats, LAST_MATCH, strict=True):
        lobby = lobby.fill(seat, player)
    return lobby, seats


def test_the_naive_lobby_shows_seven_players_of_the_last_match() -> None:
    lobby = NaiveLobby()
    lobby.play(LAST_MATCH)
    lobby.finished = True
    lobby.play((PLACEHOLDER,))
    assert [lobby.show(seat) for seat in range(SEATS)] == [PLACEHOLDER, *LAST_MATCH[1:]]


def test_our_lobby_shows_the_placeholder_and_refuses_the_other_seven_seats() -> None:
    lobby, old_seats = play_last_match(SlotPool[str].of(SEATS))
    for seat in old_seats:
        lobby = lobby.release(seat)
    lobby, seats = lobby.reserve(SEATS)
    lobby = lobby.fill(seats[0], PLACEHOLDER)

    assert {seat.index for seat in seats} == {seat.index for seat in old_seats}, "the same seats, let again"
    assert lobby.get(seats[0]) == PLACEHOLDER
    for seat in seats[1:]:
        with pytest.raises(NotValid):
            lobby.get(seat)
    for seat in old_seats:
        with pytest.raises(StaleHandle):
            lobby.get(seat)
    assert "last match" not in repr(lobby)


def test_a_rejected_party_gives_its_seats_back_and_can_use_none_of_them() -> None:
    lobby, seats = SlotPool[str].of(SEATS).reserve(SEATS)
    for seat in seats:
        lobby = lobby.release(seat)
    for seat in seats:
        with pytest.raises(StaleHandle):
            lobby.fill(seat, PLACEHOLDER)


def test_seats_that_the_last_match_still_holds_cannot_be_reserved() -> None:
    lobby, old_seats = play_last_match(SlotPool[str].of(SEATS))
    lobby = lobby.release(old_seats[0])
    lobby, (seat,) = lobby.reserve()
    with pytest.raises(NotValid):
        lobby.get(seat)
    assert [lobby.get(old) for old in old_seats[1:]] == list(LAST_MATCH[1:])
