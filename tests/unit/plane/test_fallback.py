"""When the client plane serves a lane of the native plane."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.errors import ClusterError, PlaneChangedError, TopicError
from eomirror.plane.fallback import FallbackPlane
from eomirror.plane.native.errors import NativeFailureError, lane_error
from eomirror.plane.protocol import CommitOutcome, ProducerIdentity, Serving, Treatment
from eomirror.types import SourcePartition

SEARCH = Treatment(ranges={SourcePartition("orders", 0): ((100, 10),)})


class Recorder:
    """A plane that notes what is asked of it."""

    def __init__(
        self, name: str, calls: list[str], refuses: str = "", *, cannot_read: str = "", reason: str = ""
    ) -> None:
        self.name, self.calls, self.refuses, self.reason = name, calls, refuses, reason
        self.cannot_read = cannot_read

    def serving(self) -> Serving:
        return Serving(self.name, self.reason)

    def open(self) -> ProducerIdentity:
        self.calls.append(f"{self.name} open")
        if self.refuses:
            failure = NativeFailureError(self.refuses, "transaction.version is 1")
            raise lane_error(failure) from failure
        return ProducerIdentity(1, 1)

    def pump(self, seconds: float) -> str:
        self.calls.append(f"{self.name} pump {seconds}")
        if self.cannot_read:
            failure = NativeFailureError(
                self.cannot_read, "orders-0: message format 1", partition=("orders", 0)
            )
            raise lane_error(failure) from failure
        return self.name

    def commit(self) -> CommitOutcome:
        self.calls.append(f"{self.name} commit")
        return CommitOutcome.CLEAN

    def treat(self, treatment: Treatment) -> None:
        self.calls.append(f"{self.name} treat {len(treatment.ranges)}")

    def restart(self) -> None:
        self.calls.append(f"{self.name} restart")

    def close(self) -> None:
        self.calls.append(f"{self.name} close")


def switching(
    calls: list[str], *, refuses: str = "", cannot_read: str = "", fall_back: bool = True
) -> FallbackPlane:
    """A lane's plane over two recorders."""
    made: Any = Recorder
    return FallbackPlane(
        0,
        native=lambda: made("native", calls, refuses, cannot_read=cannot_read),
        client=lambda reason: made("client", calls, reason=reason),
        fall_back=fall_back,
    )


def test_the_native_plane_serves_and_keeps_serving() -> None:
    """A new producer of the same plane keeps its connections."""
    calls: list[str] = []
    plane = switching(calls)
    plane.open()
    plane.restart()
    plane.open()
    assert plane.commit() is CommitOutcome.CLEAN
    assert calls == ["native open", "native restart", "native open", "native commit"]
    assert plane.serving() == Serving("native")


def test_a_refused_record_is_sought_by_the_client_plane() -> None:
    """From the next producer on; what is known of the search is told before it opens."""
    calls: list[str] = []
    plane = switching(calls)
    plane.open()
    plane.treat(SEARCH)
    plane.restart()
    plane.open()
    assert calls[1:] == ["native restart", "native close", "client treat 1", "client open"]
    assert plane.serving() == Serving("client", "a record that the target refuses is being isolated")


def test_a_search_that_is_over_gives_the_lane_back_with_its_next_commit() -> None:
    """A suspect commit is how a plane asks for a new producer."""
    calls: list[str] = []
    plane = switching(calls)
    plane.treat(SEARCH)
    plane.open()
    assert plane.commit() is CommitOutcome.CLEAN
    plane.treat(Treatment())
    assert plane.commit() is CommitOutcome.SUSPECT
    plane.open()
    assert calls[-2:] == ["client close", "native open"]


def test_a_target_of_the_old_protocol_is_served_by_the_client_plane() -> None:
    """Where the link leaves the choice to us, for as long as the lane lives."""
    calls: list[str] = []
    plane = switching(calls, refuses="unhonoured")
    plane.open()
    assert plane.commit() is CommitOutcome.CLEAN
    plane.open()
    assert calls == [
        "native open", "native close", "client treat 0", "client open", "client commit", "client open",
    ]  # fmt: skip
    assert plane.serving() == Serving("client", "transaction.version is 1")


def test_a_link_that_asks_for_the_native_plane_is_told_that_it_cannot_serve() -> None:
    """Nothing else takes its place unasked."""
    plane = switching([], refuses="unhonoured", fall_back=False)
    with pytest.raises(ClusterError, match=r"transaction\.version"):
        plane.open()


def test_another_failure_to_open_is_no_reason_to_switch() -> None:
    """A target that cannot be reached is not reached by librdkafka either."""
    calls: list[str] = []
    plane = switching(calls, refuses="configuration")
    with pytest.raises(ClusterError):
        plane.open()
    assert calls == ["native open"]


def test_an_old_message_format_is_read_by_the_client_plane() -> None:
    """From the next producer on, for as long as the lane lives; what was open is aborted by the lane."""
    calls: list[str] = []
    plane: Any = switching(calls, cannot_read="old-format")
    plane.open()
    with pytest.raises(PlaneChangedError, match="orders-0: message format 1"):
        plane.pump(1)
    plane.open()
    assert plane.pump(1) == "client"
    assert plane.commit() is CommitOutcome.CLEAN
    plane.open()
    assert calls == [
        "native open", "native pump 1", "native close", "client treat 0", "client open", "client pump 1",
        "client commit", "client open",
    ]  # fmt: skip
    assert plane.serving() == Serving("client", "orders-0: message format 1")


def test_a_link_that_asks_for_the_native_plane_has_its_topic_of_an_old_format_stopped() -> None:
    """By name; nothing else takes its place unasked."""
    plane = switching([], cannot_read="old-format", fall_back=False)
    plane.open()
    with pytest.raises(TopicError) as raised:
        plane.pump(1)
    assert raised.value.topic == "orders"


def test_another_failure_to_read_is_no_reason_to_switch() -> None:
    """A topic that cannot go on stops, on either plane."""
    plane = switching([], cannot_read="topic")
    plane.open()
    with pytest.raises(TopicError):
        plane.pump(1)
    assert plane.serving() == Serving("native")
