"""How large a worker's pool becomes: what its share of the memory leaves beside its weights, and no more than asked."""

from __future__ import annotations

import pytest

from pagefence.engine import worker
from pagefence.engine.kv.capacity import NotEnoughMemory
from pagefence.engine.kv.layout import Layout
from pagefence.engine.model.config import ModelConfig
from pagefence.engine.settings import Settings, WorkerOrders
from pagefence.protocol.messages import WorkerRef

WEIGHTS = 1_000_000
MODEL = ModelConfig("llama", 2, 8, 2, 1, 4, 8, 16, 1e4, 4, 1e-5, 64, True, None, (0,))
PAGE = Layout(1, 16, 2, 1, 4, "float32")


def pool_of(memory_bytes: int, cap_tokens: int | None, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setattr(worker, "own_bytes", lambda: WEIGHTS)
    settings = Settings(model="m", model_name="m", context=32, page_size=16, decode_pool_tokens=cap_tokens)
    orders = WorkerOrders(
        me=WorkerRef("decode-1", 1),
        role="decode",
        router=WorkerRef("router", 9),
        settings=settings,
        run_dir="/nowhere",
        mac_key=b"",
        segment_token=b"",
        http_port=0,
        seat=3,
        memory_bytes=memory_bytes,
    )
    return worker.pool_layout(MODEL, "float32", orders)


def test_weights_and_pool_together_stay_within_the_workers_share(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pool_of(WEIGHTS + 7 * PAGE.stride + 1, 1_600, monkeypatch) == PAGE.with_pages(7)
    assert "pagefence decode-1: pool 112 tokens" in capsys.readouterr().err
    with pytest.raises(NotEnoughMemory):
        pool_of(WEIGHTS + PAGE.stride - 1, 1_600, monkeypatch)


def test_no_more_than_was_asked_for_or_a_full_batch_could_use_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty = WEIGHTS + 10_000 * PAGE.stride
    assert pool_of(plenty, 160, monkeypatch).pages == 10
    assert pool_of(plenty, None, monkeypatch).pages == 16 * 32 * 1.25 // 16
