"""Send saved requests again, one after the other, to one address."""

from __future__ import annotations

from pathlib import Path

from pagefence.fleet import Fleet
from pagefence.probes.estimate import Estimate
from pagefence.probes.replay.judge import plan_of
from pagefence.probes.replay.manifest import Manifest, read_request
from pagefence.probes.run import Log, Outcome, Progress


def cost_of(manifest: Manifest) -> Estimate:
    """All of it counts: the finding may be that what must be refused was answered."""
    shots = [sent.shot for sent in manifest.order]
    tokens = sum(shot.tokens for shot in shots)
    return Estimate(len(shots), tokens, sum(shot.max_tokens for shot in shots), tokens)


async def send(fleet: Fleet, manifest: Manifest, folder: Path, log: Log, progress: Progress) -> None:
    """Everything in its order. Raises Usage before anything is sent when a body cannot be read."""
    log.plan = plan_of(manifest)
    ready = [(sent, *read_request(folder, sent)) for sent in manifest.order]
    for number, (sent, request, prompt, model) in enumerate(ready):
        progress(f"sending {sent.shot.id}", number, len(ready))
        fleet.model = model
        answer = await fleet.complete(request, sent.shot.tenant)
        log.spend(sent.shot, answer)
        log.outcomes.append(Outcome(sent.shot, prompt, answer, request.body(model), ban=request.ban))
    log.complete = True
