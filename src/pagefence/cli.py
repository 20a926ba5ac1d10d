"""The command line: parse, call, print, exit. Thin; a run itself is in `session`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from pagefence import __version__
from pagefence.edge.command import edge
from pagefence.edge.hash_key import hash_key_command
from pagefence.engine.command import serve
from pagefence.flags import (
    Embedded,
    Figures,
    Floor,
    Keep,
    Planted,
    Policy,
    Prompts,
    Races,
    Replay,
    Reports,
    Salt,
    Time,
    Times,
    Watching,
    Where,
    WithRace,
    takes,
)
from pagefence.lab.command import lab_app
from pagefence.lab.explore import explore_command
from pagefence.models.command import models_app
from pagefence.options import build, offline
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


@app.command()
@takes(Where, Prompts, Planted, Salt, Figures, Floor, Reports, Embedded, Keep, WithRace, Races)
def verify(**given: Any) -> None:
    """Run all probes against a fleet and give a verdict with its evidence.

    Examples:

    pagefence verify                                   an embedded fleet on a small real model

    pagefence verify --fault stub-transfer --guards off     see the incident being caught

    PAGEFENCE_KEY_A=... PAGEFENCE_KEY_B=... pagefence verify https://router.example
    """
    _go("verify", PROBES, given)


@app.command()
@takes(Where, Figures, Policy, Reports, Embedded)
def gate(**given: Any) -> None:
    """Hold the live figures of every node against the rules. Sends no prompt, but for --active.

    Examples:

    pagefence gate http://router:8000 --prefill http://p0:9000 --decode http://d0:9001

    pagefence gate --fleet fleet.toml --junit gate.xml

    pagefence gate http://127.0.0.1:8080 --declare pool=8192       for an engine that does not tell its pool
    """
    _go("gate", ("gate",), given)


@app.command()
@takes(Where, Prompts, Planted, Reports, Embedded, Keep)
def canary(**given: Any) -> None:
    """Tenant A plants words on every page, tenant B reads: does any answer hold another's words, or lose its own?

    Examples:

    PAGEFENCE_KEY_A=... PAGEFENCE_KEY_B=... pagefence canary http://router:8000 --yes

    pagefence canary http://edge:8780 --yes --sentinels live.json       the edge looks for these words in all answers
    """
    _go("canary", ("canary",), given)


@app.command()
@takes(Where, Watching, Planted, Figures)
def watch(**given: Any) -> None:
    """Run probes on a schedule, keep what they find, and tell it to Prometheus and on a small page.

    Examples:

    pagefence watch --config watch.toml

    PAGEFENCE_KEY_A=... PAGEFENCE_KEY_B=... pagefence watch http://router:8000 --prefill http://p0:9000 --decode http://d0:9001
    """
    from pagefence.watch.command import conduct_watch

    raise typer.Exit(conduct_watch(given, os.environ, build))


@app.command()
@takes(Where, Prompts, Reports, Embedded, Keep)
def boundary(**given: Any) -> None:
    """Ask at every limit and just over it; a fleet that does not tell its limits is asked for them first.

    Examples:

    pagefence boundary http://127.0.0.1:8080 --yes

    pagefence boundary https://router.example --dry-run        what would be sent, and what it would cost
    """
    _go("boundary", ("boundary",), given)


@app.command()
@takes(Where, Prompts, Salt, Time, Reports, Embedded, Keep)
def salt(**given: Any) -> None:
    """Is a prompt found again in the prefix cache by its own tenant, and by no other?

    Examples:

    pagefence salt --fault salt-dropped --guards off           see tenants share prefixes

    PAGEFENCE_KEY_A=... PAGEFENCE_KEY_B=... pagefence salt http://router:8000 --timing --yes

    pagefence salt http://127.0.0.1:8000 --salt-field cache_salt       for an engine that knows no tenants
    """
    _go("salt", ("salt",), given)


@app.command()
@takes(Where, Prompts, Floor, Times, Reports, Embedded, Keep)
def latency(**given: Any) -> None:
    """Does any answer come before its prompt can have been computed? Live, from a log, or from a Prometheus server.

    Examples:

    pagefence latency --fleet fleet.toml               with active_parameters, devices, peak_flop_per_s under [declared]

    pagefence latency http://router:8000 --calibrate floor.json     measure a certified fleet once

    pagefence latency --log access.jsonl.gz --calibration floor.json --model-name glm --declare engine=vllm ...
    """
    found = offline(given)
    if found is not None:
        from pagefence.session import conduct_offline

        raise typer.Exit(conduct_offline(*found))
    probes = ("boundary", "canary", "latency") if given["calibrate"] else ("latency",)
    _go("latency", probes, given)


@app.command()
@takes(Where, Prompts, Reports, Embedded, Keep, Races)
def race(**given: Any) -> None:
    """Thousands of short requests of two tenants beside each other, many of which hang up at random moments.

    Examples:

    pagefence race --fault stream-swap --guards off            see tokens of one request end in another's stream

    PAGEFENCE_KEY_A=... PAGEFENCE_KEY_B=... pagefence race http://router:8000 --probes 5000 --seconds 600 --yes
    """
    _go("race", ("race",), given)


@app.command()
@takes(Replay, Reports)
def replay(**given: Any) -> None:
    """Send the requests behind the findings of a report again: does each finding still show?

    Examples:

    pagefence verify https://router.example --json report.json
    pagefence replay report.json https://router.example

    pagefence replay report.json --yes                   to the address that the report names
    """
    from pagefence.replaying import conduct_replay

    raise typer.Exit(conduct_replay(given, os.environ))


app.command()(serve)
app.command()(edge)
app.command("hash-key", context_settings={"allow_extra_args": True})(hash_key_command)
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


def _go(command: str, probes: tuple[str, ...], given: dict[str, Any]) -> None:
    from pagefence.session import conduct

    raise typer.Exit(conduct(build(command, probes, given, os.environ)))
