"""`pagefence edge`: flags and `edge.toml` to settings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
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
    check: Annotated[
        bool, typer.Option("--check", help="Read the settings, say what is wrong with them, and end.")
    ] = False,
    announce: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Gets the address as JSON once the port listens.")
    ] = None,
) -> None:
    """Stand in front of a fleet: refuse what no worker can hold, strip what no client may set, watch every answer.

    Examples:

    pagefence edge --upstream http://router:8000 --port 8780

    pagefence edge --config edge.toml --workers 4
    """
    from pagefence.edge.serve import Build, serve

    def load() -> Settings:
        return settings(upstream, config, host, port, workers, upstream_key_env)

    found = load()
    from pagefence.edge.passing import passing

    build = Build(load, lambda new: passing(), announce=announce)
    if announce is not None:
        check_writable(announce)
    if check:
        build.steps(found)
        print(f"{config or 'the flags'}: well, {len(found.upstreams)} upstream(s)")
        raise typer.Exit(0)
    raise typer.Exit(serve(found, build))


def settings(
    upstream: list[str] | None,
    config: Path | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    key_env: str | None,
) -> Settings:
    """From file and flags. Raises Usage."""
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
    return replace(found, **{name: value for name, value in said.items() if value is not None})
