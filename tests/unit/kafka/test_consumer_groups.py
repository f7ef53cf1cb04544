"""What is made of librdkafka's answers about groups; the answers are played."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException
from structlog.testing import capture_logs

from eomirror.config import Cluster
from eomirror.errors import AuthorizationError, MirrorError
from eomirror.kafka.consumer_groups import Committed, GroupCoordinators, TargetGroup
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
NOWHERE = Cluster("west", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})


def done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


class Client:
    """Groups by name; for those of ``away`` there is no coordinator."""

    def __init__(self, *groups: str, away: Sequence[str] = (), commits: Sequence[Any] = ()) -> None:
        self.groups, self.away, self.commits = groups, away, list(commits)

    def poll(self, _: float) -> None:
        pass

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        return done(
            SimpleNamespace(
                valid=[
                    SimpleNamespace(group_id=name, state=ConsumerGroupState.STABLE) for name in self.groups
                ],
                errors=[],
            )
        )

    def describe_consumer_groups(self, groups: Sequence[str], **_: Any) -> dict[str, Future[Any]]:
        idle = SimpleNamespace(members=[], state=ConsumerGroupState.EMPTY)
        return {group: done(TIMED_OUT if group in self.away else idle) for group in groups}

    def list_consumer_group_offsets(self, request: Any, **_: Any) -> dict[str, Future[Any]]:
        group = request[0].group_id
        return {group: done(TIMED_OUT if group in self.away else SimpleNamespace(topic_partitions=[]))}

    def alter_consumer_group_offsets(self, request: Any, **_: Any) -> dict[str, Future[Any]]:
        if self.commits:
            return {request[0].group_id: done(self.commits.pop(0))}
        return self.list_consumer_group_offsets(request)


def partitions_refused(code: int) -> Any:
    """An answer in which a partition is refused."""
    one = SimpleNamespace(topic="t", partition=0, error=KafkaError(code))
    return SimpleNamespace(topic_partitions=[one])


def coordinators(*clients: Client) -> GroupCoordinators:
    """Each client replaces the one before it; the last one stays."""
    waiting = itertools.chain(clients, itertools.repeat(clients[-1]))
    return GroupCoordinators(NOWHERE, "test", clock=PlayedClock(), connect=lambda: next(waiting))


def test_states_are_listed_by_one_request() -> None:
    """Without a description of each group, which no coordinator gives here."""
    assert coordinators(Client("b", "", "a", away=["a", "b"])).listed_states() == {
        "a": "STABLE",
        "b": "STABLE",
    }


def test_the_group_without_a_name_is_none() -> None:
    """It has no coordinator, and one question that cannot be put would keep all groups from being followed."""
    assert coordinators(Client("b", "", "a")).names(strict=True) == (["a", "b"], True)


def test_a_group_without_a_coordinator_does_not_hide_the_others() -> None:
    """Its partition of the offsets' topic is offline; what is asked of the others is answered."""
    found = coordinators(Client(away=["b"])).describe(["a", "b", "c"])
    assert (found["a"], found["c"]) == (TargetGroup("empty", {}), TargetGroup("empty", {}))
    assert "describe group b" in str(found["b"])


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    """And not a word about each of its groups."""
    with pytest.raises(MirrorError, match="describe group a"):
        coordinators(Client(away=["a", "b"])).describe(["a", "b"])


def test_a_strict_call_repeats_what_timed_out_with_a_new_client() -> None:
    """A client holds a request back that is meant for a coordinator that was restarted."""
    stuck, fresh = Client(away=["b"]), Client()
    assert set(coordinators(stuck, fresh).states(["a", "b", "c"])) == {"a", "b", "c"}
    assert set(coordinators(stuck, fresh).committed(["a", "b", "c"])) == {"a", "b", "c"}


def test_a_follower_has_a_new_client_the_next_time() -> None:
    """It does not wait: the group is missing this time."""
    groups = coordinators(Client(away=["b"]), Client())
    assert dict(groups.read_offsets(["a", "b"])) == {"a": {}, "b": "Local: Timed out"}
    assert dict(groups.read_offsets(["a", "b"])) == {"a": {}, "b": {}}


def test_a_commit_that_was_not_answered_is_repeated_with_a_new_client() -> None:
    """The same offsets again, for a group without members."""
    groups = coordinators(Client(away=["b"]), Client())
    assert groups.write_all({"a": [("t", 0, 1, "")], "b": [("t", 0, 1, "")]}) == {"a": "", "b": ""}
    assert coordinators(Client(away=["b"]), Client()).write("b", {("t", 0): Committed(1)}) == ""


@pytest.mark.parametrize("code", [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR])
def test_a_coordinator_that_moves_refuses_for_a_moment(code: int) -> None:
    """It says so of the request, or of each partition."""
    for refused in (KafkaException(KafkaError(code)), partitions_refused(code)):
        groups = coordinators(Client(commits=[refused]))
        assert groups.write_all({"a": [("t", 0, 1, "")]}) == {"a": ""}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID)), "it has members there"),
        (KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)), "commit offsets of group a"),
    ],
)
def test_a_refusal_that_stays_is_told_at_once(answer: Exception, reason: str) -> None:
    """Waiting would not change it."""
    groups = coordinators(Client(commits=[answer]))
    assert reason in groups.write_all({"a": [("t", 0, 1, "")]})["a"]


def partly_refused(**codes: int) -> Any:
    """An answer for partitions of t: an error code each, 0 for none."""
    return SimpleNamespace(
        topic_partitions=[
            SimpleNamespace(topic="t", partition=int(name[1:]), error=KafkaError(code) if code else None)
            for name, code in codes.items()
        ]
    )


def test_refused_partitions_are_named_with_those_that_are_committed() -> None:
    """With the broker's reason for each: the answer is by partition."""
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    groups = coordinators(Client(commits=[partly_refused(p0=0, p1=denied, p2=denied)]))
    said = groups.write_all({"a": [("t", number, 1, "") for number in range(3)]})["a"]
    assert said.startswith("t-1: ")
    assert "; t-2: " in said
    assert said.endswith("; committed: t-0")
    assert "lacks Read on topic t of cluster" in said
    assert "--operation Read --topic 't'" in said
    assert "--group" not in said


@pytest.mark.parametrize(
    ("code", "right"),
    [(KafkaError.GROUP_AUTHORIZATION_FAILED, "group a"), (KafkaError.TOPIC_AUTHORIZATION_FAILED, "topic t")],
)
def test_a_refused_commit_suggests_the_right_that_it_lacks(code: int, right: str) -> None:
    """A topic's right for a topic that is refused, and Read, which a commit needs."""
    groups = coordinators(Client(commits=[KafkaException(KafkaError(code))]))
    with pytest.raises(AuthorizationError) as raised:
        groups.write("a", {("t", 0): Committed(1)})
    kind, name = right.split()
    assert f"lacks Read on {right} of cluster" in raised.value.message
    assert raised.value.fix.endswith(f"--operation Read --{kind} '{name}'")
    assert len(raised.value.missing_rights) == 1


def test_metadata_that_is_too_large_is_left_out_and_the_partition_committed() -> None:
    """The log names group, partition and size; the others are not written again."""
    client = Client(
        commits=[partly_refused(p0=0, p1=KafkaError.OFFSET_METADATA_TOO_LARGE), partly_refused(p1=0)]
    )
    asked: list[Any] = []
    sent = client.alter_consumer_group_offsets
    client.alter_consumer_group_offsets = lambda request, **more: (  # type: ignore[method-assign]
        asked.append(request[0].topic_partitions) or sent(request, **more)
    )
    with capture_logs() as logs:
        assert coordinators(client).write_all({"a": [("t", 0, 1, "m"), ("t", 1, 2, "m" * 9)]}) == {"a": ""}

    (one,) = asked[1]
    assert (one.partition, one.offset, one.metadata or "") == (1, 2, "")
    (said,) = logs
    assert (said["event"], said["partition"], said["bytes"]) == ("group_metadata_left_out", "t-1", 9)


def test_a_coordinator_that_stays_away_ends_a_strict_call() -> None:
    """After its time, and not before."""
    with pytest.raises(MirrorError, match="describe group b"):
        coordinators(Client(away=["b"])).states(["a", "b"])


def test_metadata_with_a_nul_is_sent_as_it_is() -> None:
    """Clients that end a text with a NUL have committed some."""
    client = Client()
    asked: list[Any] = []
    sent = client.alter_consumer_group_offsets
    client.alter_consumer_group_offsets = lambda request, **more: (  # type: ignore[method-assign]
        asked.append(request[0].topic_partitions) or sent(request, **more)
    )
    assert coordinators(client).write_all({"a": [("t", 0, 1, "m\0"), ("t", 1, 2, "\0m")]}) == {"a": ""}
    assert [one.metadata for one in asked[0]] == ["m\0", "\0m"]
