"""What a failure of the native plane means for a lane."""

from __future__ import annotations

import pytest

from eomirror._native import NativeLane
from eomirror.config.rights import ClusterUser, Right
from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    DataLossError,
    FencedError,
    LaneError,
    MirrorError,
    OutcomeUnknownError,
    PlaneChangedError,
    RecordRefusedError,
    SourceDamagedError,
    SourceUnreadableError,
    TopicError,
    TransactionFailedError,
    UnreachableError,
)
from eomirror.plane.native.errors import KINDS, NativeFailureError, Users, lane_error
from eomirror.plane.protocol import RangeRefusedError, RejectionReason

EXPECTED: dict[str, type[LaneError | MirrorError]] = {
    "unhonoured": ClusterError,
    "configuration": ClusterError,
    "unauthorized": AuthorizationError,
    "protocol": ClusterError,
    "unreachable": UnreachableError,
    "abortable": TransactionFailedError,
    "refused": RangeRefusedError,
    "superseded": FencedError,
    "outcome-unknown": OutcomeUnknownError,
    "truncated": DataLossError,
    "rewritten": DataLossError,
    "hole": TransactionFailedError,
    "gap": TransactionFailedError,
    "topic-gone": TransactionFailedError,
    "damaged": SourceDamagedError,
    "unreadable": SourceUnreadableError,
    "old-format": TopicError,
    "topic": TopicError,
    "unaccounted": TransactionFailedError,
    "misuse": TransactionFailedError,
}


def failure(
    kind: str, code: str = "MESSAGE_TOO_LARGE", source: tuple[str, int] | None = ("orders", 2)
) -> NativeFailureError:
    """A failure about a partition."""
    return NativeFailureError(
        kind,
        "it went wrong",
        fix="mend it",
        partition=("orders", 2),
        refused=(source, "east.orders", 7, 9, code),
    )


def test_every_kind_of_the_extension_has_a_row_and_no_row_is_without_a_kind() -> None:
    """A kind that is added in Rust must be thought about here."""
    assert set(KINDS) == set(NativeLane.failure_kinds()) == set(EXPECTED)


@pytest.mark.parametrize(("kind", "expected"), EXPECTED.items())
def test_each_kind_becomes_the_error_that_the_lane_acts_upon(
    kind: str, expected: type[LaneError | MirrorError]
) -> None:
    """The class decides between another attempt, a stopped topic and a stopped mirror."""
    assert type(lane_error(failure(kind))) is expected


@pytest.mark.parametrize("kind", ["truncated", "old-format", "topic", "unauthorized"])
def test_what_concerns_one_topic_stops_only_that_topic(kind: str) -> None:
    """The source topic is named in the error."""
    error = lane_error(failure(kind))
    assert isinstance(error, MirrorError)
    assert error.topic == "orders"


def test_a_right_that_is_missing_comes_with_the_command_that_grants_it() -> None:
    """As on the client plane; the extension knows no principal and no address."""
    ours = Users(ClusterUser("east", "e:1", "mirror"), ClusterUser("west", "w:1", "mirror"), "eomirror.a.b.0")
    error = lane_error(failure("unauthorized"), users=ours)
    assert isinstance(error, MirrorError)
    assert "User:mirror lacks Read on topic orders of cluster east (e:1)" in error.message
    assert error.fix == Right("Read", "topic", "orders").acl(ours.source)
    for message, right in (
        (
            "east.a-b-3 refuses source offsets 1 to 2 (no): TOPIC_AUTHORIZATION_FAILED",
            Right("Write", "topic", "east.a-b"),
        ),
        (
            "the transaction must be aborted: the commit: TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            Right("Write", "transactional-id", "eomirror.a.b.0"),
        ),
    ):
        told = lane_error(NativeFailureError("unauthorized", message), users=ours)
        assert isinstance(told, MirrorError)
        assert told.fix == right.acl(ours.target), message
    whole = lane_error(NativeFailureError("unauthorized", "the login is refused", fix="check it"))
    assert isinstance(whole, MirrorError)
    assert whole.fix == "check it"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("MESSAGE_TOO_LARGE", RejectionReason.SIZE),
        ("RECORD_LIST_TOO_LARGE", RejectionReason.SEGMENT),
        ("INVALID_TIMESTAMP", RejectionReason.TIMESTAMP),
        ("INVALID_RECORD", RejectionReason.INVALID),
    ],
)
def test_a_refused_batch_is_named_by_its_source_offsets(code: str, reason: RejectionReason) -> None:
    """The search for the record begins in that range."""
    error = lane_error(failure("refused", code))
    assert isinstance(error, RangeRefusedError)
    found = error.rejection
    assert (str(found.source), found.begin, found.end) == ("orders-2", 7, 10)
    assert (found.target_topic, found.reason, found.record) == ("east.orders", reason, None)


def test_a_refused_record_that_is_not_sought_stops_its_topic_and_names_the_range() -> None:
    """Where records are placed by key, the client plane cannot tell the source partition of a refused one."""
    error = lane_error(failure("refused"), search=False)
    assert type(error) is RecordRefusedError
    assert error.topic == "orders"
    assert "orders-2: the target topic east.orders refuses a record of [7, 10)" in error.message
    assert "topic east.orders" in error.fix


def test_a_refused_record_of_the_lane_itself_is_not_sought_in_the_source() -> None:
    """A state topic that refuses our records is for a person to mend."""
    error = lane_error(failure("refused", source=None))
    assert type(error) is RecordRefusedError
    assert error.topic == ""


def test_a_kind_that_is_not_known_ends_the_attempt() -> None:
    """Nothing is guessed of an extension that is newer than this table."""
    assert type(lane_error(failure("of tomorrow"))) is TransactionFailedError


@pytest.mark.parametrize(
    ("gap", "expected", "words"),
    [
        ((102, 150, 400), DataLossError, "the source deleted offsets [102, 150)"),
        ((102, 0, 90), DataLossError, "mirrored up to offset 102, but the log ends at 90"),
        # the log has grown over the position since
        ((102, 0, 400), TransactionFailedError, "it went wrong"),
        (None, TransactionFailedError, "it went wrong"),
    ],
)
def test_a_gap_is_named_by_what_the_source_said_of_its_log(
    gap: tuple[int, int, int] | None, expected: type[Exception], words: str
) -> None:
    """EO-6: the committed position and the log's ends make the range; without them recovery looks again."""
    error = lane_error(NativeFailureError("gap", "it went wrong", partition=("orders", 2), gap=gap))
    assert type(error) is expected
    assert words in str(error)
    assert getattr(error, "topic", "") == ("orders" if expected is DataLossError else "")


def test_a_gap_that_the_user_accepts_is_left_to_recovery() -> None:
    """It records the range in the transaction that moves the position (EO-6)."""
    failure = NativeFailureError("gap", "it went wrong", partition=("orders", 2), gap=(102, 150, 400))
    assert type(lane_error(failure, accept_gaps=True)) is TransactionFailedError


@pytest.mark.parametrize(("kind", "expected"), EXPECTED.items())
def test_only_what_the_client_plane_can_serve_gives_way_to_it(
    kind: str, expected: type[LaneError | MirrorError]
) -> None:
    """A target that cannot be reached is not reached by librdkafka either."""
    error = lane_error(failure(kind), fall_back=True)
    gives_way = kind in {"unhonoured", "old-format"}
    assert type(error) is (PlaneChangedError if gives_way else expected)
    assert not gives_way or str(error) == failure(kind).message


def test_a_hole_is_named_with_its_range() -> None:
    """EO-6: exit code 4, with the offsets that no batch has."""
    hole = NativeFailureError("hole", "no batch", partition=("orders", 2), gap=(200, 300, 300))
    error = lane_error(hole)

    assert isinstance(error, DataLossError)
    assert "orders-2: offsets [200, 300) are missing" in error.message
    assert error.topic == "orders"
