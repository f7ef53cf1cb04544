"""`eomirror plan` of several links, one of which cannot run; discoveries are played."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.cli.app import main
from eomirror.errors import UnreachableError
from eomirror.kafka import reachability
from eomirror.topics import discovery, rights
from eomirror.topics.plan import Plan
from support.links.two_links import TWO_LINKS

if TYPE_CHECKING:
    from pathlib import Path


class Discovery:
    """Plans a link to east; north does not answer."""

    def __init__(self, link: Any, *_: Any, **__: Any) -> None:
        self._link = link

    def plan(self) -> Plan:
        if self._link.target == "north":
            raise UnreachableError("no way to cluster north", fix="check bootstrap.servers")
        return Plan(("a", "b"), {"orders": "west.orders"}, (), (), (), (), {}, first_run=False)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _all_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker is asked for rights."""
    monkeypatch.setattr(rights, "refuse_missing_rights", lambda *_: ())


def plan(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Any, str, str]:
    """Exit code, stdout and stderr of the command."""
    (path / "mirror.yaml").write_text(TWO_LINKS)
    with pytest.raises(SystemExit) as ended:
        main(["plan", str(path / "mirror.yaml"), *arguments])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_one_link_that_cannot_run_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is shown with the reason and what to do, and the exit code says so; alone it fails as ever."""
    monkeypatch.setattr(discovery, "Discovery", Discovery)
    monkeypatch.setattr(reachability, "unreachable_clusters", lambda _: {})

    code, out, _ = plan(tmp_path, capsys, "-o", "json")
    north, east = json.loads(out)["links"]
    assert code == 1
    assert (north["problem"], north["fix"]) == ("no way to cluster north", "check bootstrap.servers")
    assert east["topics"] == {"orders": "west.orders"}

    code, out, _ = plan(tmp_path, capsys, "-o", "table")
    assert code == 1
    assert "cannot run: no way to cluster north" in out
    assert "1 topic to mirror" in out

    code, _, err = plan(tmp_path, capsys, "--link", "west->north")
    assert code == 1
    assert "fix: check bootstrap.servers" in err


@pytest.mark.parametrize(
    ("more", "unused"), [("", []), ("  spare: {bootstrap.servers: s:9092}\n", ["spare"])]
)
@pytest.mark.parametrize("command", ["plan", "check"])
def test_a_cluster_that_no_link_uses_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    more: str,
    unused: list[str],
) -> None:
    """As a note: the exit code stays."""
    monkeypatch.setattr(discovery, "Discovery", Discovery)
    monkeypatch.setattr(reachability, "unreachable_clusters", lambda _: {})
    path = tmp_path / "mirror.yaml"
    path.write_text(TWO_LINKS.replace("clusters:\n", f"clusters:\n{more}"))
    codes = []
    for form in ("json", "table"):
        with pytest.raises(SystemExit) as ended:
            main([command, str(path), "-o", form])
        codes.append(ended.value.code)
    out = capsys.readouterr().out
    found = json.JSONDecoder().raw_decode(out)[0]

    assert codes == [int(command == "plan")] * 2
    assert found["unused_clusters"] == unused
    assert ("note: no link uses cluster spare" in out) is bool(unused)
