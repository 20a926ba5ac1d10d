"""Which incarnations are alive and which rooms are over: how a worker tells a stale message from a live one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from immutables import Map

from pagefence.protocol.messages import Envelope, Offer, PeerUp, Reaped, Room, Start, WorkerRef


@dataclass(frozen=True, slots=True)
class Membership:
    """`over` holds the counters at or above `floor` of rooms that ended here: the tombstones.

    A message for a room that is over finds nothing to do, however late it comes. Everything below the floor is over
    by the router's word, so tombstones are forgotten as the floor rises and all together with the router's epoch.
    """

    me: WorkerRef
    router: WorkerRef
    peers: Map[str, WorkerRef] = Map()
    reaped: frozenset[WorkerRef] = frozenset()
    floor: int = 0
    over: Map[int, bool] = Map()

    def refuses(self, envelope: Envelope) -> str | None:
        """Why the envelope is stale, or None when both incarnations are the living ones.

        Who lives and what to begin is the router's word alone: a peer's `Reaped` would free pages without proof (I2).
        """
        if envelope.receiver != self.me:
            return f"meant for {envelope.receiver}, this is {self.me}"
        if envelope.sender != self.router and isinstance(envelope.body, Offer | Start | PeerUp | Reaped):
            return f"from {envelope.sender}, but only the router may say this"
        if envelope.sender == self.router or self.peers.get(envelope.sender.name) == envelope.sender:
            return None
        return f"from {envelope.sender}, which is not alive here"

    def is_alive(self, worker: WorkerRef) -> bool:
        """True while this incarnation is the living one."""
        return self.peers.get(worker.name) == worker

    def up(self, worker: WorkerRef) -> Membership:
        """An incarnation appeared. News of one that was reaped since is late or came twice."""
        if worker in self.reaped:
            return self
        return replace(self, peers=self.peers.set(worker.name, worker))

    def gone(self, worker: WorkerRef) -> Membership:
        """An incarnation was reaped."""
        peers = self.peers.delete(worker.name) if self.is_alive(worker) else self.peers
        return replace(self, peers=peers, reaped=self.reaped | {worker})

    def is_over(self, room: Room) -> bool:
        """True when the room ended here, is below the floor, or belongs to another router epoch."""
        return room.epoch != self.router.epoch or room.counter < self.floor or room.counter in self.over

    def end(self, room: Room) -> Membership:
        """Leave a tombstone for the room."""
        if room.epoch != self.router.epoch or room.counter < self.floor:
            return self
        return replace(self, over=self.over.set(room.counter, True))

    def raise_floor(self, floor: int) -> Membership:
        """Forget the tombstones below the router's floor."""
        if floor <= self.floor:
            return self
        over = self.over.mutate()
        for counter in range(self.floor, floor):
            over.pop(counter, None)
        return replace(self, floor=floor, over=over.finish())
