"""transformers without a server: a child that runs in an environment of its own, of which PageFence knows nothing.

`PYTHON in_process.py MODEL_FOLDER DTYPE THREADS`: says `{"versions": ...}` when it is ready, then answers one JSON line
on standard output for each on standard input: `{"prompts": [[ids], ...], "tokens": n}` gets `{"asked": s, "steps":
[s, ...]}`, the moments of `time.perf_counter` at which each step was done. Imports nothing of this project.
"""

import json
import sys
import time


def main() -> None:
    """Load, then answer until standard input ends."""
    folder, dtype, threads = sys.argv[1:]
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

    torch.set_num_threads(int(threads))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    class Clock(StoppingCriteria):  # type: ignore[misc, unused-ignore]
        """Called after every step; ends nothing."""

        def __init__(self) -> None:
            self.steps: list[float] = []

        def __call__(self, input_ids: torch.Tensor, scores: object, **more: object) -> torch.Tensor:
            self.steps.append(time.perf_counter())
            return torch.zeros(len(input_ids), dtype=torch.bool)

    print(json.dumps({"versions": {"transformers": transformers.__version__, "torch": torch.__version__}}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        ids = torch.tensor(job["prompts"])
        clock = Clock()
        asked = time.perf_counter()
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=job["tokens"],
                max_new_tokens=job["tokens"],
                pad_token_id=0,
                stopping_criteria=StoppingCriteriaList([clock]),
            )
        print(json.dumps({"asked": asked, "steps": clock.steps}), flush=True)


if __name__ == "__main__":
    main()
