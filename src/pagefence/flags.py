"""The flags of the commands, in groups: a command takes the groups that it needs."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

from pagefence.probes.sentinel_file import TENANTS

_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before sending prompts to a fleet that is not ours.")]
_Report = "report; - for standard output."
_KEYS = "PAGEFENCE_KEY_A=..., _B, _ADMIN; instead of the environment."
_TIMEOUT = "Seconds that one answer may take. Default: 120."
_CA = "Authorities to trust instead of the system's, PEM."
_CERT = "Certificate to show, PEM."
_CERT_KEY = "Its private key, PEM, without a pass phrase."


class Where:
    """Which fleet, and how it is reached."""

    url: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL]", help="The server, or the router of a fleet. With no address: a small fleet started here."
        ),
    ] = None
    router: Annotated[str | None, typer.Option("--router", help="The router; the same as URL.")] = None
    prefill: Annotated[list[str] | None, typer.Option("--prefill", help="A prefill worker. Repeat for each.")] = None
    decode: Annotated[list[str] | None, typer.Option("--decode", help="A decode worker. Repeat for each.")] = None
    fleet: Annotated[
        Path | None, typer.Option("--fleet", metavar="FILE", help="fleet.toml, instead of URLs. Flags win over it.")
    ] = None
    declare: Annotated[
        list[str] | None,
        typer.Option(
            "--declare",
            metavar="NAME=VALUE",
            help="For every node that does not tell: pool, context, longest or page_size, in tokens; engine or version "
            "(engine=vllm). Repeat for each.",
        ),
    ] = None
    keys_file: Annotated[
        Path | None,
        typer.Option("--keys-file", help=_KEYS),
    ] = None
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.1, help=_TIMEOUT)] = None
    retries: Annotated[
        int | None,
        typer.Option("--retries", min=0, max=10, help="Times to ask an overloaded node again. Default: 1."),
    ] = None
    ca: Annotated[Path | None, typer.Option("--ca", metavar="FILE", help=_CA)] = None
    client_cert: Annotated[Path | None, typer.Option("--client-cert", metavar="FILE", help=_CERT)] = None
    client_key: Annotated[Path | None, typer.Option("--client-key", metavar="FILE", help=_CERT_KEY)] = None


class Prompts:
    """For probes that send prompts."""

    leak_rate: Annotated[
        float | None,
        typer.Option("--leak-rate", metavar="P", help="Tell with what probability it would be found. Default: 0.1."),
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", help="Repeats a run. Default: a fresh one, which is shown.")] = (
        None
    )
    yes: _Yes = False
    budget: Annotated[
        int | None,
        typer.Option(
            "--budget", min=1, metavar="N", help="Prompt tokens for boundary and canary. Default: 5 x the limit."
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Read the figures, or take declared ones; show the plan, send no prompt. Exit 3."
        ),
    ] = False
    ask_above: Annotated[
        int | None,
        typer.Option(
            "--ask-above",
            min=0,
            metavar="N",
            help="Prompt tokens that go out without --yes and a terminal. Default: 100000.",
        ),
    ] = None


class Planted:
    """For an edge that looks for the planted words in everybody's answers."""

    sentinels: Annotated[
        Path | None,
        typer.Option(
            "--sentinels", metavar="FILE", help="Gets the words before they are planted, for the edge's live scan."
        ),
    ] = None
    tenant_a: Annotated[
        str | None,
        typer.Option("--tenant-a", metavar="NAME", help=f"Name of the first one at the edge. Default: {TENANTS[0]}."),
    ] = None
    tenant_b: Annotated[
        str | None,
        typer.Option("--tenant-b", metavar="NAME", help=f"And of the second one. Default: {TENANTS[1]}."),
    ] = None


class Salt:
    """How the two tenants are told apart where that is not by their keys."""

    salt_field: Annotated[
        str | None,
        typer.Option(
            "--salt-field",
            metavar="NAME",
            help="Send this field with a value of its own for each tenant. Default: cache_salt where vLLM or SGLang is "
            "asked directly; none elsewhere.",
        ),
    ] = None


class Time:
    """For what can be told by time alone."""

    timing: Annotated[
        bool, typer.Option("--timing", help="Also compare times to the first token: 400 more requests.")
    ] = False


class Reports:
    """Besides the one on the terminal."""

    json: Annotated[str | None, typer.Option("--json", metavar="FILE", help=f"JSON {_Report}")] = None
    junit: Annotated[str | None, typer.Option("--junit", metavar="FILE", help=f"JUnit {_Report}")] = None
    sarif: Annotated[str | None, typer.Option("--sarif", metavar="FILE", help=f"SARIF {_Report}")] = None
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="A page for a browser, that needs no network.")
    ] = None
    unredacted: Annotated[
        bool, typer.Option("--unredacted", help="Show answers of a live fleet whole: they may be other people's text.")
    ] = False


class Figures:
    """The gate's figures that every command with a gate has."""

    headroom: Annotated[
        float | None,
        typer.Option("--headroom", min=1.0, max=100.0, help="The pool must cover context x this (I8). Default: 1.25."),
    ] = None
    edge_limit: Annotated[
        int | None, typer.Option("--edge-limit", min=1, metavar="N", help="The longest prompt that the edge lets in.")
    ] = None


class Policy:
    """What the gate is asked to hold a fleet against."""

    active: Annotated[
        bool, typer.Option("--active", help="Also send the few requests that must be refused. Asks first; see --yes.")
    ] = False
    inside: Annotated[
        bool, typer.Option("--inside", help="This is inside the trusted network: reaching a worker is no finding.")
    ] = False
    lock: Annotated[
        Path | None, typer.Option("--lock", metavar="FILE", help="What was approved; every change since is reported.")
    ] = None
    approve: Annotated[bool, typer.Option("--approve", help="Write --lock anew when nothing fails.")] = False
    yes: _Yes = False


class Embedded:
    """How the embedded fleet is made."""

    fault: Annotated[
        str | None, typer.Option("--fault", help="Embedded fleet: with this fault of the lab switched on.")
    ] = None
    guards: Annotated[
        str | None, typer.Option("--guards", help="With --fault: on, off, or names; no-NAME leaves one out.")
    ] = None
    model: Annotated[str | None, typer.Option("--model", help="Embedded fleet: a known name, GGUF file or folder.")] = (
        None
    )
    thorough: Annotated[bool, typer.Option("--thorough", help="Embedded fleet: context 8192 instead of 2048.")] = False


class Floor:
    """What times are held against."""

    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE", help="A floor that --calibrate measured on this fleet."),
    ] = None


class Times:
    """Where the times of `latency` come from: live prompts, a log, or a Prometheus server."""

    calibrate: Annotated[
        Path | None,
        typer.Option("--calibrate", metavar="FILE", help="Run boundary and canary too; CLEAN: write the floor here."),
    ] = None
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, max=1000, help="Live: how often each length is asked. Default: 6.")
    ] = None
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="JSON lines or CSV, also gzip, instead of prompts.")
    ] = None
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", metavar="URL", help="A Prometheus server, instead of prompts.")
    ] = None
    ttft_field: Annotated[
        str | None, typer.Option("--ttft-field", metavar="NAME", help="Log: time to first token; with --ttft-unit.")
    ] = None
    ttft_unit: Annotated[str | None, typer.Option("--ttft-unit", help="Log: s, ms, us or ns.")] = None
    tokens_field: Annotated[
        str | None, typer.Option("--tokens-field", metavar="NAME", help="Log: prompt tokens, cached ones included.")
    ] = None
    cached_field: Annotated[
        str | None, typer.Option("--cached-field", metavar="NAME", help="Log: prompt tokens from a cache.")
    ] = None
    time_field: Annotated[str | None, typer.Option("--time-field", metavar="NAME", help="Log: when it was.")] = None
    only: Annotated[
        str | None, typer.Option("--only", metavar="FIELD=VALUE", help="Log: lines with this value, as of one model.")
    ] = None
    window_hours: Annotated[
        float | None,
        typer.Option("--window-hours", min=0.01, help="Log: length of a window of the trend. Default: 24."),
    ] = None
    no_prefix_cache: Annotated[
        bool, typer.Option("--no-prefix-cache", help="Log, Prometheus: no prompt of this fleet is ever cached.")
    ] = False
    model_name: Annotated[
        str | None, typer.Option("--model-name", help="Log, Prometheus: of which model, for --calibration.")
    ] = None


class Races:
    """What a race may cost."""

    probes: Annotated[
        int | None, typer.Option("--probes", min=1, max=100_000, help="Race: requests to send. Default: 2000.")
    ] = None
    max_tokens_total: Annotated[
        int | None,
        typer.Option(
            "--max-tokens-total", min=1000, help="Race: prompt and new tokens, all together. Default: 400000."
        ),
    ] = None
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1.0, help="Race: no request is sent later. Default: 900.")
    ] = None
    at_once: Annotated[
        int | None, typer.Option("--at-once", min=2, max=400, help="Race: requests in flight. Default: 16.")
    ] = None


class WithRace:
    """For a command that may race as well."""

    race: Annotated[
        bool, typer.Option("--race", help="Also race: thousands of short requests beside each other, with hang-ups.")
    ] = False


class Keep:
    """For findings that can be repeated."""

    keep: Annotated[bool, typer.Option("--keep", help="Embedded fleet: leave it up afterwards, until Ctrl-C.")] = False


class Replay:
    """What to send again, and where."""

    evidence: Annotated[
        Path, typer.Argument(metavar="EVIDENCE", help="The JSON report, or the folder of request bodies.")
    ]
    to: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="Where to; else where it was sent, after a question.")
    ] = None
    ask_above: Annotated[
        int | None,
        typer.Option("--ask-above", min=0, metavar="N", help="Prompt tokens that go out without --yes."),
    ] = None
    keys_file: Annotated[Path | None, typer.Option("--keys-file", help=_KEYS)] = None
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.1, help=_TIMEOUT)] = None
    ca: Annotated[Path | None, typer.Option("--ca", metavar="FILE", help=_CA)] = None
    client_cert: Annotated[Path | None, typer.Option("--client-cert", metavar="FILE", help=_CERT)] = None
    client_key: Annotated[Path | None, typer.Option("--client-key", metavar="FILE", help=_CERT_KEY)] = None
    yes: _Yes = False


class Watching:
    """What a watch does, and where it keeps and tells it."""

    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="watch.toml, instead of a fleet on this line.")
    ] = None
    every: Annotated[
        float | None, typer.Option("--every", min=1, help="Seconds from one set of prompts to the next. Default: 900.")
    ] = None
    hourly_tokens: Annotated[
        int | None,
        typer.Option("--hourly-tokens", min=1, metavar="N", help="The most that it is asked in an hour."),
    ] = None
    run_tokens: Annotated[
        int | None,
        typer.Option("--run-tokens", min=1, metavar="N", help="The most that one run costs. Default: 40000."),
    ] = None
    inside: Annotated[
        bool, typer.Option("--inside", help="This is inside the trusted network: reaching a worker is no finding.")
    ] = False
    seed: Annotated[int | None, typer.Option("--seed", help="Repeats the runs' prompts. Default: fresh ones.")] = None
    state: Annotated[
        Path | None, typer.Option("--state", metavar="FILE", help="Where it remembers. Default: pagefence-watch.db.")
    ] = None
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on. Default: 127.0.0.1.")] = None
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="0 picks a free one. Default: 9779.")] = (
        None
    )
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")] = False
    forget_evidence: Annotated[
        list[str] | None,
        typer.Option("--forget-evidence", metavar="TARGET", help="Begin its evidence anew: what it showed is mended."),
    ] = None
    announce: Annotated[
        Path | None, typer.Option("--announce", metavar="FILE", help="Write the address to it once the port listens.")
    ] = None


Command = Callable[..., None]


def takes(*groups: type) -> Callable[[Command], Command]:
    """Give a command the flags of these groups: typer reads them from its signature, and it gets them by name."""
    hints = {name: (group, hint) for group in groups for name, hint in get_type_hints(group, None, None, True).items()}

    def dressed(command: Command) -> Command:
        command.__annotations__ = {name: hint for name, (_, hint) in hints.items()}
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(group, name, Parameter.empty), annotation=hint)
            for name, (group, hint) in hints.items()
        ]
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return dressed
