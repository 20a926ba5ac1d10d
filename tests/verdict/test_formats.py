"""JUnit and SARIF: valid for whoever reads them, nothing found lost, nothing unproven green, no key in either."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema_rs
import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefence.fleet import Keys
from pagefence.probes import Check, Config, Evidence, Examination, Kind, ProbeResult
from pagefence.verdict import decide
from pagefence.verdict.junit import as_junit
from pagefence.verdict.report import Run, as_json
from pagefence.verdict.sarif import as_sarif

SCHEMAS = Path(__file__).parent / "schemas"
KEYS = Keys("key-of-a", 'key"of<b&', "key-of-admin")
JUNIT = xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd"))
SARIF = jsonschema_rs.Draft4Validator(json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text()))
KEPT = Check("pool", "decode http://d", "pool 10 tokens")

kinds = st.none() | st.sampled_from(list(Kind))
texts = st.text(max_size=30) | st.just("\x00\x1b[2J ]]> <a> & \ud800 key-of-a")
checks = st.builds(Check, st.sampled_from(["pool", "roles"]), texts, texts, kinds)
evidences = st.builds(
    Evidence, st.sampled_from(list(Kind)), st.just("gate"), st.sampled_from(["pool", "x"]), texts, texts,
    st.sampled_from(["I1", "I8", None, "nonsense"]), remedy=st.none() | texts,
)  # fmt: skip


def a_run(*results: ProbeResult, interrupted: bool = False) -> Run:
    verdict = decide(results, interrupted)
    return Run(
        "gate", Examination(Config()), verdict, results, 1234.5, KEYS, interrupted, line="pagefence gate http://r"
    )


def bad(kind: Kind, where: str = "prefill http://p") -> ProbeResult:
    check = Check("pool", where, f"is {kind}", kind)
    found = Evidence(kind, "gate", "pool", where, f"is {kind}", "I8", remedy="Enlarge it.")
    return ProbeResult("gate", (check, KEPT), (found,))


def junit(run: Run) -> ElementTree.Element:
    report = as_junit(run)
    JUNIT.validate(io.BytesIO(report))
    return ElementTree.fromstring(report)


def sarif(run: Run) -> dict[str, object]:
    document = json.loads(as_sarif(run))
    SARIF.validate(document)
    found: dict[str, object] = document["runs"][0]
    return found


@settings(deadline=None)
@given(st.lists(checks, max_size=4), st.lists(evidences, max_size=4), st.booleans(), st.booleans())
def test_whatever_a_fleet_says_junit_is_valid_and_not_greener_than_the_verdict(
    rows: list[Check], found: list[Evidence], finished: bool, interrupted: bool
) -> None:
    run = a_run(ProbeResult("gate", tuple(rows), tuple(found), finished=finished), interrupted=interrupted)
    report = junit(run)
    red = len(report.findall(".//failure")) + len(report.findall(".//error"))
    assert (red > 0) or run.verdict.exit_code == 0
    assert len(report.findall(".//failure")) == int(report.attrib["failures"])
    assert len(report.findall(".//error")) == int(report.attrib["errors"])
    assert len(report.findall(".//testcase")) == int(report.attrib["tests"])


@settings(deadline=None)
@given(st.lists(evidences, max_size=5), st.booleans())
def test_whatever_a_fleet_says_sarif_is_valid_and_has_every_finding(found: list[Evidence], interrupted: bool) -> None:
    run = a_run(ProbeResult("gate", (KEPT,), tuple(found)), interrupted=interrupted)
    document = sarif(run)
    results, rules = document["results"], document["tool"]["driver"]["rules"]  # type: ignore[index]
    assert isinstance(results, list)
    assert len(results) == len(found)
    assert {r["ruleId"] for r in results} == {r["id"] for r in rules}
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] and rules[r["ruleIndex"]]["help"]["text"] for r in results)


@pytest.mark.parametrize(
    ("kind", "tag"), [(Kind.FAIL, "failure"), (Kind.LEAK, "failure"), (Kind.INCONCLUSIVE, "error")]
)
def test_junit_has_a_case_for_each_check_of_each_node(kind: Kind, tag: str) -> None:
    report = junit(a_run(bad(kind)))
    cases = {case.attrib["name"]: case for case in report.findall("testsuite[@name='pagefence.gate']/testcase")}
    assert set(cases) == {"pool prefill http://p", "pool decode http://d"}
    found = cases["pool prefill http://p"].find(tag)
    assert found is not None
    assert found.attrib["type"] == kind
    assert "to do: Enlarge it." in str(found.text)
    assert cases["pool decode http://d"].find(tag) is None


def test_a_row_that_holds_does_not_take_the_words_of_one_that_does_not() -> None:
    held = Check("pool", "prefill http://p", "holds")
    result = bad(Kind.FAIL)
    found = junit(a_run(replace(result, checks=(held, *result.checks)))).findall(".//failure")
    assert ["to do: Enlarge it." in str(one.text) for one in found if one.attrib["message"] == "is FAIL"] == [True]


@pytest.mark.parametrize(
    "run",
    [a_run(), a_run(ProbeResult("gate")), a_run(ProbeResult("gate", (KEPT,), finished=False)),
     a_run(ProbeResult("gate", (KEPT,)), interrupted=True)],
    ids=["no probe", "no check", "unfinished", "interrupted"],
)  # fmt: skip
def test_what_was_not_found_out_is_neither_green_nor_a_success(run: Run) -> None:
    assert junit(run).findall(".//error")
    invocation = sarif(run)["invocations"][0]  # type: ignore[index]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"]
    assert invocation["exitCode"] == run.verdict.exit_code


def test_a_clean_run_is_green_and_a_success_without_results() -> None:
    run = a_run(ProbeResult("gate", (KEPT,)))
    assert not [e for e in junit(run).iter() if e.tag in ("failure", "error")]
    document = sarif(run)
    assert document["results"] == []
    assert document["invocations"][0]["executionSuccessful"] is True  # type: ignore[index]


def test_a_sarif_result_names_its_node_its_rule_and_its_level() -> None:
    document = sarif(a_run(bad(Kind.FAIL), replace(bad(Kind.INCONCLUSIVE), name="boundary")))
    result = document["results"][0]  # type: ignore[index]
    assert result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "prefill http://p"
    assert (result["ruleId"], result["level"]) == ("gate/pool", "error")
    rule = document["tool"]["driver"]["rules"][0]  # type: ignore[index]
    assert "I8 capacity" in rule["fullDescription"]["text"]
    assert "Enlarge it." in rule["help"]["text"]


def test_a_finding_keeps_its_fingerprint_while_its_words_change() -> None:
    prints = []
    for kind, what in ((Kind.FAIL, "5 short"), (Kind.FAIL, "6 short"), (Kind.INCONCLUSIVE, "6 short")):
        found = Evidence(kind, "gate", "pool", "n", what)
        prints.append(sarif(a_run(ProbeResult("gate", (), (found,))))["results"][0]["partialFingerprints"])  # type: ignore[index]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("report", [as_json, as_junit, as_sarif])
def test_no_key_is_in_a_report_however_it_would_be_quoted(report: Callable[[Run], bytes]) -> None:
    said = 'read key-of-a and key"of<b& and key-of-admin'
    found = Evidence(Kind.FAIL, "gate", said, said, said, "I8", remedy=said, details={said: [said]})
    run = a_run(ProbeResult("gate", (Check(said, said, said, Kind.FAIL),), (found,)))
    text = report(run).decode()
    assert "key-of" not in text
    assert "of<b&" not in text
    assert "of&lt;b" not in text
    assert 'key\\"of' not in text
    assert "$PAGEFENCE_KEY_ADMIN" in text
