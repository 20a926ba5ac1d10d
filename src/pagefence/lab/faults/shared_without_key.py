"""Prefix cache: all tenants are one."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pagefence.lab.fault import Fault
from pagefence.lab.worlds import CACHED
from pagefence.protocol.decisions import ANY, Decisions
from pagefence.protocol.messages import Submit
from pagefence.protocol.router import RouterState, Step, submit


def one_key_for_all(d: Decisions, s: RouterState, m: Submit) -> Step:
    """Prefixes are shared among everybody: no isolation key is derived from the tenant.

    What is read is right, for the text is the same. But a prompt that somebody else sent before is answered sooner, so
    whoever measures the time to the first token can guess, piece by piece, what others have asked.
    """
    return submit(d, s, msgspec.structs.replace(m, isolation_key=""))


FAULT = Fault(
    name="shared-without-key",
    summary="prefixes are reused across tenants: the content is right, the time to the first token tells",
    mechanism=one_key_for_all.__doc__ or "",
    reference="vllm-project/vllm CVE-2025-46570",
    rules=("I7",),
    override=lambda d: replace(d, cells={**d.cells, ("router", ANY, Submit): one_key_for_all}),
    bounds=CACHED,
)
