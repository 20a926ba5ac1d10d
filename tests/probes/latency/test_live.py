"""The probe against a fleet over real HTTP that takes its time, and one that does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pagefence.fleet import Fleet, Keys, Target
from pagefence.mistakes import Usage
from pagefence.options import build, offline
from pagefence.probes import Config, Examination, examine
from pagefence.probes.latency import calibration
from pagefence.probes.latency.judge import certified
from pagefence.probes.latency.policy import Timing
from pagefence.verdict import Verdict, decide
from tests.probes.toy import KEYS, Toy, running

PACE = 1.2e-3
# Half of what the toy takes for a token. Its longest prompt takes longer by that than a busy machine waits.
FACTS: dict[str, object] = {"active_parameters": 3 * 10**8, "devices": 1, "peak_flop_per_s": 10**12}


def examined(toy: Toy, timing: Timing, probes: tuple[str, ...] = ("latency",)) -> Examination:
    async def ask() -> Examination:
        examination = Examination(Config(probes, seed=7, timing=timing))
        async with Fleet(Target(toy.url), Keys(*KEYS), 20.0) as fleet:
            await examine(fleet, examination, lambda what, done, total: None, lambda line: None)
        return examination

    with running(toy):
        return asyncio.run(ask())


def verdict(examination: Examination) -> tuple[Verdict, list[str]]:
    results = examination.results()
    return decide(results), [e.check for r in results for e in r.evidence]


ASKED = Timing(True, rounds=5)


def test_a_fleet_that_takes_its_time_is_clean_with_its_number_and_calibrates_itself(tmp_path: Path) -> None:
    ran = examined(Toy(context=256, pace_s=PACE, info=FACTS), ASKED)
    found, checks = verdict(ran)
    assert (found.name, checks) == ("CLEAN", [])
    assert "came sooner than the floor" in found.sentence
    seen = ran.seen()
    assert seen is not None
    made = certified(seen)
    assert not isinstance(made, str)
    calibration.write(tmp_path / "floor.json", made)
    again = calibration.read(tmp_path / "floor.json")
    assert (again, again.refusal(seen.facts)) == (made, None)
    assert 0 < again.floor_s(200) < 200 * PACE
    assert again.floor_s(10**6) == max(level.fastest_s for level in made.levels) / 2


def test_an_over_long_prompt_answered_in_a_blink_is_corrupt_by_the_physical_floor() -> None:
    toy = Toy("stub", context=1024, prefill_pool=256, decode_pool=2048, pace_s=PACE, info=FACTS)
    found, checks = verdict(examined(toy, Timing(True, rounds=2)))
    assert (found.name, found.exit_code, checks[0]) == ("CORRUPT", 1, "floor")


def test_and_by_the_fleets_own_legal_answers_where_no_floor_is_known() -> None:
    toy = Toy("stub", context=1024, prefill_pool=256, decode_pool=2048, pace_s=7e-4)
    found, checks = verdict(examined(toy, ASKED))
    assert found.name == "CORRUPT"
    assert "own-floor" in checks


def test_without_any_floor_a_sound_fleet_is_inconclusive_alone_and_undecided_in_verify() -> None:
    found, checks = verdict(examined(Toy(pace_s=1e-4), Timing(True, rounds=2)))
    assert found.name == "INCONCLUSIVE"
    assert "floor" in checks
    ran = examined(Toy(), Timing(), ("boundary", "canary", "latency"))
    assert verdict(ran)[0].name == "CLEAN"
    assert ran.log.plan is not None
    assert {shot.probe for shot in ran.log.plan.shots} == {"boundary", "canary"}  # none is sent for times alone


def test_in_verify_the_answers_of_other_probes_are_held_against_the_floor() -> None:
    toy = Toy("instant", context=128, pace_s=1e-3, info={**FACTS, "peak_flop_per_s": 10**10})
    results = examined(toy, Timing(), ("boundary", "latency")).results()
    assert [e.check for r in results if r.name == "latency" for e in r.evidence] == ["figures"]


def test_a_calibration_of_another_version_is_refused_before_a_prompt_is_sent() -> None:
    other = calibration.Calibration(
        model="toy",
        engine="pagefence",
        version="0.0.9",
        hardware={},
        taken="",
        levels=[calibration.Level(longest_tokens=9, answers=3, fastest_s=1, p5_s=1, p50_s=1)],
    )
    toy = Toy()
    with pytest.raises(Usage, match=r"engine version 0\.0\.9, and this fleet says 0\.1\.0"):
        examined(toy, Timing(True, calibration=other))
    assert toy.calls == []


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema_version": 1}', "\x00"])
def test_what_is_no_calibration_is_a_usage_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "floor.json"
    path.write_text(content)
    with pytest.raises(Usage, match="is no calibration"):
        build("latency", ("latency",), {"url": ["http://r"], "calibration": path}, {})


def test_speed_is_declared_by_flags_in_plain_or_scientific_digits() -> None:
    said = ["active_parameters=32e9", "devices=8", "peak_flop_per_s=9.89e14"]
    options = build("latency", ("latency",), {"url": ["http://r"], "declare": said}, {})
    assert options.target is not None
    assert options.target.declared[""] == {
        "active_parameters": 32 * 10**9,
        "devices": 8,
        "peak_flop_per_s": 989 * 10**12,
    }


@pytest.mark.parametrize("said", ["devices=0", "devices=1.5", "peak_flop_per_s=1e99", "layers=-3", "devices=many"])
def test_a_speed_that_is_no_whole_number_above_zero_is_a_usage_error(said: str) -> None:
    with pytest.raises(Usage, match="no whole number above 0"):
        build("latency", ("latency",), {"url": ["http://r"], "declare": [said]}, {})


def test_a_log_is_held_against_what_is_declared_in_a_file_and_by_flags(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[router]\nurl = "http://r"\n[declared]\nactive_parameters = 1000\ndevices = 2\nlongest = 4096\n')
    found = offline({"log": tmp_path / "a", "fleet": file, "declare": ["peak_flop_per_s=1e6"]})
    assert found is not None
    assert found[1].floors.physical(1000) == pytest.approx(1.0)
    assert found[1].floors.longest == 4096


def test_in_verify_an_over_long_prompt_that_came_in_a_blink_is_corrupt_by_the_floor_too() -> None:
    toy = Toy("stub", context=1024, prefill_pool=256, decode_pool=2048, pace_s=PACE, info=FACTS)
    results = examined(toy, Timing(), ("boundary", "latency")).results()
    assert [(str(e.kind), e.check) for r in results if r.name == "latency" for e in r.evidence] == [
        ("CORRUPT", "floor")
    ]
