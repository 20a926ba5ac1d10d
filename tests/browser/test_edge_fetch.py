"""`fetch` in a real browser: pages that may ask get answers and streams, others get nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.edge.served import KEY, Served, served
from tests.edge.soak.words import Wish

pytestmark = pytest.mark.browser

WISH = Wish("nonce-000000000000000000000003", parts=6, pause_ms=100)
# What a page does: asks, reads what comes piece by piece, and says what it saw or why not.
ASK = """async ([url, key, body, method]) => {
  const headers = {'Authorization': 'Bearer ' + key};
  if (body) headers['Content-Type'] = 'application/json';
  const began = performance.now();
  try {
    const answer = await fetch(url, {method, headers, body: body ? JSON.stringify(body) : undefined});
    const reader = answer.body.getReader(), decoder = new TextDecoder();
    let text = '', pieces = 0, first = 0;
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      pieces += 1;
      first = first || performance.now() - began;
      text += decoder.decode(value, {stream: true});
    }
    const id = answer.headers.get('x-request-id');
    return {status: answer.status, text, pieces, id, waited: performance.now() - began - first};
  } catch (error) {
    return {failed: error.name};
  }
}"""
LEAVE = """async ([url, key, body]) => {
  const stop = new AbortController();
  const headers = {'Authorization': 'Bearer ' + key, 'Content-Type': 'application/json'};
  const answer = await fetch(url, {method: 'POST', headers, body: JSON.stringify(body), signal: stop.signal});
  await answer.body.getReader().read();
  stop.abort();
}"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page</title>")

    def log_message(self, *given: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class World:
    edge: Served
    allowed: str
    other: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    pages = [ThreadingHTTPServer(("127.0.0.1", 0), _Page) for _ in range(2)]
    for each in pages:
        threading.Thread(target=each.serve_forever, daemon=True).start()
    allowed, other = (f"http://127.0.0.1:{each.server_address[1]}" for each in pages)
    with served(tmp_path_factory.mktemp("edge"), origins=[allowed]) as edge:
        yield World(edge, allowed, other)
    for each in pages:
        each.shutdown()
        each.server_close()


@pytest.fixture
def ask(browser: Any, world: World) -> Iterator[Any]:
    page = browser.new_page()

    def asked(origin: str, path: str, body: object = None, method: str = "POST", key: str = KEY) -> dict[str, Any]:
        page.goto(origin)
        return dict(page.evaluate(ASK, [f"{world.edge.url}{path}", key, body, method]))

    yield asked
    page.close()


def body_of(text: str = WISH.text, **more: object) -> dict[str, object]:
    return {"model": "toy", "messages": [{"role": "user", "content": text}], **more}


def test_a_page_that_may_ask_gets_an_answer_and_its_id(ask: Any, world: World) -> None:
    """With headers that need a preflight."""
    said = ask(world.allowed, "/v1/chat/completions", body_of())
    assert said["status"] == 200
    assert said["text"].count(WISH.nonce) == WISH.parts
    assert said["id"].startswith("edge-")
    assert ask(world.allowed, "/v1/models", method="GET")["status"] == 200


def test_a_stream_is_read_as_it_is_made(ask: Any, world: World) -> None:
    said = ask(world.allowed, "/v1/chat/completions", body_of(stream=True))
    assert said["status"] == 200
    assert said["text"].endswith("data: [DONE]\n\n")
    assert said["pieces"] >= WISH.parts / 2
    assert said["waited"] > WISH.parts * WISH.pause_ms / 2, "all of it came at once"


def test_a_page_that_may_ask_reads_why_not(ask: Any, world: World) -> None:
    long = ask(world.allowed, "/v1/chat/completions", body_of(" and" * 9000, stream=True))
    assert (long["status"], "context_length_exceeded" in long["text"]) == (400, True)
    nobody = ask(world.allowed, "/v1/chat/completions", body_of(), key="nobodys-key-0123456789")
    assert (nobody["status"], "invalid_api_key" in nobody["text"]) == (401, True)


def test_another_page_gets_nothing_and_upstream_hears_nothing(ask: Any, world: World) -> None:
    before = world.edge.metrics().sum("pagefence_edge_requests_total", status="200")
    assert ask(world.other, "/v1/chat/completions", body_of()) == {"failed": "TypeError"}
    assert ask(world.other, "/v1/models", method="GET") == {"failed": "TypeError"}
    assert world.edge.metrics().sum("pagefence_edge_requests_total", status="200") == before


def test_a_stream_that_breaks_off_is_an_error_there(ask: Any, world: World) -> None:
    broken = ask(world.allowed, "/v1/chat/completions", body_of("please break off parts=9 pause=50", stream=True))
    assert broken == {"failed": "TypeError"}


def test_a_page_that_leaves_costs_upstream_nothing_more(browser: Any, world: World) -> None:
    page = browser.new_page()
    page.goto(world.allowed)
    path = f"{world.edge.url}/v1/chat/completions"
    page.evaluate(LEAVE, [path, KEY, body_of("parts=200 pause=20", stream=True)])
    page.close()
    edge = world.edge
    edge.guard.until(lambda: edge.metrics().sum("pagefence_edge_upstream_connections", state="busy") == 0)
