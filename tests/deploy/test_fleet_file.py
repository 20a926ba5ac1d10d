"""The example of a fleet.toml is one."""

from __future__ import annotations

from pathlib import Path

from pagefence.fleet.fleet_file import read_fleet_file
from tests.deploy.commands import DEPLOY, PROJECT


def test_the_example_names_a_router_and_both_legs() -> None:
    target = read_fleet_file(DEPLOY / "fleet.toml").target
    assert target.router
    assert (len(target.prefill), len(target.decode)) == (2, 1)


def test_what_is_commented_out_can_be_used(tmp_path: Path) -> None:
    """Every `# name = value` and `# [table]` becomes a line of the file; prose stays prose."""
    lines = []
    for line in (DEPLOY / "fleet.toml").read_text().splitlines():
        bare = line.removeprefix("# ")
        lines.append(bare if bare.startswith("[") or " = " in bare else line)
    path = tmp_path / "fleet.toml"
    path.write_text("\n".join(lines))
    target = read_fleet_file(path).target
    assert target.declared == {"": {"context": 131072}, target.decode[0]: {"pool": 681280}}
    assert target.tls.ca == tmp_path / "ca.pem"


def test_the_guide_shows_a_file_that_can_be_read(tmp_path: Path) -> None:
    guide = (PROJECT / "docs" / "guides" / "gate.md").read_text()
    _, _, rest = guide.partition("```toml\n")
    path = tmp_path / "fleet.toml"
    path.write_text(rest.partition("```")[0])
    assert read_fleet_file(path).target.router
