"""What an operator may ask of a fleet of several workers, and which ports they get."""

from __future__ import annotations

from typing import Any

import pytest

from pagefence.engine.settings import Settings


def of(**flags: Any) -> Settings:
    return Settings(model="m", model_name="m", **flags)


def test_the_workers_of_a_role_have_the_ports_from_the_one_that_was_named() -> None:
    settings = of(prefill_workers=2, decode_workers=3, port=8000, prefill_port=8001, decode_port=8003)
    assert settings.ports("prefill") == (8001, 8002)
    assert settings.ports("decode") == (8003, 8004, 8005)
    assert settings.workers == 5


def test_without_a_port_each_worker_finds_a_free_one() -> None:
    assert of(prefill_workers=3, port=0).ports("prefill") == (0, 0, 0)
    assert of().ports("decode") == (0,)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"prefill_port": 7999, "prefill_workers": 2}, "port 8000 is both --port's and --prefill-port's"),
        ({"decode_port": 8000}, "port 8000 is both --port's and --decode-port's"),
        (
            {"prefill_port": 9000, "prefill_workers": 3, "decode_port": 9002},
            "port 9002 is both --prefill-port's and --decode-port's",
        ),
        ({"decode_port": 65535, "decode_workers": 2}, "the last decode worker would have port 65536"),
        ({"prefill_workers": 0}, "--prefill-workers must be 1 to 64"),
        ({"decode_workers": 65}, "--decode-workers must be 1 to 64"),
        ({"max_in_flight": 0}, "--max-in-flight must be"),
        ({"shutdown_s": -1}, "--drain-seconds must be"),
        ({"shutdown_s": float("nan")}, "--drain-seconds must be"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_the_flag(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        of(**flags)


def test_ports_side_by_side_do_not_clash() -> None:
    assert of(prefill_port=8001, prefill_workers=2, decode_port=8003).ports("decode") == (8003,)
    assert of(decode_port=65534, decode_workers=2).ports("decode") == (65534, 65535)
