"""The command line: parse, call, print, exit. Thin; a run itself is in `session`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pagefence import __version__
from pagefence.engine.command import serve
from pagefence.lab.command import lab_app
from pagefence.lab.explore import explore_command
from pagefence.models.command import models_app
from pagefence.options import build
from pagefence.probes import PROBES
from pagefence.probes.gate.command import advisories

app = typer.Typer(
    name="pagefence",
    help="Keeps tenants apart in shared LLM inference, and proves it.\n\n"
    "Exit codes: 0 clean, 1 violation (LEAK, CORRUPT, FAIL), 2 usage, 3 inconclusive, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Urls = Annotated[list[str] | None, typer.Argument(metavar="[URL]", help="The router. Without it: an embedded fleet.")]
Router = Annotated[str | None, typer.Option("--router", help="The router; the same as URL.")]
Prefill = Annotated[list[str] | None, typer.Option("--prefill", help="A prefill worker. Repeat for each.")]
Decode = Annotated[list[str] | None, typer.Option("--decode", help="A decode worker. Repeat for each.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds that one answer may take.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Repeats a run. Default: a fresh one, shown in the report.")]
Json = Annotated[str | None, typer.Option("--json", metavar="FILE", help="JSON report; - for standard output.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before sending prompts to a fleet that is not ours.")]
Fault = Annotated[str | None, typer.Option("--fault", help="Embedded fleet: with this fault of the lab switched on.")]
Guards = Annotated[
    str | None, typer.Option("--guards", help="With --fault: on, off, or names; no-NAME leaves one out.")
]
Model = Annotated[str | None, typer.Option("--model", help="Embedded fleet: a known name, GGUF file or folder.")]
Headroom = Annotated[
    float, typer.Option("--headroom", min=1.0, max=100.0, help="The pool must cover context x this (I8).")
]
Thorough = Annotated[bool, typer.Option("--thorough", help="Embedded fleet: context 8192 instead of 2048.")]
Keep = Annotated[bool, typer.Option("--keep", help="Embedded fleet: leave it up after the report, until Ctrl-C.")]
KeysFile = Annotated[
    Path | None,
    typer.Option("--keys-file", help="PAGEFENCE_KEY_A=... and PAGEFENCE_KEY_B=..., instead of the environment."),
]


@app.command()
def verify(
    url: Urls = None,
    router: Router = None,
    prefill: Prefill = None,
    decode: Decode = None,
    timeout: Timeout = 120.0,
    seed: Seed = None,
    json: Json = None,
    yes: Yes = False,
    fault: Fault = None,
    guards: Guards = None,
    model: Model = None,
    headroom: Headroom = 1.25,
    thorough: Thorough = False,
    keep: Keep = False,
    keys_file: KeysFile = None,
) -> None:
    """Run all probes against a fleet and give a verdict with its evidence.

    Examples:

    pagefence verify                                   an embedded fleet on a small real model

    pagefence verify --fault stub-transfer --guards off     see the incident being caught

    PAGEFENCE_KEY_A=... PAGEFENCE_KEY_B=... pagefence verify https://router.example
    """
    _go("verify", PROBES, locals())


@app.command()
def gate(
    url: Urls = None,
    router: Router = None,
    prefill: Prefill = None,
    decode: Decode = None,
    timeout: Timeout = 120.0,
    json: Json = None,
    fault: Fault = None,
    guards: Guards = None,
    model: Model = None,
    headroom: Headroom = 1.25,
    thorough: Thorough = False,
    keys_file: KeysFile = None,
) -> None:
    """Hold the live figures of every node against the rules. Sends no prompt.

    Example: pagefence gate http://router:8000 --prefill http://p0:9000 --decode http://d0:9001
    """
    _go("gate", ("gate",), locals())


@app.command()
def canary(
    url: Urls = None,
    router: Router = None,
    prefill: Prefill = None,
    decode: Decode = None,
    timeout: Timeout = 120.0,
    seed: Seed = None,
    json: Json = None,
    yes: Yes = False,
    fault: Fault = None,
    guards: Guards = None,
    model: Model = None,
    thorough: Thorough = False,
    keep: Keep = False,
    keys_file: KeysFile = None,
) -> None:
    """Tenant A plants words on every page, tenant B reads: does any answer hold another's words, or lose its own?

    Example: PAGEFENCE_KEY_A=... PAGEFENCE_KEY_B=... pagefence canary http://router:8000 --yes
    """
    _go("canary", ("canary",), locals())


app.command()(serve)
app.command("explore")(explore_command)
app.command()(advisories)
app.add_typer(models_app, name="models")
app.add_typer(lab_app, name="lab")


def _version(value: bool) -> None:
    if value:
        print(f"pagefence {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
    ] = False,
) -> None:
    pass


def _go(command: str, probes: tuple[str, ...], given: dict[str, object]) -> None:
    from pagefence.session import conduct

    raise typer.Exit(conduct(build(command, probes, given, os.environ)))
