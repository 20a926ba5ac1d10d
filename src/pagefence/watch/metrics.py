"""Every metric of a watch, as data: what `/metrics` and `/probe` render; the reference page is printed from it."""

from __future__ import annotations

from dataclasses import dataclass

GAUGE, COUNTER = "gauge", "counter"
TARGET = ("model_name", "target")
SLOT = (*TARGET, "module")


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. `text` is its help. Labels hold configured names, verdicts, the model's name; nothing of a tenant."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


METRICS = (
    Metric("pagefence_watch_info", GAUGE, ("version",), "The watch that answers; always 1."),
    Metric(
        "pagefence_watch_heartbeat_timestamp_seconds",
        GAUGE,
        (),
        "When the schedule was last looked at: at least every 5 seconds while the watch lives.",
    ),
    Metric("pagefence_watch_start_timestamp_seconds", GAUGE, (), "When this process began to watch."),
    Metric("pagefence_watch_cycles_total", COUNTER, (), "Looks at the schedule since this process began."),
    Metric("pagefence_watch_state_writable", GAUGE, (), "1: what is found can be kept. 0: no run is begun."),
    Metric(
        "pagefence_watch_verdict",
        GAUGE,
        (*SLOT, "verdict"),
        "1 for the verdict of the last finished run, 0 for the others. All 0: none has finished.",
    ),
    Metric(
        "pagefence_watch_findings",
        GAUGE,
        (*SLOT, "kind"),
        "Findings of the last finished run. LEAK and CORRUPT can come together.",
    ),
    Metric(
        "pagefence_watch_runs_total",
        COUNTER,
        (*SLOT, "phase", "verdict"),
        "Runs that ended, since the state file was made. phase: finished, interrupted or failed.",
    ),
    Metric(
        "pagefence_watch_last_run_timestamp_seconds", GAUGE, SLOT, "When the last finished run ended. Absent: none has."
    ),
    Metric("pagefence_watch_last_run_duration_seconds", GAUGE, SLOT, "How long the last finished run took."),
    Metric(
        "pagefence_watch_idle_since_timestamp_seconds",
        GAUGE,
        SLOT,
        "When the last finished run ended; before the first one, when it was first scheduled.",
    ),
    Metric(
        "pagefence_watch_period_seconds", GAUGE, SLOT, "From one start to the next. Absent: only when `/probe` asks."
    ),
    Metric(
        "pagefence_watch_inconclusive_runs",
        GAUGE,
        SLOT,
        "Runs in a row, up to the last, without an answer; 0 is well.",
    ),
    Metric("pagefence_watch_running_runs", GAUGE, SLOT, "1 while a run is in progress."),
    Metric(
        "pagefence_watch_waiting_runs",
        GAUGE,
        (*SLOT, "reason"),
        "1 while a run that is due waits: for budget, for another run of the target (busy), for a target without room "
        "(backoff).",
    ),
    Metric("pagefence_watch_budget_tokens", GAUGE, TARGET, "Tokens that are free now. Below 0: owed."),
    Metric("pagefence_watch_budget_held_tokens", GAUGE, TARGET, "Tokens that the run in progress holds."),
    Metric("pagefence_watch_budget_burst_tokens", GAUGE, TARGET, "The most that can be free at once."),
    Metric("pagefence_watch_budget_rate_tokens", GAUGE, TARGET, "Tokens that come back in a second."),
    Metric(
        "pagefence_watch_backoff_seconds", GAUGE, TARGET, "How long the target, which had no room, is still left alone."
    ),
    Metric(
        "pagefence_watch_tokens_total",
        COUNTER,
        (*TARGET, "kind"),
        "Tokens of the target's answers since the state file was made; kind: prompt, completion.",
    ),
    Metric(
        "pagefence_watch_evidence_log_ratio",
        GAUGE,
        (*TARGET, "probe"),
        "Natural logarithm of the e-value that own words get lost more often than the null rate says.",
    ),
    Metric("pagefence_watch_evidence_asked_total", COUNTER, (*TARGET, "probe"), "Own words asked for, as evidence."),
    Metric("pagefence_watch_evidence_lost_total", COUNTER, (*TARGET, "probe"), "Own words lost, as evidence."),
    Metric(
        "pagefence_watch_evidence_alarm",
        GAUGE,
        (*TARGET, "probe"),
        "1 once the e-value has reached 1 / alpha; it stays until the evidence is begun anew.",
    ),
)

PROBE_METRICS = (
    Metric("probe_success", GAUGE, (), "1: the run finished and is CLEAN. Anything else is 0."),
    Metric("probe_duration_seconds", GAUGE, (), "How long this answer took, waiting included."),
    Metric("pagefence_probe_finished", GAUGE, SLOT, "1: the run went to its end within the scrape's time."),
    Metric("pagefence_probe_verdict", GAUGE, (*SLOT, "verdict"), "1 for the verdict of this run, 0 for the others."),
    Metric("pagefence_probe_findings", GAUGE, (*SLOT, "kind"), "Findings of this run by kind."),
    Metric("pagefence_probe_run_duration_seconds", GAUGE, SLOT, "How long the run took, which others may share."),
    Metric("pagefence_probe_tokens", GAUGE, (*SLOT, "kind"), "Tokens of this run; kind: prompt, completion."),
    Metric(
        "pagefence_probe_wait_seconds",
        GAUGE,
        (*SLOT, "reason"),
        "Nothing was asked: for so long the target has no budget or no room (reason: budget, backoff).",
    ),
)
