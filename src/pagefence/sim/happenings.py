"""What each kind of move does: a function per kind, in `MOVES`. Each raises NotPossible where there is no such move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pagefence.protocol.messages import (
    Capacity,
    ClientGone,
    ComputeFailed,
    Envelope,
    FrameBroken,
    PeerUp,
    Reaped,
    WorkerRef,
    WorkerUp,
)
from pagefence.sim import processes as proc
from pagefence.sim.memory import Write
from pagefence.sim.moves import Kind, Move
from pagefence.sim.processes import DecodeProcess, PrefillProcess, Process
from pagefence.sim.scene import Scene
from pagefence.sim.state import ROUTER
from pagefence.sim.world import NotPossible, delivery


def _submit(s: Scene, move: Move) -> None:
    ticket = s.submitted if move.ticket is None else move.ticket
    if not s.submitted <= ticket < len(s.bounds.asks):
        raise NotPossible(f"request {ticket} was made, or passed over")
    s.submitted = ticket + 1
    s.outcomes = s.outcomes.submitted(ticket)
    s.tell_router(s.submit_of(ticket))


def _hang_up(s: Scene, move: Move) -> None:
    if move.ticket not in s.outcomes.open:
        raise NotPossible(f"no client of request {move.ticket}")
    s.spend("hang_up")
    s.outcomes = s.outcomes.gone(move.ticket)
    s.tell_router(ClientGone(move.ticket))


def _find(s: Scene, where: list[Envelope], move: Move, behind: bool = False) -> Envelope:
    """The first message that the move names; `behind`: the first that is not the oldest of its channel."""
    for envelope in where:
        if delivery(move.kind, envelope, s.before) == move and not (behind and _is_head(s, envelope)):
            return envelope
    raise NotPossible(f"no such message: {move}")


def _is_head(s: Scene, envelope: Envelope) -> bool:
    channel = (envelope.sender, envelope.receiver)
    return next(e for e in s.network if (e.sender, e.receiver) == channel) is envelope


def _arrive(s: Scene, envelope: Envelope) -> None:
    s.delivered = envelope
    if envelope.receiver == ROUTER:
        s.tell_router(envelope)
        return
    process = s.processes[s.place(envelope.receiver.name)]
    if process is None or process.ref != envelope.receiver:
        return
    if process.crashed:
        raise NotPossible(f"{process.ref} takes no steps")
    s.tell(process, envelope)


def _deliver(s: Scene, move: Move) -> None:
    envelope = _find(s, s.network, move)
    if not _is_head(s, envelope):
        raise NotPossible(f"not the oldest of its channel: {move}")
    s.network.remove(envelope)
    _arrive(s, envelope)


def _overtake(s: Scene, move: Move) -> None:
    envelope = _find(s, s.network, move, behind=True)
    s.spend("overtake")
    s.sometimes.append("a message overtook another")
    s.network.remove(envelope)
    _arrive(s, envelope)


def _repeat(s: Scene, move: Move) -> None:
    envelope = _find(s, s.network, move)
    s.spend("repeat")
    s.sometimes.append("a message came twice")
    s.network.remove(envelope)
    s.echoes.append(envelope)
    _arrive(s, envelope)


def _echo(s: Scene, move: Move) -> None:
    envelope = _find(s, s.echoes, move)
    s.echoes.remove(envelope)
    _arrive(s, envelope)


def _lose(s: Scene, move: Move) -> None:
    envelope = _find(s, s.network, move)
    if isinstance(envelope.body, PeerUp | Reaped):
        raise NotPossible("the driver says this itself; it is not lost")
    s.spend("lose")
    s.sometimes.append("a message was lost")
    s.network.remove(envelope)


def _compute(s: Scene, move: Move) -> None:
    p = s.prefill(move.who)
    room = s.room(p.jobs, move.ticket)
    if p.jobs[room].done == p.jobs[room].order.admitted.tokens:
        raise NotPossible(f"{room} is computed")
    s.check(proc.require_prefix, p, room, s.tenant(room))
    p, message = proc.compute(p, room, s.bounds.chunk, s.tenant(room), s.ticket(room))
    s.tell(p, message)


def _compute_fails(s: Scene, move: Move) -> None:
    p = s.prefill(move.who)
    room = s.room(p.jobs, move.ticket)
    s.spend("fail")
    s.sometimes.append("a forward pass failed")
    s.tell(replace(p, jobs=p.jobs.delete(room)), ComputeFailed(room, "no luck"))


def _write(s: Scene, writes: tuple[Write, ...], move: Move) -> Write:
    """The oldest write that the move names: of this request and, where it says so, this part."""
    for write in writes:
        if s.minted.get(write.room) == move.ticket and move.what in ("", write.part):
            return write
    raise NotPossible(f"no such write is on its way: {move}")


def _writer(s: Scene, move: Move) -> PrefillProcess:
    p = s.processes[s.place(move.who)]
    if not isinstance(p, PrefillProcess):
        raise NotPossible(f"{move.who} writes nothing")
    return p


def _target(s: Scene, write: Write) -> DecodeProcess | None:
    """The incarnation whose pages the write is for, while its process is there."""
    target = s.processes[s.place(write.reservation.decode.name)]
    return target if isinstance(target, DecodeProcess) and target.ref == write.reservation.decode else None


def _reach(s: Scene, p: PrefillProcess, write: Write) -> None:
    """I1, I2: the bytes come from their room's source pages and get into the pages of that room."""
    s.check(proc.require_source, p, write)
    target = _target(s, write)
    if target is not None:
        if target.state.phase(write.room) == "quarantined":
            s.sometimes.append("a write landed in quarantine")
        s.check(proc.require_own_pages, target, write)
        s.put(proc.copy_in(target, write, p.source))


def _land(s: Scene, move: Move) -> None:
    p = _writer(s, move)
    write = _write(s, p.writes, move)
    _reach(s, p, write)
    after, message = proc.landed(p, write)
    if p.crashed:
        s.sometimes.append("a write landed after its writer had crashed")
        s.put(after)
    else:
        s.tell(after, message)


def _write_fails(s: Scene, move: Move) -> None:
    p = s.prefill(move.who)
    write = _write(s, p.writes, move)
    s.spend("doubt")
    s.sometimes.append("a write failed")
    p, message = proc.write_failed(p, write)
    s.tell(p if _target(s, write) else proc.target_reaped(p, write.reservation.decode), message)


def _land_late(s: Scene, move: Move) -> None:
    p = _writer(s, move)
    page = _write(s, p.late, move)
    _reach(s, p, page)
    s.sometimes.append("a failed write landed all the same")
    s.put(proc.landed_late(p, page))


def _verify(s: Scene, move: Move) -> None:
    p = s.decode(move.who)
    p, message = proc.verify(p, s.room(p.verifying, move.ticket), s.decisions)
    s.tell(p, message)


def _generate(s: Scene, move: Move) -> None:
    p = s.decode(move.who)
    room = s.room(p.rows, move.ticket)
    ticket, row = s.ticket(room), p.rows[room]
    if row.made > 0:
        broken = proc.broken_frame(p, room, row.run.pages) if s.decisions.check_frames else None
        if broken:
            s.tell(replace(p, rows=p.rows.delete(room)), broken)
            return
        s.sometimes.append("attention read its pages")
        s.check(proc.require_own_bytes, p, row.run, s.bounds.prompt(ticket))
        s.harm(proc.require_nothing_foreign, p, row.run, s.tenant(room))
    p, message = proc.generate(p, room, ticket)
    s.tell(p, message)


def _flip(s: Scene, move: Move) -> None:
    p = s.decode(move.who)
    room = s.room(p.rows, move.ticket)
    s.spend("flip")
    page = p.rows[room].run.pages[0]
    foreign = move.what == "foreign"
    s.tell(replace(p, rows=p.rows.delete(room)), FrameBroken(room, page, 0, "garbage", foreign))


def _timer(s: Scene, move: Move) -> None:
    for ref, timer in sorted(s.timers, key=str):
        if (str(ref), timer.kind, s.minted.get(timer.room)) == (move.who, move.what, move.ticket):
            break
    else:
        raise NotPossible(f"no such timer: {move}")
    s.timers.remove((ref, timer))
    if ref == ROUTER:
        s.tell_router(timer)
        return
    process = s.running(ref.name)
    s.tell(process, timer)


def _early(s: Scene, move: Move) -> None:
    s.spend("early")
    s.sometimes.append("a timer fired early")
    _timer(s, move)


def _crash(s: Scene, move: Move) -> None:
    process = s.running(move.who)
    s.spend("crash")
    s.sometimes.append("a worker crashed")
    s.put(replace(process, crashed=True))


def _reap(s: Scene, move: Move) -> None:
    process = s.processes[s.place(move.who)]
    if process is None or not process.crashed:
        raise NotPossible(f"{move.who} has not crashed")
    s.reap(process.ref)


def _restart(s: Scene, move: Move) -> None:
    i = s.place(move.who)
    if s.processes[i] is not None:
        raise NotPossible(f"{move.who} is there")
    s.epochs[i] += 1
    ref = WorkerRef(move.who, s.epochs[i])
    is_prefill = move.who.startswith("p")
    process: Process = (proc.start_prefill if is_prefill else proc.start_decode)(ref, ROUTER, s.bounds)
    s.processes[i] = process
    capacity = Capacity(process.state.pool.capacity, s.bounds.page_size, s.bounds.rows)
    s.tell_router(WorkerUp(ref, "prefill" if is_prefill else "decode", capacity, "here"))


MOVES: Mapping[Kind, Callable[[Scene, Move], None]] = {
    "submit": _submit,
    "hang-up": _hang_up,
    "deliver": _deliver,
    "overtake": _overtake,
    "repeat": _repeat,
    "echo": _echo,
    "lose": _lose,
    "compute": _compute,
    "compute-fails": _compute_fails,
    "land": _land,
    "write-fails": _write_fails,
    "land-late": _land_late,
    "verify": _verify,
    "generate": _generate,
    "flip": _flip,
    "timer": _timer,
    "early": _early,
    "crash": _crash,
    "reap": _reap,
    "restart": _restart,
}
