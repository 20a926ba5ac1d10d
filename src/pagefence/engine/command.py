"""`pagefence serve`: flags to settings."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from pagefence.mistakes import Mistake
from pagefence.models import ModelError, resolve
from pagefence.protocol.decisions import Decisions

serve_app = typer.Typer(add_completion=False)
_RECORD_HELP = (
    "Write what every machine receives and does into this empty folder, to check it against the model. "
    "For test fleets: the files hold prompts, and the key of this fleet's receipts."
)
_PORT_HELP = "Port of /server_info of {0}-0; {0}-1 has the next one, and so on; 0 picks free ones."
_TRANSFER_HELP = (
    "How KV gets from prefill to decode: shared memory, or Mooncake's engine over TCP, which neither encrypts nor "
    "authenticates: for trusted networks only."
)
_MODE_HELP = (
    "exact: weights dequantised to --dtype. quantised: decode keeps a GGUF file's 4- and 8-bit weights as they are, in "
    "less memory; slower from about 32 streams on."
)
_KEYS_HELP = "File with one tenant=key a line. Also by environment: PAGEFENCE_API_KEYS=tenant=key,..."


class CannotServe(Mistake):
    """The fleet could not start; the message says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class World:
    """What the lab changes about a fleet. The product passes none."""

    decisions: Decisions | None = None
    worker_command: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@serve_app.command()
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="Known name, GGUF file or Hugging Face folder.")] = "smollm2-135m-instruct",
    model_name: Annotated[str | None, typer.Option(help="Name in the API; default: the model's own.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the API; 0 picks a free one.", min=0, max=65535)] = 8000,
    prefill_workers: Annotated[int, typer.Option(help="Processes that compute prompts; each loads the model.")] = 1,
    decode_workers: Annotated[int, typer.Option(help="Processes that generate; each loads the model.")] = 1,
    prefill_port: Annotated[int, typer.Option(help=_PORT_HELP.format("prefill"), min=0, max=65535)] = 0,
    decode_port: Annotated[int, typer.Option(help=_PORT_HELP.format("decode"), min=0, max=65535)] = 0,
    context_tokens: Annotated[int, typer.Option("--context", help="Context length in tokens.")] = 2048,
    kv_pool_tokens: Annotated[
        int | None, typer.Option(help="Cap on each pool; default: what memory leaves, up to a full batch.", min=1)
    ] = None,
    prefill_pool_tokens: Annotated[int | None, typer.Option(help="Cap on prefill's pool alone.", min=1)] = None,
    decode_pool_tokens: Annotated[int | None, typer.Option(help="Cap on decode's pool alone.", min=1)] = None,
    page_size: Annotated[int, typer.Option(help="Tokens in a page.")] = 64,
    chunk_tokens: Annotated[int, typer.Option(help="Tokens in one forward pass of prefill.")] = 256,
    max_requests: Annotated[int, typer.Option(help="Rows of each decode worker's batch.")] = 16,
    max_in_flight: Annotated[int, typer.Option(help="Requests taken at a time; more get 429.")] = 256,
    drain_seconds: Annotated[
        float, typer.Option(help="How long requests in flight may take after SIGTERM or Ctrl-C; a second one ends now.")
    ] = 30.0,
    prefix_cache: Annotated[
        bool, typer.Option(help="Keep full prompt pages for later prompts of the same tenant (I7).")
    ] = True,
    headroom: Annotated[float, typer.Option(help="The pool must cover context x headroom (I8).")] = 1.25,
    limit: Annotated[int | None, typer.Option(help="Declare and enforce a limit below the context (I8).")] = None,
    mode: Annotated[Literal["exact", "quantised"], typer.Option(help=_MODE_HELP)] = "exact",
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="auto: bfloat16 where the hardware multiplies it.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(help="Threads that the workers share; default: all cores.", min=1)
    ] = None,
    api_keys: Annotated[Path | None, typer.Option(help=_KEYS_HELP)] = None,
    open_access: Annotated[bool, typer.Option("--open", help="No API key asked; loopback only, one tenant.")] = False,
    transfer: Annotated[Literal["shm", "mooncake"], typer.Option(help=_TRANSFER_HELP)] = "shm",
    transfer_host: Annotated[
        str, typer.Option(help="With mooncake: the address at which prefill reaches decode's memory.")
    ] = "127.0.0.1",
    record: Annotated[Path | None, typer.Option(help=_RECORD_HELP)] = None,
    announce: Annotated[Path | None, typer.Option(help="Write the URLs to this file once all ports listen.")] = None,
) -> None:
    """Serve a model with prefill and decode apart, isolated by construction, behind an OpenAI-compatible API.

    Example: pagefence serve --open --context 2048 --kv-pool-tokens 2560
    """
    try:
        from pagefence.engine.api.tenants import load_tenants
        from pagefence.engine.serve import serve as run_fleet
        from pagefence.engine.settings import Settings
        from pagefence.engine.supervisor import StartUpError
    except ModuleNotFoundError as error:
        message = f"serving needs the engine: pip install 'pagefence[engine]' ({error.name} is missing)"
        raise CannotServe(message) from None
    flags: dict[str, Any] = {
        "mode": mode,
        "dtype": dtype,
        "context": context_tokens,
        "page_size": page_size,
        "prefill_pool_tokens": prefill_pool_tokens or kv_pool_tokens,
        "decode_pool_tokens": decode_pool_tokens or kv_pool_tokens,
        "chunk_tokens": chunk_tokens,
        "prefill_workers": prefill_workers,
        "decode_workers": decode_workers,
        "max_requests": max_requests,
        "max_in_flight": max_in_flight,
        "shutdown_s": drain_seconds,
        "prefix_cache": prefix_cache,
        "threads": threads or len(os.sched_getaffinity(0)),
        "headroom": headroom,
        "limit": limit,
        "host": host,
        "port": port,
        "prefill_port": prefill_port,
        "decode_port": decode_port,
        "transfer": transfer,
        "transfer_host": transfer_host,
        "record": str(record.resolve()) if record else None,
    }
    world = context.obj if isinstance(context.obj, World) else World()
    try:
        path = resolve(model)
        named = {"model": str(path), "model_name": model_name or _name_of(path)}
        settings = msgspec.convert({**named, **flags, **world.settings}, Settings)
        tenants = load_tenants(os.environ, file=api_keys, open_access=open_access, host=host)
        code = run_fleet(settings, tenants, announce, world.decisions, world.worker_command)
    except OSError as error:
        raise CannotServe(_said(error)) from error
    except (StartUpError, ModelError, ValueError) as error:
        raise CannotServe(str(error)) from error
    raise typer.Exit(code)


def _said(error: OSError) -> str:
    """In words, without the number."""
    words = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        return f"{words}; choose another one with --port"
    return f"{error.filename}: {words}" if error.filename else words


def _name_of(path: Path) -> str:
    return (path.stem if path.is_file() else path.name).lower()
