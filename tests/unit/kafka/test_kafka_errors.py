"""Every row of the classification, place by place, and what a person is told."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from eomirror.config.rights import ClusterUser, Right
from eomirror.errors import (
    AuthorizationError,
    BrokerFailedError,
    ClusterError,
    HandshakeError,
    TopicGoneError,
    UnreachableError,
)
from eomirror.kafka import errors
from eomirror.kafka.errors import (
    Action,
    classify_admin,
    classify_delivery,
    classify_fetch,
    classify_transaction,
    to_mirror_error,
)

# one letter for each place: transaction, delivery, fetch, admin; `.` where the table is silent
LETTERS = {
    "r": Action.RETRY,
    "b": Action.REBUILD,
    "f": Action.FENCED,
    "x": Action.REFUSED_RECORD,
    "g": Action.SOURCE_GAP,
    "t": Action.SOURCE_TRUNCATED,
    "m": Action.TOPIC_GONE,
    "d": Action.DAMAGED,
    "a": Action.UNAUTHORIZED,
    "u": Action.UNREACHABLE,
    "c": Action.CONFIGURATION,
    "!": Action.FATAL,
}
PLACES = {
    "transaction": (errors._TRANSACTION, classify_transaction),
    "delivery": (errors._DELIVERY, classify_delivery),
    "fetch": (errors._FETCH, classify_fetch),
    "admin": (errors._ADMIN, classify_admin),
}
ROWS = {
    # rights, credentials, settings: the same everywhere
    "TOPIC_AUTHORIZATION_FAILED": "aaaa",
    "GROUP_AUTHORIZATION_FAILED": "aara",
    "CLUSTER_AUTHORIZATION_FAILED": "aaaa",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "aaaa",
    "SASL_AUTHENTICATION_FAILED": "aaaa",
    "_AUTHENTICATION": "aaaa",
    "UNSUPPORTED_SASL_MECHANISM": "cccc",
    "ILLEGAL_SASL_STATE": "cccc",
    "SECURITY_DISABLED": "cccc",
    "UNSUPPORTED_VERSION": "cccc",
    "_UNSUPPORTED_FEATURE": "cccc",
    "_NOT_IMPLEMENTED": "cccc",
    "_NOT_CONFIGURED": "cccc",
    "_INVALID_ARG": "cccc",
    "INVALID_CONFIG": "cccc",
    "POLICY_VIOLATION": "cccc",
    # no broker answers: a consumer goes on on its own, a delivery report is final
    "_TRANSPORT": "ubru",
    "_DESTROY_BROKER": "ubru",
    "_RESOLVE": "ubru",
    "_ALL_BROKERS_DOWN": "ubru",
    "_FAIL": "ubru",
    "_TIMED_OUT": "ubru",
    "_TIMED_OUT_QUEUE": "ubru",
    "REQUEST_TIMED_OUT": "ubru",
    "NETWORK_EXCEPTION": "ubru",
    "BROKER_NOT_AVAILABLE": "ubru",
    "_SSL": "ubru",
    "REBOOTSTRAP_REQUIRED": "ubru",
    # the wrong one answers, or not yet
    "_RETRY": "rbrr",
    "_WAIT_COORD": "rbrr",
    "_WAIT_CACHE": "rbrr",
    "_IN_PROGRESS": "rbrr",
    "_PREV_IN_PROGRESS": "rbrr",
    "_INTR": "rbrr",
    "COORDINATOR_LOAD_IN_PROGRESS": "rbrr",
    "COORDINATOR_NOT_AVAILABLE": "rbrr",
    "NOT_COORDINATOR": "rbrr",
    "NOT_CONTROLLER": "rbrr",
    "LEADER_NOT_AVAILABLE": "rbrr",
    "NOT_LEADER_FOR_PARTITION": "rbrr",
    "FENCED_LEADER_EPOCH": "rbrr",
    "UNKNOWN_LEADER_EPOCH": "rbrr",
    "KAFKA_STORAGE_ERROR": "rbrr",
    "REPLICA_NOT_AVAILABLE": "rbrr",
    "OFFSET_NOT_AVAILABLE": "rbrr",
    "NOT_ENOUGH_REPLICAS": "rbrr",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "rbrr",
    "REASSIGNMENT_IN_PROGRESS": "rbrr",
    "THROTTLING_QUOTA_EXCEEDED": "rbrr",
    # transactions
    "_FENCED": "ff..",
    "PRODUCER_FENCED": "ff..",
    "INVALID_PRODUCER_EPOCH": "ff..",
    "TRANSACTION_COORDINATOR_FENCED": "bb..",
    "CONCURRENT_TRANSACTIONS": "rr..",
    "_CONFLICT": "bb..",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "bb..",
    "DUPLICATE_SEQUENCE_NUMBER": "bb..",
    "UNKNOWN_PRODUCER_ID": "bb..",
    "INVALID_PRODUCER_ID_MAPPING": "bb..",
    "INVALID_TXN_STATE": "bb..",
    "TRANSACTION_ABORTABLE": "bb..",
    "OPERATION_NOT_ATTEMPTED": "bb..",
    "INVALID_REQUEST": "bb.c",
    "_GAPLESS_GUARANTEE": "bb..",
    "_INCONSISTENT": "bb..",
    "_MSG_TIMED_OUT": "bb..",
    "_PURGE_QUEUE": "bb..",
    "_PURGE_INFLIGHT": "bb..",
    "_FATAL": "bbb.",
    "_DESTROY": "bb..",
    "_STATE": "bbb.",
    "INVALID_TRANSACTION_TIMEOUT": "cc..",
    "INVALID_REQUIRED_ACKS": "cc..",
    "PRINCIPAL_DESERIALIZATION_FAILURE": "!!.!",
    "_CRIT_SYS_RESOURCE": "!!!!",
    # topics that went away: a transaction asks recovery, everybody else knows which topic it is
    "UNKNOWN_TOPIC_OR_PART": "bmmm",
    "_UNKNOWN_TOPIC": "bmmm",
    "_UNKNOWN_PARTITION": "bmmm",
    "UNKNOWN_TOPIC_ID": "bmmm",
    "INCONSISTENT_TOPIC_ID": "bmm.",
    "_NOENT": "...m",
    "TOPIC_EXCEPTION": ".m.c",
    # records
    "MSG_SIZE_TOO_LARGE": ".x..",
    "RECORD_LIST_TOO_LARGE": ".x..",
    "INVALID_TIMESTAMP": ".x..",
    "INVALID_RECORD": ".x..",
    "_INVALID_DIFFERENT_RECORD": ".x..",
    "INVALID_MSG": ".bd.",
    "INVALID_MSG_SIZE": ".xd.",
    "UNSUPPORTED_COMPRESSION_TYPE": ".cc.",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": ".c..",
    # the source
    "OFFSET_OUT_OF_RANGE": "..g.",
    "_AUTO_OFFSET_RESET": "..g.",
    "_NO_OFFSET": "..g.",
    "_LOG_TRUNCATION": "..t.",
    "_BAD_MSG": "..d.",
    "_BAD_COMPRESSION": "..d.",
    "_UNDERFLOW": "..d.",
    "FETCH_SESSION_ID_NOT_FOUND": "..r.",
    "INVALID_FETCH_SESSION_EPOCH": "..r.",
    "UNSTABLE_OFFSET_COMMIT": "..r.",
    # topics that we ask for
    "INVALID_REPLICATION_FACTOR": "...c",
    "INVALID_REPLICA_ASSIGNMENT": "...c",
    "INVALID_PARTITIONS": "...c",
}


def error(name: str, text: str = "", **flags: bool) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), text or None, **flags)


@pytest.mark.parametrize("name", ROWS)
def test_a_code_means_what_it_should_in_each_place(name: str) -> None:
    """The table, row by row, through the public functions, each with its reason."""
    for letter, (place, (table, decide)) in zip(ROWS[name], PLACES.items(), strict=True):
        code = getattr(KafkaError, name)
        assert (code in table) is (letter != "."), place
        if letter != ".":
            verdict = decide(error(name))
            assert verdict.action is LETTERS[letter], place
            assert len(verdict.reason) > 10, place


@pytest.mark.parametrize("place", PLACES)
def test_no_row_is_untested(place: str) -> None:
    """A row that is added to a table is added here, with what it should do."""
    known = {getattr(KafkaError, name) for name in ROWS}
    assert set(PLACES[place][0]) <= known


def test_every_code_of_the_library_gets_an_answer() -> None:
    """No code that librdkafka may ever report raises, and none without a row is repeated for ever."""
    codes = [getattr(KafkaError, name) for name in dir(KafkaError) if name.strip("_").isupper()]
    assert len(codes) > 150
    for code in codes:
        for table, decide in PLACES.values():
            if code not in table:
                assert decide(KafkaError(code)).action in {Action.REBUILD, Action.FATAL, Action.UNREADABLE}


def test_an_unknown_error_of_a_transaction_is_never_guessed() -> None:
    """Rule 8: nothing set means rebuild, not retry."""
    assert classify_transaction(error("UNKNOWN")).action is Action.REBUILD
    assert classify_delivery(error("UNKNOWN", retriable=True)).action is Action.REBUILD


@pytest.mark.parametrize(
    ("name", "action"),
    [("UNKNOWN", Action.UNREADABLE), ("INVALID_REQUEST", Action.UNREADABLE), ("_STATE", Action.REBUILD)],
)
def test_a_leader_that_fails_to_read_is_told_from_a_consumer_that_does(name: str, action: Action) -> None:
    """The partition's topic can be set aside; a consumer is made anew."""
    assert classify_fetch(error(name)).action is action


@pytest.mark.parametrize("decide", [classify_transaction, classify_fetch, classify_admin])
def test_librdkafka_s_word_counts_where_the_table_is_silent(decide: Any) -> None:
    """A retriable error without a row is retried."""
    assert decide(error("UNKNOWN", retriable=True)).action is Action.RETRY


@pytest.mark.parametrize("name", ["_TIMED_OUT", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS", "UNKNOWN"])
@pytest.mark.parametrize("flag", ["txn_requires_abort", "fatal"])
def test_a_transaction_that_must_end_is_never_repeated(name: str, flag: str) -> None:
    """Librdkafka's abort and fatal flags stand above a row that says retry (fault table, row 14)."""
    flags = {flag: True}
    assert classify_transaction(error(name, retriable=flag != "fatal", **flags)).action is Action.REBUILD


def test_a_fenced_producer_stays_fenced_whatever_the_flags_say() -> None:
    """`_FENCED` is fatal to the producer; what matters is who took the id (rule 10)."""
    assert classify_transaction(error("_FENCED", fatal=True)).action is Action.FENCED


def test_a_spent_consumer_is_replaced() -> None:
    """A fatal error of a consumer is not waited out."""
    assert classify_fetch(error("_TRANSPORT", fatal=True)).action is Action.REBUILD


def test_a_timeout_is_told_by_its_cause() -> None:
    """A request that was never sent times out; why there was no connection is what a person needs."""
    told = to_mirror_error(
        error("_TIMED_OUT"),
        doing="list topics",
        cluster="west (127.0.0.1:1)",
        reason=error("_TRANSPORT", "Connect to ipv4#127.0.0.1:1 failed: Connection refused"),
    )

    assert isinstance(told, ClusterError)
    assert "Connection refused" in told.message
    assert "127.0.0.1:1" in told.message
    assert "bootstrap.servers" in told.fix


def test_an_old_reason_does_not_hide_a_clear_answer() -> None:
    """What the broker answered counts, not that the connection broke once."""
    told = to_mirror_error(
        error("INVALID_REPLICATION_FACTOR"), doing="create", cluster="west", reason=error("_TRANSPORT", "x")
    )

    assert "replication_factor" in told.fix


def test_a_missing_right_comes_with_the_line_that_grants_it() -> None:
    """Resource, operation and principal are in the message, the command in the fix."""
    told = to_mirror_error(
        error("TOPIC_AUTHORIZATION_FAILED"),
        doing="create topic east.orders",
        cluster=ClusterUser("west", "w1:9092,w2:9092", "mirror", secured=True),
        right=Right("Create", "topic", "east.orders"),
    )

    assert isinstance(told, AuthorizationError)
    assert "User:mirror lacks Create on topic east.orders of cluster west" in told.message
    assert told.fix.startswith(
        "kafka-acls.sh --bootstrap-server w1:9092,w2:9092 --command-config ADMIN.properties"
    )
    assert "--allow-principal 'User:mirror' --operation Create --topic 'east.orders'" in told.fix


def test_of_several_rights_those_that_the_answer_speaks_of_are_named() -> None:
    """A denied topic suggests no right on the group, and an answer about none of them no right at all."""
    rights = [Right("Read", "group", "g"), Right("Read", "topic", "a"), Right("Read", "topic", "b")]

    def told(name: str, right: Any = rights) -> Any:
        return to_mirror_error(error(name), doing="commit", cluster=ClusterUser("west"), right=right)

    denied = told("TOPIC_AUTHORIZATION_FAILED")
    assert "lacks Read on topic a, Read on topic b of cluster west" in denied.message
    assert [right["name"] for right in denied.missing_rights] == ["a", "b"]
    assert denied.as_dict()["missing_rights"] == list(denied.missing_rights)
    assert told("GROUP_AUTHORIZATION_FAILED").fix.endswith("--group 'g'")
    for other in (told("CLUSTER_AUTHORIZATION_FAILED"), told("TOPIC_AUTHORIZATION_FAILED", rights[0])):
        assert isinstance(other, AuthorizationError)
        assert other.missing_rights == ()
        assert "--group" not in other.fix


def test_a_right_on_the_cluster_has_no_name() -> None:
    """kafka-acls.sh takes --cluster alone."""
    assert Right("Create", "cluster").acl(ClusterUser("west")).endswith("--operation Create --cluster")
    assert "PRINCIPAL" in Right("Create", "cluster").acl(ClusterUser("west"))


@pytest.mark.parametrize(
    ("name", "text", "kind", "fix"),
    [
        (
            "_AUTHENTICATION",
            "Authentication failed: invalid credentials",
            AuthorizationError,
            "sasl.password",
        ),
        ("_AUTHENTICATION", "Unsupported SASL mechanism: SCRAM-SHA-512", ClusterError, "sasl.mechanism"),
        ("_AUTHENTICATION", "Request not valid in current SASL state", ClusterError, "security.protocol"),
        ("_SSL", "certificate verify failed", HandshakeError, "ssl.ca.location"),
        (
            "_SSL",
            "Disconnected: connecting to a PLAINTEXT broker listener?",
            UnreachableError,
            "security.protocol",
        ),
        ("_TRANSPORT", "connecting to a PLAINTEXT broker listener?", UnreachableError, "security.protocol"),
        ("_RESOLVE", "Name or service not known", UnreachableError, "host names"),
        ("UNKNOWN_TOPIC_OR_PART", "", TopicGoneError, "create the topic"),
        ("UNSUPPORTED_VERSION", "", ClusterError, "Kafka 2.8"),
        ("INVALID_CONFIG", "", ClusterError, "setting"),
        ("NOT_CONTROLLER", "", UnreachableError, "healthy"),
        ("UNKNOWN", "", BrokerFailedError, "log"),
    ],
)
def test_the_fix_belongs_to_the_cause(name: str, text: str, kind: type[ClusterError], fix: str) -> None:
    """Each kind of failure sends the reader to another place."""
    told = to_mirror_error(error(name, text), doing="", cluster="east")

    assert type(told) is kind
    assert fix in told.fix
    assert "east" in told.message
