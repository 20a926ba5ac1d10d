"""What the API counts about itself. Labels: the model, the endpoint, the status; never who asked, or what."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Meters:
    """Names start `pagefence_api_`, so that they cannot meet those of the router on the same page."""

    def __init__(self, model_name: str) -> None:
        # `_created` is neither a unit nor `_total`.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._model = model_name
        self._requests = Counter(
            "pagefence_api_requests_total",
            "Answered requests; status 499: the client left first.",
            ["model_name", "endpoint", "status"],
            registry=self._registry,
        )
        self._duration = Histogram(
            "pagefence_api_request_duration_seconds",
            "From the request's head to the end of its answer.",
            ["model_name", "endpoint"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._first = Histogram(
            "pagefence_api_time_to_first_token_seconds",
            "From submission to the first text.",
            ["model_name"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter(
            "pagefence_api_tokens_total",
            "Tokens of complete answers.",
            ["model_name", "kind"],
            registry=self._registry,
        )

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        self._requests.labels(self._model, endpoint, str(status)).inc()
        self._duration.labels(self._model, endpoint).observe(seconds)

    def first_text(self, seconds: float) -> None:
        self._first.labels(self._model).observe(seconds)

    def tokens(self, prompt: int, completion: int) -> None:
        self._tokens.labels(self._model, "prompt").inc(prompt)
        self._tokens.labels(self._model, "completion").inc(completion)

    def text(self) -> bytes:
        return generate_latest(self._registry)
