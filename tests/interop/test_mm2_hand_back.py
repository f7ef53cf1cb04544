"""A link is handed back to a real MirrorMaker 2, which goes on at the very next record, and taken back from it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import DifferenceError, NotReadyError, StateError
from eomirror.link import owner
from eomirror.mm2 import adopt
from eomirror.mm2.hand_back import hand_back_to_mm2
from support.links.mm2_link import Mm2Link
from support.traffic.records import create_topic, produce, read_committed, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.traffic.records import Record

pytestmark = [pytest.mark.integration, pytest.mark.spark]


class Flow(Mm2Link):
    """Topics of which one comes late; what was written, and what should be in the copies."""

    def __init__(
        self, east: Any, west: Any, name: str, folder: Path, spark: Any, *, exactly_once: bool
    ) -> None:
        super().__init__(east, west, name, folder, spark, exactly_once=exactly_once, topics="{topic}.*")
        self.late = f"{self.topic}-late"
        self.written: dict[str, dict[int, list[Record]]] = {}
        self._numbers = itertools.count()

    def write(self, *topics: str) -> None:
        """Transactions, one in ten aborted: the last marker of each lies behind what was mirrored."""
        for topic in topics:
            more = produce(
                self.east,
                topic,
                self.partitions,
                self._records(300),
                transactional_id=topic,
                per_transaction=20,
            )
            mine = self.written.setdefault(topic, {number: [] for number in range(self.partitions)})
            for number, records in more.items():
                mine[number] += records

    def _records(self, count: int) -> list[Record]:
        """No two alike: MM2's last record is found by what it holds."""
        return [
            (None, b"%d" % number, 1_600_000_000_000 + number, ())
            for number in itertools.islice(self._numbers, count)
        ]

    def arrived(self) -> bool:
        """Whether as many records are in the copies as were written."""
        return all(
            self.mirrored(topic) >= sum(map(len, records.values())) for topic, records in self.written.items()
        )

    def check(self) -> None:
        """0 lost, 0 twice, all in order."""
        found = {topic: read_committed(self.west, self.copy(topic)) for topic in self.written}
        assert found == self.written


class _KilledError(Exception):
    """Instead of kill -9 at a crash point."""


def test_a_link_that_was_handed_back_runs_again_when_it_was_adopted(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running it or handing it back again is refused, with what to do; an adoption that is killed changes nothing."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context, exactly_once=False)
    create_topic(flow.west, f"mm2-offsets.{flow.alias}.internal", 5, **{"cleanup.policy": "compact"})
    flow.write(flow.topic)
    flow.catch_up()
    handed = hand_back_to_mm2(flow.config)
    flow.write(flow.topic)

    for refused in (
        flow.catch_up,
        lambda: hand_back_to_mm2(flow.config),
        lambda: hand_back_to_mm2(flow.config, dry_run=True),
    ):
        with pytest.raises(NotReadyError, match="was handed back to MirrorMaker 2 at") as raised:
            refused()
        assert "eomirror adopt" in raised.value.fix
        assert raised.value.exit_code == 6
    assert flow.state() == "handed back"
    # its topics are watched for longer, by default
    monkeypatch.setattr(adopt, "WATCH_SECONDS", 0.2)
    with monkeypatch.context() as patch:

        def die(point: str) -> None:
            if point == "owner.fenced_all":
                raise _KilledError

        patch.setattr(owner, "crash_point", die)
        with pytest.raises(_KilledError):
            adopt.adopt_mm2(flow.config)
    with pytest.raises(NotReadyError, match="was handed back"):
        flow.catch_up()

    # its process lives on, unlike one that was killed
    monkeypatch.setattr(owner, "is_dead", lambda _: True)
    adopted = adopt.adopt_mm2(flow.config)

    assert [each.committed for each in adopted.partitions] == [each.goes_on - 1 for each in handed.partitions]
    assert flow.state() == "stopped"
    with pytest.raises(StateError, match="positions of its own"):
        adopt.adopt_mm2(flow.config)
    flow.catch_up()
    flow.check()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_mm2_goes_on_where_the_link_stopped(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, exactly_once: bool
) -> None:
    """From MM2 to a link, back to MM2, and to the link again: 0 lost, 0 twice, also of a topic that MM2 never saw."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context, exactly_once=exactly_once)
    flow.write(flow.topic)
    with pytest.raises(StateError, match="no partition that could be handed back"):
        hand_back_to_mm2(flow.config)
    with flow.maker as maker:
        wait_for(lambda: maker.check() and flow.arrived(), 400)
        maker.stop()
    adopt.adopt_mm2(flow.config)
    create_topic(flow.east, flow.late, flow.partitions)
    flow.write(flow.topic, flow.late)
    flow.catch_up()
    looked = hand_back_to_mm2(flow.config, dry_run=True)

    code, found = flow.command("hand-back")

    assert (code, found["committed"]) == (0, True)
    assert found["partitions"] == looked.as_dict()["partitions"]
    assert [(each["topic"], each["had"] is None) for each in found["partitions"]] == [
        (name, name == flow.late) for name in sorted(flow.written) for _ in range(flow.partitions)
    ]
    flow.write(flow.topic, flow.late)
    with flow.maker as maker:
        wait_for(lambda: maker.check() and flow.arrived(), 400)
        with pytest.raises(DifferenceError, match="MirrorMaker 2 runs"):
            hand_back_to_mm2(flow.config)
        maker.stop()
    flow.check()
    with pytest.raises(NotReadyError, match="was handed back"):
        flow.catch_up()
    assert not adopt.adopt_mm2(flow.config).problems
    flow.write(flow.late)
    flow.catch_up()
    flow.check()
