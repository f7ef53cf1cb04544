"""Results of comparisons are recorded as what they are: ends as ends, and without secrets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror import load_config
from eomirror.cli.failover import comparison
from eomirror.errors import DifferenceError
from eomirror.failover import verification
from eomirror.failover.verification import CopyComparison
from eomirror.records.reports import Reports, decode_reports
from eomirror.verify import report as recording
from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, Range, Scope

SECRET = "k3-battery-staple"  # noqa: S105  it is planted
CONFIG = load_config(
    {
        "clusters": {
            "west": {"bootstrap.servers": "127.0.0.1:1"},
            "east": {
                "bootstrap.servers": "127.0.0.1:3", "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN", "sasl.username": "mirror", "sasl.password": SECRET,
            },
        },
        "links": [{"name": "dr", "source": "west", "target": "east", "topics": ["orders"]}],
    }
)  # fmt: skip
LINK = CONFIG.links[0]


class Verifier:
    """Compares one partition; it differs if it has a problem."""

    problem = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def run(self, **_: Any) -> LinkVerdict:
        scope = Scope(
            source=Range("orders", 0, 5, 20, 20),
            target=Range("west.orders", 0, 5, 20, 20),
            problem=self.problem,
        )
        return LinkVerdict(link="dr", plane="native", partitions=(PartitionVerdict(scope=scope),))

    def close(self) -> None:
        pass


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """Records that are written to the target."""
    found: list[tuple[bytes, bytes]] = []

    def write(_cluster: Any, topic: str, records: list[tuple[bytes, bytes]], **_: Any) -> str:
        assert topic == "eomirror.dr.control"
        found.extend(records)
        return "no right" if not found else ""

    def tail(*_: Any) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(recording, "write_records", write)
    monkeypatch.setattr(verification, "Verifier", Verifier)
    monkeypatch.setattr(verification, "_tail", tail)
    monkeypatch.setattr(Verifier, "problem", "")
    return found


def action(**changes: Any) -> Any:
    """A command on the link."""
    return SimpleNamespace(**{"config": CONFIG, "link": "dr", "dry_run": False} | changes)


def read(written: list[tuple[bytes, bytes]]) -> Reports:
    return decode_reports(written)


def test_the_end_of_a_copy_is_recorded_as_its_end(written: list[tuple[bytes, bytes]]) -> None:
    """After the promotion only: applications stand still before."""
    with comparison(action(), "cutover", "tail", 500) as compare:
        assert compare is not None
        compare(LINK)
        assert written == []
    found = read(written)
    assert found.verifications == ()
    assert found.tail is not None
    assert (found.tail.outcome, found.tail.tail, found.tail.command) == ("equal", 500, "cutover")


def test_a_whole_comparison_is_one_of_the_topics(written: list[tuple[bytes, bytes]]) -> None:
    """`--verify full` compares what `eomirror verify` does."""
    with comparison(action(), "promote", "full", 500) as compare:
        assert compare is not None
        compare(LINK)
    found = read(written)
    assert [(one.topic, one.outcome, one.from_offset) for one in found.verifications] == [
        ("orders", "equal", 0)
    ]
    assert found.tail is None


def test_a_difference_is_recorded_although_it_ends_the_command(
    written: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the promotion."""
    monkeypatch.setattr(Verifier, "problem", "target topic west.orders was recreated")

    def compared() -> None:
        with comparison(action(), "cutover", "tail", 500) as compare:
            assert compare is not None
            compare(LINK)

    with pytest.raises(DifferenceError):
        compared()
    found = read(written)
    assert found.tail is not None
    assert found.tail.outcome == "differs"
    assert [one.outcome for one in found.verifications] == ["differs"]


def test_a_dry_run_writes_nothing(written: list[tuple[bytes, bytes]]) -> None:
    """Nor does a command that compared nothing."""
    with comparison(action(dry_run=True), "cutover", "tail", 500) as compare:
        assert compare is not None
        compare(LINK)
    with comparison(action(), "cutover", "tail", 500):
        pass
    with comparison(action(), "cutover", "skip", 500) as compare:
        assert compare is None
    assert written == []


def test_a_result_that_cannot_be_recorded_is_told(
    written: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The link is promoted all the same."""
    monkeypatch.setattr(recording, "write_records", lambda *_, **__: "no right")
    with comparison(action(), "cutover", "tail", 500) as compare:
        assert compare is not None
        compare(LINK)
    told = capsys.readouterr().err
    assert "the comparison is not recorded on the target: no right" in told
    assert "fix: allow Write on topic eomirror.dr.control" in told
    assert written == []


def test_a_secret_in_a_reason_is_not_recorded(
    written: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reader of the control topic would see it."""
    monkeypatch.setattr(Verifier, "problem", f"login mirror:{SECRET} refused")
    made = CopyComparison(CONFIG, tail=None)
    with pytest.raises(DifferenceError):
        made.compare(LINK)
    assert made.record("promote") == ""
    assert SECRET.encode() not in b"".join(part for record in written for part in record)
    assert [one.problem for one in read(written).verifications] == ["hidden, because it contains a secret"]
