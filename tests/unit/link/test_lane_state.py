"""What a lane makes of state topics that it cannot read or does not find, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config import Cluster, Link
from eomirror.errors import AuthorizationError, MirrorError, UnreachableError
from eomirror.kafka import partition_reader
from eomirror.kafka.cluster_metadata import TopicFacts
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.kafka.session import ClusterSession
from eomirror.lane.spec import LaneSpec
from eomirror.link.lane_state import LaneStateReader

NOWHERE = Cluster("west", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})


class Admin:
    """Knows every topic but those that are missing."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts | None]:
        return {name: None if name.endswith(self.missing) else TopicFacts(name, "id", 7, 1) for name in names}

    def offsets(self, names: list[tuple[str, int]], *, at: str, **_: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(names, 0 if at == "earliest" else 5)


def session(admin: Any, clock: Clock = SYSTEM_CLOCK) -> ClusterSession:
    """One whose admin client is played."""
    made = ClusterSession(NOWHERE, client_id="test", clock=clock)
    made._admin = admin
    return made


class Failing:
    """A consumer that meets an error at once."""

    def __init__(self, code: int) -> None:
        self._code = code

    def consume(self, *_: Any) -> list[Any]:
        return [self]

    def error(self) -> KafkaError:
        return KafkaError(self._code)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._BAD_MSG, UnreachableError),
        (KafkaError._AUTO_OFFSET_RESET, UnreachableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_a_state_topic_that_breaks_off_is_read_again(
    code: int, kind: type[MirrorError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged batch or a log whose start has moved passes with another reader; only a person can grant a right."""
    monkeypatch.setattr(partition_reader, "create_client", lambda *_: Failing(code))
    with pytest.raises(MirrorError) as caught:
        CompactedTopicReader(session(Admin())).read("topic")

    assert type(caught.value) is kind


class OnePartition(Admin):
    """Every topic has one partition, with five records."""

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts | None]:
        return {name: TopicFacts(name, "id", 1, 1) for name in names}


class Slow:
    """A consumer, and a clock: a record every forty seconds, and the end of the partition after five of them."""

    def __init__(self) -> None:
        self._now = 0.0
        self._offset = -1

    def monotonic(self) -> float:
        return self._now

    def consume(self, *_: Any) -> list[Any]:
        self._now += 40.0
        self._offset += 1
        return [self]

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._offset == 5 else None

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def test_a_large_topic_is_handed_out_record_by_record_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time that `each` waits counts from the last record; that of `read` is for all of them."""

    def reader() -> CompactedTopicReader:
        slow: Any = Slow()
        monkeypatch.setattr(partition_reader, "create_client", lambda *_: slow)
        return CompactedTopicReader(session(OnePartition(), slow))

    taken: list[int] = []
    reader().each("topic", lambda record: taken.append(record.offset))
    assert taken == [0, 1, 2, 3, 4]
    with pytest.raises(UnreachableError, match="topic-0"):
        reader().read("topic")


def test_an_offset_map_that_is_not_there_is_not_guessed() -> None:
    """Chunks in the wrong partition are not found, and an offset behind them would be translated past records."""
    spec = LaneSpec(
        link=Link(name="one", source="east", target="west", topics=("t",)),
        source=NOWHERE, target=NOWHERE, source_cluster_id="a", target_cluster_id="b", run="r", generation=1, lane=0,
        epoch=1, attempt=1, seconds=60.0, partitions=(),
    )  # fmt: skip
    admin = Admin(".offset-map")
    state = LaneStateReader(spec, session(admin))
    with pytest.raises(UnreachableError, match="offset-map"):
        state.state_topics()
    admin.missing = ("nothing",)
    assert state.state_topics().offset_map_partitions == 7
