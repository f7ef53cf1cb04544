"""Outages of both clusters, as records of a mirror that ran through them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror.driver.outage_records import OutageRecords
from eomirror.records.events import Outage
from support.fakes.clocks import PlayedClock
from support.links.one_link import CONFIG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.plane.protocol import MetadataRecord

LINK = CONFIG.links[0]


class Mirror:
    """Renews a claim every 5 s."""

    def __init__(self) -> None:
        self.clock = PlayedClock()
        self.failing = 0.0
        self.away = False
        # seconds for which the target keeps a commit waiting
        self.waits = 0.0
        self.written: list[tuple[bytes | None, bytes | None]] = []
        self.records = OutageRecords(LINK, failing=lambda: self.failing, clock=self.clock)

    def renew(self) -> None:
        self.clock.sleep(5)

        def commit(records: Sequence[MetadataRecord]) -> None:
            if self.away:
                raise TimeoutError
            self.clock.sleep(self.waits)
            self.written += [(one.key, one.value) for one in records]

        try:
            self.records.write(commit)
        except TimeoutError:
            assert self.away


@pytest.fixture
def mirror() -> Mirror:
    return Mirror()


def test_a_source_that_comes_back_has_one_record(mirror: Mirror) -> None:
    """With begin and end; a single request that failed has none."""
    for failing in (0.0, 3.0, 0.0, 4.0, 9.0, 54.0):
        mirror.failing = failing
        mirror.renew()
    assert mirror.written == []
    mirror.failing = 0.0
    mirror.renew()
    mirror.renew()
    (written,) = mirror.written
    now = mirror.clock.wall_ms()
    outage = Outage(at=now - 5_000 - 15_000 - 4_000, cluster=LINK.source, until=now - 5_000)
    assert written == (outage.key(), outage.value())


def test_a_target_that_comes_back_has_one_record(mirror: Mirror) -> None:
    """From the last record that it took; what was due of the source is written with it."""
    mirror.renew()
    since = mirror.clock.wall_ms()
    mirror.failing = 20.0
    mirror.away = True
    mirror.renew()
    mirror.failing = 0.0
    mirror.renew()
    assert mirror.written == []
    mirror.away = False
    mirror.renew()
    now = mirror.clock.wall_ms()
    target = Outage(at=since, cluster=LINK.target, until=now)
    assert [key for key, _ in mirror.written][1] == target.key()
    assert len(mirror.written) == 2
    mirror.renew()
    assert len(mirror.written) == 2


@pytest.mark.parametrize("failed", [False, True])
def test_a_target_that_comes_back_before_the_commit_gives_up_has_one_record(
    mirror: Mirror, *, failed: bool
) -> None:
    """The producer waits for a transaction's time; a target that is only busy is not away."""
    mirror.waits = 6.0
    mirror.renew()
    since = mirror.clock.wall_ms()
    mirror.away = failed
    mirror.renew()
    mirror.away, mirror.waits = False, 14.0
    mirror.renew()
    until = mirror.clock.wall_ms()
    mirror.waits = 0.0
    mirror.renew()
    mirror.renew()
    at = since if failed else until - 14_000
    outage = Outage(at=at, cluster=LINK.target, until=until)
    # control is compacted
    assert dict(mirror.written) == {outage.key(): outage.value()}


def test_a_mirror_that_was_suspended_is_no_outage(mirror: Mirror) -> None:
    """Its claim stood still, but no request failed."""
    mirror.renew()
    mirror.clock.sleep(3_600)
    mirror.renew()
    assert mirror.written == []
