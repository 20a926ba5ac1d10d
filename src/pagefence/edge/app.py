"""One request, from its head to the last byte of its answer. Every step of it is called here, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from pagefence.edge.beside import LARGE
from pagefence.edge.call import Call, Operation, Tenant
from pagefence.edge.demand import Admitted
from pagefence.edge.front.connection import Connection
from pagefence.edge.front.front import mint
from pagefence.edge.front.replies import retry_after
from pagefence.edge.mark import Mark, Recorder
from pagefence.edge.refusal import Refusal, body_of
from pagefence.edge.settings import Settings
from pagefence.edge.shown import promised
from pagefence.edge.side import Side
from pagefence.edge.steps import Headers, Steps, Tokenize, Watch
from pagefence.edge.turns import Turns
from pagefence.edge.unfit import unfit_content, unfit_head
from pagefence.edge.upstream.balancer import Answer, Balancer
from pagefence.edge.upstream.failures import Failure
from pagefence.edge.wire.heads import RequestHead

_PATHS = {f"/v1/{operation.value}": operation for operation in Operation}
TOKENIZE = "/tokenize"
_JSON = {"content-type": "application/json"}
# Of what upstream says only this goes on: another header may name a host, a worker, a cookie.
_PASSED_ON = (b"content-type", b"retry-after", b"openai-processing-ms")


class Edge:
    """`handle` is what the front calls. Steps, settings and upstreams stay those of its beginning for a request."""

    def __init__(self, settings: Settings, steps: Steps, balancer: Balancer, recorder: Recorder, side: Side) -> None:
        self.settings, self.steps, self.balancer = settings, steps, balancer
        self._recorder, self._side = recorder, side
        self._turns = Turns(settings.requests, settings.tenant_requests)
        self._busy, self._retired = 0, list[Callable[[], None]]()
        key = settings.authorization
        self._key = b"" if key is None else f"authorization: {key}\r\n".encode("ascii")

    async def handle(self, head: RequestHead, client: Connection) -> None:
        """Answer it, whatever happens; and note how it ended, once (I5)."""
        mark = self._recorder.begin(mint())
        self._busy += 1
        try:
            operation = _PATHS.get(head.path)
            if head.path == TOKENIZE and head.method == "POST" and self.steps.tokenize is not None:
                refusal = await self._tokenize(self.steps.tokenize, head, client, mark)
                if refusal is not None:
                    self._refuse(refusal, head, client, mark)
                return
            if operation is None or head.method == "OPTIONS":
                self._side.answer(head, client, mark, known=operation is not None)
                return
            mark.operation = operation.value
            refusal = await self._answer(operation, head, client, mark)
            if refusal is not None:
                self._refuse(refusal, head, client, mark)
        except asyncio.CancelledError:
            if client.gone:
                mark.status, mark.cut = 499, "client"
                raise
            # Whoever cancelled it, its client waits, and must not be left without an answer.
            self._refuse(
                Refusal(503, "draining", "the edge gave this up; try again", retry_after_s=1), head, client, mark
            )
        except Exception as error:
            # An error of ours must not look like an answer, nor say what it was about.
            self._recorder.broke(mark, error)
            self._refuse(Refusal(500, "internal_error", "the edge failed"), head, client, mark)
        finally:
            self._recorder.end(mark)
            self._busy -= 1
            self._let_go()

    def retire(self, then: Callable[[], None]) -> None:
        """No new request comes here any more. `then` is called when the last one that began here has ended."""
        self._retired.append(then)
        self._let_go()

    def _let_go(self) -> None:
        while self._retired and not self._busy:
            self._retired.pop()()

    async def _answer(self, operation: Operation, head: RequestHead, client: Connection, mark: Mark) -> Refusal | None:
        """A refusal where one is due; None when an answer went out."""
        wrong = _wrong_method(operation, head)
        if wrong is not None:
            return wrong

        async def answered(tenant: Tenant) -> Refusal | None:
            call = await self._asked(operation, tenant, head, client, mark)
            if isinstance(call, Refusal):
                return call
            admitted = None if operation is Operation.MODELS else await self.steps.admit(call)
            if isinstance(admitted, Refusal):
                return admitted
            return await self._pass_on(call, admitted, head, client, mark)

        return await self._in_turn(head, client, mark, answered)

    async def _tokenize(self, tokenize: Tokenize, head: RequestHead, client: Connection, mark: Mark) -> Refusal | None:
        """Tokens of a text. Only for tenants: it costs time."""
        mark.operation = TOKENIZE[1:]  # counted and told as any other: keys can be tried here too

        async def tokenized(tenant: Tenant) -> Refusal | None:
            raw = await client.body()
            body = raw if isinstance(raw, Refusal) else await self._read(tenant, raw, head.fields)
            said = body if isinstance(body, Refusal) else await tokenize(body, tenant.tag)
            if isinstance(said, Refusal):
                return said
            mark.status, mark.bytes_out = 200, len(said)
            client.send(200, {**_JSON, "x-request-id": mark.request_id, **self._side.cors(head)}, said)
            return None

        return await self._in_turn(head, client, mark, tokenized)

    async def _in_turn(
        self, head: RequestHead, client: Connection, mark: Mark, work: Callable[[Tenant], Awaitable[Refusal | None]]
    ) -> Refusal | None:
        """What is done for a tenant, while it has one of its places."""
        tenant = self.steps.tenant(head.fields, client.peer)
        if isinstance(tenant, Refusal):
            return tenant
        mark.tenant = tenant.tag
        refused = self._turns.take(tenant)
        if refused is not None:
            return refused
        try:
            return await work(tenant)
        finally:
            self._turns.give(tenant)

    async def _read(self, tenant: Tenant, raw: bytes, headers: Headers) -> dict[str, Any] | Refusal:
        if len(raw) <= LARGE:
            return self.steps.read(raw, headers)
        return await self.steps.beside.run(tenant.tag, len(raw), self.steps.read, raw, headers)

    async def _asked(
        self, operation: Operation, tenant: Tenant, head: RequestHead, client: Connection, mark: Mark
    ) -> Call | Refusal:
        if operation is Operation.MODELS:
            return Call(operation, tenant, mark.request_id, {}, None, False)
        raw = await client.body()
        if isinstance(raw, Refusal):
            return raw
        mark.read()
        size = len(raw)
        if size <= LARGE:
            call = self._understood(operation, tenant, mark.request_id, raw, head.fields)
        else:
            call = await self.steps.beside.run(
                tenant.tag, size, self._understood, operation, tenant, mark.request_id, raw, head.fields
            )
        if isinstance(call, Refusal):
            return call
        mark.model, mark.stream = call.model, call.stream
        return call if size <= LARGE else replace(call, size=size)

    def _understood(
        self, operation: Operation, tenant: Tenant, request_id: str, raw: bytes, headers: Headers
    ) -> Call | Refusal:
        body = self.steps.read(raw, headers)
        return body if isinstance(body, Refusal) else self.steps.clean(operation, tenant, request_id, body, headers)

    async def _pass_on(
        self, call: Call, admitted: Admitted | None, head: RequestHead, client: Connection, mark: Mark
    ) -> Refusal | None:
        # Not beside the loop, however large: it is one piece, which holds the interpreter's lock in a thread too.
        outgoing = self.steps.outgoing(call, admitted, head.fields)
        method = "GET" if admitted is None else "POST"
        headers = b"".join([b"%b: %b\r\n" % pair for pair in outgoing.headers]) + self._key
        watch = None if admitted is None else await self.steps.watch(admitted)
        if isinstance(watch, Refusal):
            return watch
        mark.asked()
        if watch is not None:
            watch.sent(mark.asked_at)
        whole = False
        try:
            answer = await self.balancer.ask(method, f"/v1/{call.operation.value}", headers, outgoing.body)
            try:
                mark.upstream = answer.upstream.name
                refusal = unfit_head(answer.head)
                if refusal is not None:
                    return refusal
                stream = answer.head.headers.get(b"content-type", b"").lower().startswith(b"text/event-stream")
                if watch is not None:
                    watch.begins(answer.head.status, stream, perf_counter())
                if stream and not (watch is not None and watch.buffered):
                    refusal = await self._stream(answer, watch, head, client, mark)
                else:
                    refusal = await self._whole(answer, watch, head, client, mark)
                whole = refusal is None
                return refusal
            finally:
                answer.close()
        except Failure as failure:
            mark.cut = "upstream" if client.begun else None
            return Refusal(failure.status, failure.code, f"{failure}.", retry_after_s=_again(failure))
        finally:
            if watch is not None and not whole:
                watch.ends(False, perf_counter())

    async def _stream(
        self, answer: Answer, watch: Watch | None, head: RequestHead, client: Connection, mark: Mark
    ) -> Refusal | None:
        """Each part goes out as it comes. The head of the reply waits for the first: until then we can still refuse."""
        while True:
            part = await answer.part()
            if not mark.first_byte_at:
                mark.first_byte()
            passed = part or b"" if watch is None else _seen(watch, part)
            if isinstance(passed, Refusal):
                mark.cut = "watch" if client.begun else None
                return passed
            if not client.begun and (passed or part is None):
                mark.status = answer.head.status
                client.begin(mark.status, self._headers(answer, head, mark))
            if passed:
                mark.bytes_out += len(passed)
                client.write(passed)
            if part is None:
                client.end()
                return None
            if client.full:
                await client.drained()

    async def _whole(
        self, answer: Answer, watch: Watch | None, head: RequestHead, client: Connection, mark: Mark
    ) -> Refusal | None:
        """The whole answer, then the reply: nothing of an answer that breaks off or is quarantined goes out."""
        parts, size = list[bytes](), 0
        while True:
            part = await answer.part()
            if not mark.first_byte_at:
                mark.first_byte()
            passed = part or b"" if watch is None else _seen(watch, part)
            if isinstance(passed, Refusal):
                return passed
            size += len(passed)
            if size > self.settings.answer_bytes:
                return Refusal(502, "upstream_too_large", "the upstream's answer is larger than limits.answer_bytes.")
            parts.append(passed)
            if part is None:
                break
        content = b"".join(parts)
        refusal = unfit_content(answer.head, content)
        if refusal is not None:
            return refusal
        room = self.steps.room()
        if room is not None and mark.operation == Operation.MODELS.value and answer.head.status == 200:
            listing = promised(content, room.total)
            if listing is None:
                return Refusal(502, "upstream_malformed", "the upstream's list of models cannot be read.")
            content = listing
        mark.status, mark.bytes_out = answer.head.status, len(content)
        client.send(mark.status, self._headers(answer, head, mark), content)
        return None

    def _headers(self, answer: Answer, head: RequestHead, mark: Mark) -> dict[str, str]:
        said = answer.head.headers
        shown = {name.decode(): said[name].decode("latin-1") for name in _PASSED_ON if name in said}
        shown["x-request-id"] = mark.request_id
        if b"origin" in head.headers:
            shown |= self._side.cors(head)
        return shown

    def _refuse(self, refusal: Refusal, head: RequestHead, client: Connection, mark: Mark) -> None:
        mark.code = refusal.code
        if client.gone:
            return
        content = body_of(refusal)
        if client.begun:
            # Too late for a status. An event says what happened, and the missing end that this is no whole answer.
            client.break_off(b"data: " + content + b"\n\n")
            return
        mark.status = refusal.status
        shown = {**_JSON, "x-request-id": mark.request_id, **retry_after(refusal)}
        if refusal.status == 405:
            shown["allow"] = "GET" if mark.operation == Operation.MODELS.value else "POST"
        if refusal.status == 401:
            shown["www-authenticate"] = "Bearer"
        client.send(refusal.status, shown | self._side.cors(head), content)


def _seen(watch: Watch, part: bytes | None) -> bytes | Refusal:
    return watch.ends(True, perf_counter()) if part is None else watch.part(part, perf_counter())


def _wrong_method(operation: Operation, head: RequestHead) -> Refusal | None:
    right = "GET" if operation is Operation.MODELS else "POST"
    if head.method != right:
        return Refusal(405, "method_not_allowed", f"{head.path} is asked with {right}.")
    if head.headers.get(b"expect", b"100-continue").lower() != b"100-continue":
        return Refusal(417, "unsupported_expectation", "only 100-continue can be expected.", "expect")
    return None


def _again(failure: Failure) -> int | None:
    return 1 if failure.status == 503 else None
