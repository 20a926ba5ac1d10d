"""Whatever a server does - nothing, nonsense, half an answer - comes back as facts with a reason, no traceback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from pagefence.fleet import Answer, Fleet, FleetFacts, Keys, Request, Target
from pagefence.fleet.describe import describe
from pagefence.probes.gate import gate
from pagefence.verdict import decide
from tests.probes.toy import served

GOOD = {
    "engine": "pagefence",
    "max_total_num_tokens": 2560,
    "context_length": 2048,
    "max_req_input_len": 2042,
    "page_size": 64,
}


def facts_of(reply: Any) -> FleetFacts:
    """Facts of a fleet whose decode node is sound and whose prefill node answers `reply`."""

    async def decode(request: HttpRequest) -> Response:
        return JSONResponse(GOOD | {"disaggregation_mode": "decode"})

    async def prefill(request: HttpRequest) -> Response:
        if reply == "hang":
            await asyncio.sleep(30)
        return reply if isinstance(reply, Response) else JSONResponse(reply)

    routes = [Route(f"/{name}/{path}", f) for name, f in (("d", decode), ("p", prefill)) for path in ("server_info",)]
    with served(Starlette(routes=routes)) as url:

        async def ask() -> FleetFacts:
            async with Fleet(Target(None, (f"{url}/p",), (f"{url}/d",)), Keys(), 0.5) as fleet:
                return await describe(fleet)

        return asyncio.run(ask())


@pytest.mark.parametrize(
    "reply",
    [
        {},
        GOOD | {"max_total_num_tokens": None},
        GOOD | {"max_total_num_tokens": 0},
        GOOD | {"max_total_num_tokens": -1},
        GOOD | {"max_total_num_tokens": 2560.5},
        GOOD | {"max_total_num_tokens": True},
        GOOD | {"max_total_num_tokens": "None"},
        GOOD | {"max_total_num_tokens": "2560"},
        [GOOD],
        Response(b'{"max_total_num_tokens": 25', media_type="application/json"),
        Response(b"", media_type="application/json"),
        HTMLResponse("<html>login</html>"),
        JSONResponse(GOOD, 401),
        JSONResponse(GOOD, 500),
        RedirectResponse("http://127.0.0.1:9/elsewhere"),
        "hang",
    ],
    ids=lambda reply: type(reply).__name__ if isinstance(reply, Response) else str(reply),
)
def test_a_pool_that_cannot_be_read_is_inconclusive(reply: Any) -> None:
    facts = facts_of(reply)
    prefill = next(n for n in facts.nodes if n.url.endswith("/p"))
    assert prefill.pool.value is None
    assert prefill.pool.problem
    verdict = decide([gate(facts)])
    assert (verdict.name, verdict.exit_code) == ("INCONCLUSIVE", 3)


def test_a_sound_pair_passes_the_gate() -> None:
    facts = facts_of(GOOD | {"disaggregation_mode": "prefill"})
    assert decide([gate(facts)]).exit_code == 0


def test_one_role_alone_is_inconclusive() -> None:
    assert decide([gate(facts_of(GOOD | {"disaggregation_mode": "decode"}))]).exit_code == 3


def test_nodes_that_disagree_on_the_context_fail() -> None:
    facts = facts_of(GOOD | {"context_length": 1024, "disaggregation_mode": "prefill"})
    assert any(e.check == "context" for e in gate(facts).evidence)
    assert decide([gate(facts)]).exit_code == 1


def test_nobody_at_the_address_is_inconclusive() -> None:
    async def ask() -> FleetFacts:
        async with Fleet(Target("http://127.0.0.1:9"), Keys(), 1.0) as fleet:
            return await describe(fleet)

    facts = asyncio.run(ask())
    assert "could not be reached (connection refused: nothing listens there)" in facts.problems[0]
    (finding,) = gate(facts).evidence  # what follows from it is no finding of its own
    assert finding.check == "facts"
    assert decide([gate(facts)]).exit_code == 3


def ask(respond: Any, *, stream: bool = False, timeout_s: float = 2.0) -> Answer:
    async def endpoint(request: HttpRequest) -> Response:
        if isinstance(respond, Response):
            return respond
        made: Response = await respond(request)
        return made

    async def go(url: str) -> Answer:
        async with Fleet(Target(url), Keys("ka", "kb"), timeout_s) as fleet:
            return await fleet.complete(Request("hi", 4, stream=stream), "b")

    with served(Starlette(routes=[Route("/v1/completions", endpoint, methods=["POST"])])) as url:
        return asyncio.run(go(url))


def events(*lines: str) -> Response:
    async def body() -> AsyncIterator[str]:
        for line in lines:
            yield f"data: {line}\n\n"

    return StreamingResponse(body(), media_type="text/event-stream")


def test_a_stream_is_read_to_its_end_with_usage() -> None:
    answer = ask(
        events(
            '{"choices": [{"text": "a "}]}',
            '{"choices": [{"text": "b", "finish_reason": "stop"}]}',
            '{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2,'
            ' "prompt_tokens_details": {"cached_tokens": 1}}}',
            "[DONE]",
        ),
        stream=True,
    )
    assert answer.answered
    assert (answer.text, answer.finish_reason) == ("a b", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (3, 2, 1)
    assert answer.ttft_s is not None


def test_an_error_event_in_a_stream_is_no_answer() -> None:
    late = ask(events('{"error": {"message": "maximum context length", "code": 400}}', "[DONE]"), stream=True)
    assert (late.status, late.answered, late.refused_as_too_long) == (200, False, False)
    dead = ask(events('{"choices": [{"text": "a"}]}', '{"error": {"message": "worker died"}}'), stream=True)
    assert (dead.begun, dead.answered, dead.text) == (True, False, "a")


def streamed(body: bytes, charset: str = "") -> Response:
    async def one_by_one() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 7):
            yield body[start : start + 7]

    return StreamingResponse(one_by_one(), headers={"content-type": f"text/event-stream{charset}"})


_SAID = '{"choices": [{"text": "own words", "finish_reason": "stop"}]}'


@pytest.mark.parametrize("charset", ["rot13", "hex", "idna", "utf-16", "zlib"])
def test_a_stream_is_utf_8_whatever_its_header_says(charset: str) -> None:
    body = f"data: {_SAID}\n\ndata: [DONE]\n\n".encode()
    assert ask(streamed(body, f"; charset={charset}"), stream=True).text == "own words"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["\u2028", "\u0085", ""])
def test_lines_of_a_stream_end_where_json_cannot(mark: str, end: str) -> None:
    said = _SAID.replace("own", f"own{mark}")
    answer = ask(streamed(f"data: {said}{end}{end}data: [DONE]{end}{end}".encode()), stream=True)
    assert (answer.problem, answer.text) == (None, f"own{mark} words")


def test_a_letter_that_was_cut_in_a_stream_costs_no_other_word() -> None:
    answer = ask(
        streamed(b"data: " + _SAID.encode().replace(b"own", b"\xe2\x82 own") + b"\n\ndata: [DONE]"), stream=True
    )
    assert answer.text.endswith("own words")
    assert answer.answered


def test_a_stream_of_one_endless_line_is_not_kept() -> None:
    async def endless(request: HttpRequest) -> Response:
        async def body() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * (1 << 20)
                await asyncio.sleep(0)  # else the server never learns that its client has gone, and sends for ever

        return StreamingResponse(body(), media_type="text/event-stream")

    answer = ask(endless, stream=True, timeout_s=30.0)
    assert answer.problem == "the stream does not end"


@pytest.mark.parametrize("number", [2**63, 10**30, 10**300])
def test_a_count_that_no_prompt_can_have_is_none(number: int) -> None:
    usage = f'{{"prompt_tokens": {number}, "completion_tokens": {number}, "total_tokens": {number}}}'
    answer = ask(Response(_SAID[:-1] + f', "usage": {usage}}}', media_type="application/json"))
    assert answer.answered
    assert (answer.prompt_tokens, answer.completion_tokens, answer.total_tokens) == (None, None, None)


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    answer = ask(events('{"choices": [{"text": "a"}]}'), stream=True)
    assert answer.problem == "the stream broke off"


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "maximum context length is 5", "type": "BadRequestError", "code": 400}},
        {"object": "error", "message": "longer than the model's context length (5)", "code": 400},
        {"error": {"message": "no", "type": "exceed_context_size_error", "code": 400}},
        {"error": {"message": "no", "type": "invalid_request_error", "code": "context_length_exceeded"}},
    ],
)
def test_refusals_of_several_engines_are_recognised(body: dict[str, object]) -> None:
    assert ask(JSONResponse(body, 400)).refused_as_too_long
    assert not ask(JSONResponse(body, 500)).refused_as_too_long


def test_a_contained_fault_names_rule_and_guard() -> None:
    error = {"message": "m", "type": "isolation_error", "code": "frame_mismatch", "rule": "I1", "guard": "page-frames"}
    answer = ask(JSONResponse({"error": error}, 500))
    assert answer.contained
    assert answer.error is not None
    assert (answer.error.rule, answer.error.guard) == ("I1", "page-frames")


@pytest.mark.parametrize("reply", [HTMLResponse("<p>"), Response(b'{"choi'), JSONResponse([1]), JSONResponse({"a": 1})])
def test_nonsense_with_status_200_is_no_answer(reply: Response) -> None:
    answer = ask(reply)
    assert answer.problem is not None
    assert not answer.answered


def test_a_hang_ends_at_the_deadline() -> None:
    async def hang(request: HttpRequest) -> Response:
        await asyncio.sleep(30)
        return Response()

    answer = ask(hang, timeout_s=0.3)
    assert answer.status is None
    assert "within 0.3 s" in str(answer.problem)


def test_the_key_goes_to_the_fleet_and_nowhere_else() -> None:
    async def echo(request: HttpRequest) -> Response:
        return JSONResponse({"choices": [{"text": request.headers["authorization"]}]})

    assert ask(echo).text == "Bearer kb"
    assert Keys("ka", "kb").redact("a ka b kb") == "a $PAGEFENCE_KEY_A b $PAGEFENCE_KEY_B"
    assert "kb" not in repr(Keys("ka", "kb"))


def routed(router: dict[str, object], readyz: dict[str, object], named: tuple[str, ...] = ()) -> FleetFacts:
    """Facts of a fleet of sound workers, `named` on the command line or not, behind a router that says these things."""

    def saying(body: dict[str, object]) -> Any:
        async def endpoint(request: HttpRequest) -> Response:
            return JSONResponse(body)

        return endpoint

    bodies: dict[str, dict[str, object]] = {
        "/server_info": {"engine": "pagefence"} | router,
        "/readyz": readyz,
        "/v1/models": {"data": [{"id": "m", "max_model_len": 2048}]},
        "/p/server_info": GOOD | {"disaggregation_mode": "prefill"},
        "/d/server_info": GOOD | {"disaggregation_mode": "decode"},
    }
    with served(Starlette(routes=[Route(path, saying(body)) for path, body in bodies.items()])) as url:
        prefill = tuple(url + path for path in named if path == "/p")
        decode = tuple(url + path for path in named if path == "/d")

        async def ask() -> FleetFacts:
            async with Fleet(Target(url, prefill, decode), Keys("a"), 2.0) as fleet:
                return await describe(fleet)

        return asyncio.run(ask())


def test_workers_that_the_router_lists_and_nobody_named_leave_the_gate_open() -> None:
    workers = [{"role": role, "url": "http://10.0.0.1"} for role in ("prefill", "prefill", "decode")]
    facts = routed({"role": "router", "workers": workers}, {"ready": True}, ("/p", "/d"))
    assert any("lists 2 prefill workers, but 1 were named" in problem for problem in facts.problems)
    assert decide([gate(facts)]).name == "INCONCLUSIVE"
    assert decide([gate(routed({"workers": workers[1:]}, {"ready": True}, ("/p", "/d")))]).name == "CLEAN"


@pytest.mark.parametrize(("info", "readyz"), [({"ready": False}, {}), ({"ready": True}, {"ready": False})])
def test_a_fleet_that_says_no_anywhere_is_not_ready(info: dict[str, object], readyz: dict[str, object]) -> None:
    assert routed(info, readyz, ("/p", "/d")).ready is False
