"""`pagefence edge`: flags and `edge.toml` to settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from pagefence.edge.edge_file import read_edge_file, upstream_key
from pagefence.edge.settings import Settings
from pagefence.files import check_writable
from pagefence.mistakes import Usage


def edge(
    upstream: Annotated[
        list[str] | None, typer.Option("--upstream", metavar="URL", help="Whom to ask. Repeat for each router.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="edge.toml; flags win over it. SIGHUP reads it anew."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="Default: 8780; 0 picks a free one.", min=0, max=65535)] = None,
    workers: Annotated[int | None, typer.Option(help="Processes. Default: 1.", min=1, max=256)] = None,
    upstream_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the key that upstream asks for.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Whose tokenizer counts prompts: a known name, GGUF file or folder."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="What answers: vllm, sglang, tensorrt-llm, llama-server, pagefence or other.")
    ] = None,
    open_access: Annotated[
        bool, typer.Option("--open", help="Nobody needs a key; everybody is one tenant. On loopback only.")
    ] = False,
    watch_only: Annotated[
        bool, typer.Option("--watch-only", help="Admit every prompt, however long; answers are watched all the same.")
    ] = False,
    buffered: Annotated[
        bool, typer.Option("--buffered", help="Hold each answer until it was judged; a leak never goes out.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read the settings, say what is wrong with them, and end.")
    ] = False,
    announce: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Gets the address as JSON once the port listens.")
    ] = None,
) -> None:
    """Stand in front of a fleet: refuse what no worker can hold and what no client may set, and watch every answer.

    Tenants' keys: PAGEFENCE_API_KEYS="acme=KEY,globex=KEY", or tenants.toml with their hashes.

    Examples:

    pagefence edge --upstream http://router:8000 --engine vllm --model ./Qwen3-8B --port 8780

    pagefence edge --config edge.toml --workers 4
    """
    from pagefence.edge.joined import Joined
    from pagefence.edge.serve import Build, say, serve
    from pagefence.edge.sharing import metrics as sharing
    from pagefence.edge.steps import Tells
    from pagefence.edge.tenant_file import read_identity
    from pagefence.edge.watched import FAMILIES

    chosen: dict[str, dict[str, Any]] = {
        "admission": {"model": model, "on": False if watch_only else None},
        "policy": {"engine": engine},
        "tenants": {"open": open_access or None},
        "watching": {"buffered": buffered or None},
    }

    def load() -> Settings:
        return settings(upstream, config, host, port, workers, upstream_key_env, chosen)

    found = load()
    identity = read_identity(os.environ)
    if identity.made_here:
        say("secret_made_here", why="PAGEFENCE_EDGE_SECRET is not set: after a restart no cached prefix is found again")
    folder = config.parent if config is not None else Path()
    joined = Joined(identity, os.environ, folder)
    shares = "shared" in found.tables
    if found.workers > 1 and not shares:
        say("not_shared", why="each worker knows the prompts that came to it; with [shared] they tell each other")
    build = Build(load, joined.steps, (*FAMILIES, *(sharing.FAMILIES if shares else ())), announce)
    if announce is not None:
        check_writable(announce)
    if check:
        build.steps(found, Tells(log=lambda event, fields: say(event, **fields)))
        print(f"{config or 'the flags'}: well, {len(found.upstreams)} upstream(s)")
        if not identity.made_here:  # else the tags are of this start only
            print("".join(f"{tenant.tag}  {tenant.name}\n" for tenant in joined.named()), end="")
        raise typer.Exit(0)
    raise typer.Exit(serve(found, build))


def settings(
    upstream: list[str] | None,
    config: Path | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    key_env: str | None,
    chosen: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Settings:
    """From file and flags; `chosen`: what flags say of the steps' tables. Raises Usage."""
    from pagefence.edge.upstream.address import parse

    addresses = tuple(parse(url) for url in upstream or ())
    if config is None:
        if not addresses:
            raise Usage("an edge stands in front of something: name it with --upstream URL, or --config FILE")
        found = Settings(addresses)
    else:
        found = read_edge_file(config, os.environ)
    said: dict[str, Any] = {"host": host, "port": port, "workers": workers, "upstreams": addresses or None}
    said |= {"authorization": upstream_key(key_env, os.environ)}
    tables = {name: {**found.tables.get(name, {}), **_said(flags)} for name, flags in chosen.items()}
    said["tables"] = {**found.tables, **tables}
    return replace(found, **{name: value for name, value in said.items() if value is not None})


def _said(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}
