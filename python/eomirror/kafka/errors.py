"""
Classifies Kafka errors: one table, with a reason for every code.

The same code has different meanings in different places, so each place has its own function.  Codes that a table lacks
are decided by the error's own flags.  An unknown outcome is never guessed: the lane is rebuilt.

librdkafka repeats the part of ``sasl.oauthbearer.config`` that its parser of unsecured tokens does not understand.  The
value may hold a client's secret, in any format that a token endpoint or a user's function defines.  It comes through
error callbacks, where the clusters' properties are unavailable.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError

from eomirror.config.rights import ClusterUser, Right, lacking
from eomirror.config.secret import MASK
from eomirror.errors import (
    AuthorizationError,
    BrokerFailedError,
    ClusterError,
    HandshakeError,
    MirrorError,
    TopicGoneError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Action",
    "ClassifiedError",
    "classify_admin",
    "classify_creation",
    "classify_delivery",
    "classify_fetch",
    "classify_transaction",
    "said",
    "to_mirror_error",
    "without_values",
]

# behind "Connect to ipv4#... failed: Connection refused"
_REPEATED = re.compile(r" \(after \d+ms in state [A-Z_]+(?:, \d+ identical error\(s\) suppressed)?\)")
_PROPERTY = "sasl.oauthbearer.config"
# what librdkafka says of the value without a part of it; its own names of fields end in "="
_HARMLESS = re.compile(
    r"sasl\.oauthbearer\.config: (?:no principal=<value>|(?:empty|multiple) '[A-Za-z_]+=?'(?: entries)?)\Z"
)


def said(error: KafkaError) -> str:
    """
    Returns the text of an error, or its name if it has none, without values of properties.

    Without librdkafka's count of equal errors, too: two processes that see one fault state it in the same words.
    """
    return without_values(_REPEATED.sub("", str(error.str() or error.name())))


def without_values(text: str) -> str:
    """
    Returns a message of librdkafka without its quotes of ``sasl.oauthbearer.config``.

    Args:
        text: An error's text, or a line of its log.
    """
    at = text.find(_PROPERTY)
    if at < 0 or _HARMLESS.match(text, at):
        return text
    return f"{text[: at + len(_PROPERTY)]}: {MASK} (the rest may show a secret)"


class Action(enum.StrEnum):
    """
    Next action after an error.

    RETRY: repeat the call.
    REBUILD: give the transaction up, take a new producer, read the committed state.
    FENCED: read control: our own run rebuilds, another run means that we leave.
    REFUSED_RECORD: the target refuses a record for its content; a retry would loop.
    SOURCE_GAP: the offset is outside of the source's log; recovery names the range.
    SOURCE_TRUNCATED: the source's log diverges from the mirrored one.
    TOPIC_GONE: the topic does not exist; recovery compares ids.
    DAMAGED: a batch of the source is corrupt; another fetch may be intact.
    UNREADABLE: a leader of the source cannot read a partition, without a reason; another fetch may work.
    UNAUTHORIZED: an ACL or a credential is missing; the user must act.
    UNREACHABLE: no broker answers; retry with backoff.
    CONFIGURATION: a setting is refused; the user must act.
    FATAL: the user must act.
    """

    RETRY = "retry"
    REBUILD = "rebuild"
    FENCED = "fenced"
    REFUSED_RECORD = "refused record"
    SOURCE_GAP = "source gap"
    SOURCE_TRUNCATED = "source truncated"
    TOPIC_GONE = "topic gone"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    UNAUTHORIZED = "unauthorized"
    UNREACHABLE = "unreachable"
    CONFIGURATION = "configuration"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class ClassifiedError:
    """An action and why."""

    action: Action
    reason: str


_E = KafkaError
_Table = dict[int, ClassifiedError]

# rights and credentials mean the same everywhere
_ACCESS: Final[_Table] = {
    _E.TOPIC_AUTHORIZATION_FAILED: ClassifiedError(Action.UNAUTHORIZED, "an ACL on the topic is missing"),
    _E.GROUP_AUTHORIZATION_FAILED: ClassifiedError(Action.UNAUTHORIZED, "an ACL on the group is missing"),
    _E.CLUSTER_AUTHORIZATION_FAILED: ClassifiedError(Action.UNAUTHORIZED, "an ACL on the cluster is missing"),
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ClassifiedError(
        Action.UNAUTHORIZED, "an ACL on the transactional id is missing"
    ),
    _E.SASL_AUTHENTICATION_FAILED: ClassifiedError(Action.UNAUTHORIZED, "the credentials are refused"),
    _E._AUTHENTICATION: ClassifiedError(Action.UNAUTHORIZED, "the credentials are refused"),
    _E.UNSUPPORTED_SASL_MECHANISM: ClassifiedError(
        Action.CONFIGURATION, "the listener does not offer the mechanism"
    ),
    _E.ILLEGAL_SASL_STATE: ClassifiedError(
        Action.CONFIGURATION, "the listener expects another security protocol"
    ),
    _E.SECURITY_DISABLED: ClassifiedError(Action.CONFIGURATION, "the broker has no authorizer"),
    _E.UNSUPPORTED_VERSION: ClassifiedError(Action.CONFIGURATION, "the broker is too old for the request"),
    _E._UNSUPPORTED_FEATURE: ClassifiedError(Action.CONFIGURATION, "the broker is too old for the request"),
    _E._NOT_IMPLEMENTED: ClassifiedError(Action.CONFIGURATION, "this build of librdkafka cannot do it"),
    _E._NOT_CONFIGURED: ClassifiedError(Action.CONFIGURATION, "the client lacks a setting for it"),
    _E._INVALID_ARG: ClassifiedError(Action.CONFIGURATION, "the client library refuses an argument"),
    _E.INVALID_CONFIG: ClassifiedError(Action.CONFIGURATION, "the broker refuses a setting"),
    _E.POLICY_VIOLATION: ClassifiedError(Action.CONFIGURATION, "a policy of the broker refuses the request"),
}

# no broker answers, or the wrong one: the same everywhere, and retriable
_REACH: Final[_Table] = {
    _E._TRANSPORT: ClassifiedError(Action.UNREACHABLE, "the connection broke"),
    _E._RESOLVE: ClassifiedError(Action.UNREACHABLE, "the name of a broker did not resolve"),
    _E._ALL_BROKERS_DOWN: ClassifiedError(Action.UNREACHABLE, "no broker is connected"),
    _E._FAIL: ClassifiedError(Action.UNREACHABLE, "the connection broke"),
    # said of requests that were queued for a broker whose address went out of use: by a change of the
    # cluster, or of the list that we bootstrapped from
    _E._DESTROY_BROKER: ClassifiedError(Action.UNREACHABLE, "the connection was given up for another"),
    _E._TIMED_OUT: ClassifiedError(Action.UNREACHABLE, "no answer in time"),
    _E._TIMED_OUT_QUEUE: ClassifiedError(Action.UNREACHABLE, "the request was not even sent in time"),
    _E.REQUEST_TIMED_OUT: ClassifiedError(Action.UNREACHABLE, "the broker gave up waiting for its replicas"),
    _E.NETWORK_EXCEPTION: ClassifiedError(Action.UNREACHABLE, "the broker lost the connection"),
    _E.BROKER_NOT_AVAILABLE: ClassifiedError(Action.UNREACHABLE, "the broker is starting or stopping"),
    # a broker that stops during a handshake looks like this too, so it is retriable
    _E._SSL: ClassifiedError(Action.UNREACHABLE, "the TLS handshake failed"),
    _E.REBOOTSTRAP_REQUIRED: ClassifiedError(
        Action.UNREACHABLE, "the brokers that we know are gone (KIP-1102)"
    ),
    _E._RETRY: ClassifiedError(Action.RETRY, "librdkafka asks for it"),
    _E._WAIT_COORD: ClassifiedError(Action.RETRY, "the coordinator is being looked up"),
    _E._WAIT_CACHE: ClassifiedError(Action.RETRY, "metadata is being looked up"),
    _E._IN_PROGRESS: ClassifiedError(Action.RETRY, "the same operation is under way"),
    _E._PREV_IN_PROGRESS: ClassifiedError(Action.RETRY, "an operation before it is under way"),
    _E._INTR: ClassifiedError(Action.RETRY, "a signal interrupted it"),
    _E.COORDINATOR_LOAD_IN_PROGRESS: ClassifiedError(Action.RETRY, "the coordinator reads its log"),
    _E.COORDINATOR_NOT_AVAILABLE: ClassifiedError(Action.RETRY, "the coordinator is being elected"),
    _E.NOT_COORDINATOR: ClassifiedError(Action.RETRY, "the coordinator moved"),
    _E.NOT_CONTROLLER: ClassifiedError(Action.RETRY, "the controller moved"),
    _E.LEADER_NOT_AVAILABLE: ClassifiedError(Action.RETRY, "a leader is being elected"),
    _E.NOT_LEADER_FOR_PARTITION: ClassifiedError(Action.RETRY, "the leader moved"),
    _E.FENCED_LEADER_EPOCH: ClassifiedError(Action.RETRY, "the leader moved, metadata is being refreshed"),
    _E.UNKNOWN_LEADER_EPOCH: ClassifiedError(Action.RETRY, "the broker does not know the new leader yet"),
    _E.KAFKA_STORAGE_ERROR: ClassifiedError(Action.RETRY, "a log directory failed; a replica takes over"),
    _E.REPLICA_NOT_AVAILABLE: ClassifiedError(Action.RETRY, "the replica is catching up"),
    _E.OFFSET_NOT_AVAILABLE: ClassifiedError(Action.RETRY, "the new leader does not know its end yet"),
    _E.NOT_ENOUGH_REPLICAS: ClassifiedError(Action.RETRY, "fewer replicas in sync than min.insync.replicas"),
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ClassifiedError(
        Action.RETRY, "a replica fell out of sync under way"
    ),
    _E.REASSIGNMENT_IN_PROGRESS: ClassifiedError(Action.RETRY, "the partition is being moved"),
    _E.THROTTLING_QUOTA_EXCEEDED: ClassifiedError(Action.RETRY, "a quota holds us back"),
}

_TRANSACTION: Final[_Table] = {
    **_ACCESS,
    **_REACH,
    # librdkafka folds the coordinator's INVALID_PRODUCER_EPOCH and PRODUCER_FENCED into one, and a
    # transaction that outlived transaction.timeout.ms looks the same as a successor (fault table, row 3)
    _E._FENCED: ClassifiedError(
        Action.FENCED, "a newer producer has the id, or the transaction outlived its timeout"
    ),
    _E.PRODUCER_FENCED: ClassifiedError(Action.FENCED, "a newer producer has the id"),
    _E.INVALID_PRODUCER_EPOCH: ClassifiedError(Action.FENCED, "a newer producer has the id"),
    _E.TRANSACTION_COORDINATOR_FENCED: ClassifiedError(Action.REBUILD, "the coordinator itself was replaced"),
    _E.CONCURRENT_TRANSACTIONS: ClassifiedError(
        Action.RETRY, "markers of the last transaction are being written"
    ),
    _E._CONFLICT: ClassifiedError(Action.REBUILD, "another call of this producer is under way"),
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: ClassifiedError(Action.REBUILD, "a batch is missing on the broker"),
    _E.DUPLICATE_SEQUENCE_NUMBER: ClassifiedError(
        Action.REBUILD, "a batch is on the broker twice, out of its window"
    ),
    _E.UNKNOWN_PRODUCER_ID: ClassifiedError(Action.REBUILD, "the broker forgot the producer (KIP-360)"),
    _E.INVALID_PRODUCER_ID_MAPPING: ClassifiedError(Action.REBUILD, "the coordinator forgot the id"),
    _E.INVALID_TXN_STATE: ClassifiedError(
        Action.REBUILD, "client and coordinator disagree about the transaction"
    ),
    _E.TRANSACTION_ABORTABLE: ClassifiedError(Action.REBUILD, "the broker asks for an abort (KIP-890)"),
    _E.OPERATION_NOT_ATTEMPTED: ClassifiedError(Action.REBUILD, "another partition of the request failed"),
    _E.INVALID_REQUEST: ClassifiedError(
        Action.REBUILD, "the broker does not understand the state we believe in"
    ),
    _E._GAPLESS_GUARANTEE: ClassifiedError(Action.REBUILD, "a batch was lost on the way"),
    _E._INCONSISTENT: ClassifiedError(Action.REBUILD, "the transaction holds a failed record"),
    _E._MSG_TIMED_OUT: ClassifiedError(Action.REBUILD, "a record was not acknowledged in time"),
    _E._PURGE_QUEUE: ClassifiedError(Action.REBUILD, "the transaction was given up"),
    _E._PURGE_INFLIGHT: ClassifiedError(Action.REBUILD, "the transaction was given up"),
    _E._FATAL: ClassifiedError(Action.REBUILD, "this producer is spent; a new one may work"),
    _E._DESTROY: ClassifiedError(Action.REBUILD, "this producer was closed"),
    _E._STATE: ClassifiedError(Action.REBUILD, "the producer is not in the state we believed"),
    # a topic that vanished under a transaction: which one, and whether it came back as another, is for
    # recovery to find out, which compares ids
    _E.UNKNOWN_TOPIC_OR_PART: ClassifiedError(Action.REBUILD, "the topic is gone; recovery compares ids"),
    _E._UNKNOWN_TOPIC: ClassifiedError(Action.REBUILD, "the topic is gone; recovery compares ids"),
    _E._UNKNOWN_PARTITION: ClassifiedError(Action.REBUILD, "the partition is gone; recovery compares ids"),
    _E.UNKNOWN_TOPIC_ID: ClassifiedError(Action.REBUILD, "the topic was replaced; recovery compares ids"),
    _E.INCONSISTENT_TOPIC_ID: ClassifiedError(
        Action.REBUILD, "the topic was replaced; recovery compares ids"
    ),
    _E.INVALID_TRANSACTION_TIMEOUT: ClassifiedError(
        Action.CONFIGURATION, "transaction_timeout exceeds the broker's transaction.max.timeout.ms"
    ),
    _E.INVALID_REQUIRED_ACKS: ClassifiedError(Action.CONFIGURATION, "the broker refuses acks=all"),
    _E.PRINCIPAL_DESERIALIZATION_FAILURE: ClassifiedError(
        Action.FATAL, "brokers do not understand each other's users"
    ),
    _E._CRIT_SYS_RESOURCE: ClassifiedError(Action.FATAL, "the machine has no memory or threads left"),
}

_DELIVERY: Final[_Table] = {
    **_TRANSACTION,
    # a delivery report is final: librdkafka has repeated the request as often as it may
    **{code: ClassifiedError(Action.REBUILD, verdict.reason) for code, verdict in _REACH.items()},
    _E.UNKNOWN_TOPIC_OR_PART: ClassifiedError(Action.TOPIC_GONE, "the topic was deleted on the target"),
    _E._UNKNOWN_TOPIC: ClassifiedError(Action.TOPIC_GONE, "the topic was deleted on the target"),
    _E._UNKNOWN_PARTITION: ClassifiedError(
        Action.TOPIC_GONE, "the target has fewer partitions than the source"
    ),
    _E.UNKNOWN_TOPIC_ID: ClassifiedError(Action.TOPIC_GONE, "the topic was replaced on the target"),
    _E.INCONSISTENT_TOPIC_ID: ClassifiedError(Action.TOPIC_GONE, "the topic was replaced on the target"),
    _E.TOPIC_EXCEPTION: ClassifiedError(Action.TOPIC_GONE, "the target does not allow such a topic name"),
    _E.MSG_SIZE_TOO_LARGE: ClassifiedError(
        Action.REFUSED_RECORD, "larger than max.message.bytes or message.max.bytes"
    ),
    _E.RECORD_LIST_TOO_LARGE: ClassifiedError(
        Action.REFUSED_RECORD, "larger than segment.bytes of the topic"
    ),
    _E.INVALID_TIMESTAMP: ClassifiedError(
        Action.REFUSED_RECORD, "outside of message.timestamp.before/after.max.ms"
    ),
    _E.INVALID_RECORD: ClassifiedError(
        Action.REFUSED_RECORD, "the topic refuses it: compacted topics need a key"
    ),
    _E._INVALID_DIFFERENT_RECORD: ClassifiedError(
        Action.REFUSED_RECORD, "a record in the same batch is refused"
    ),
    # the bytes were damaged on the way or in memory; from the source again they may be whole
    _E.INVALID_MSG: ClassifiedError(Action.REBUILD, "the broker finds the batch corrupt; send it again"),
    _E.INVALID_MSG_SIZE: ClassifiedError(Action.REFUSED_RECORD, "the broker finds the size impossible"),
    _E.UNSUPPORTED_COMPRESSION_TYPE: ClassifiedError(
        Action.CONFIGURATION, "the target does not know the codec"
    ),
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: ClassifiedError(
        Action.CONFIGURATION, "the target's message format is too old"
    ),
}

_FETCH: Final[_Table] = {
    **_ACCESS,
    # librdkafka retries after any of these; an unreachable source shows as lag
    **{code: ClassifiedError(Action.RETRY, verdict.reason) for code, verdict in _REACH.items()},
    # our consumers are in no group and need no right to one, but librdkafka looks for its coordinator all the same
    _E.GROUP_AUTHORIZATION_FAILED: ClassifiedError(Action.RETRY, "the group that is refused is never used"),
    _E.FETCH_SESSION_ID_NOT_FOUND: ClassifiedError(Action.RETRY, "the broker dropped the fetch session"),
    _E.INVALID_FETCH_SESSION_EPOCH: ClassifiedError(Action.RETRY, "the broker dropped the fetch session"),
    _E.UNSTABLE_OFFSET_COMMIT: ClassifiedError(Action.RETRY, "a transaction holds the offset"),
    _E.OFFSET_OUT_OF_RANGE: ClassifiedError(Action.SOURCE_GAP, "the offset is outside of the log"),
    _E._AUTO_OFFSET_RESET: ClassifiedError(Action.SOURCE_GAP, "the offset is outside of the log"),
    _E._NO_OFFSET: ClassifiedError(Action.SOURCE_GAP, "no offset to begin with"),
    _E._LOG_TRUNCATION: ClassifiedError(
        Action.SOURCE_TRUNCATED, "the log ends before our epoch did (KIP-320)"
    ),
    _E.UNKNOWN_TOPIC_OR_PART: ClassifiedError(Action.TOPIC_GONE, "the topic was deleted"),
    _E._UNKNOWN_TOPIC: ClassifiedError(Action.TOPIC_GONE, "the topic was deleted"),
    _E._UNKNOWN_PARTITION: ClassifiedError(Action.TOPIC_GONE, "the partition is gone"),
    _E.UNKNOWN_TOPIC_ID: ClassifiedError(Action.TOPIC_GONE, "the topic was replaced"),
    _E.INCONSISTENT_TOPIC_ID: ClassifiedError(Action.TOPIC_GONE, "the topic was replaced"),
    _E._BAD_MSG: ClassifiedError(Action.DAMAGED, "a batch does not match its checksum; fetch it again"),
    _E._BAD_COMPRESSION: ClassifiedError(Action.DAMAGED, "a batch does not decompress; fetch it again"),
    _E._UNDERFLOW: ClassifiedError(Action.DAMAGED, "an answer ends too early; fetch it again"),
    _E.INVALID_MSG: ClassifiedError(Action.DAMAGED, "the broker found a batch corrupt; fetch it again"),
    _E.INVALID_MSG_SIZE: ClassifiedError(Action.DAMAGED, "a batch has an impossible size; fetch it again"),
    _E._FATAL: ClassifiedError(Action.REBUILD, "this consumer is spent; a new one may work"),
    _E._STATE: ClassifiedError(Action.REBUILD, "the consumer is not in the state we believed"),
    _E.UNSUPPORTED_COMPRESSION_TYPE: ClassifiedError(
        Action.CONFIGURATION, "this client is too old for the codec"
    ),
    _E._CRIT_SYS_RESOURCE: ClassifiedError(Action.FATAL, "the machine has no memory or threads left"),
}

_ADMIN: Final[_Table] = {
    **_ACCESS,
    **_REACH,
    _E.UNKNOWN_TOPIC_OR_PART: ClassifiedError(Action.TOPIC_GONE, "the topic does not exist"),
    _E._UNKNOWN_TOPIC: ClassifiedError(Action.TOPIC_GONE, "the topic does not exist"),
    _E._UNKNOWN_PARTITION: ClassifiedError(Action.TOPIC_GONE, "the partition does not exist"),
    _E.UNKNOWN_TOPIC_ID: ClassifiedError(Action.TOPIC_GONE, "the topic was replaced"),
    _E._NOENT: ClassifiedError(Action.TOPIC_GONE, "it does not exist"),
    _E.INVALID_REPLICATION_FACTOR: ClassifiedError(
        Action.CONFIGURATION, "more replicas asked for than brokers"
    ),
    _E.INVALID_REPLICA_ASSIGNMENT: ClassifiedError(Action.CONFIGURATION, "the replicas cannot be placed"),
    _E.INVALID_PARTITIONS: ClassifiedError(Action.CONFIGURATION, "the partition count is refused"),
    _E.INVALID_REQUEST: ClassifiedError(Action.CONFIGURATION, "the broker refuses the request"),
    _E.TOPIC_EXCEPTION: ClassifiedError(Action.CONFIGURATION, "the topic's name is refused"),
    _E.PRINCIPAL_DESERIALIZATION_FAILURE: ClassifiedError(
        Action.FATAL, "brokers do not understand each other's users"
    ),
    _E._CRIT_SYS_RESOURCE: ClassifiedError(Action.FATAL, "the machine has no memory or threads left"),
}

# of all that is wrong with the properties of a client librdkafka has one code; its words tell the files from the rest
_CREATION: Final[tuple[tuple[re.Pattern[str], ClassifiedError], ...]] = (
    # the properties were taken when the mirror started; a file may be away, half written, or older than its
    # key for a moment, while it is being replaced
    (
        re.compile(r"\bssl\.(?:ca|certificate|key|crl|keystore)\.location(?: failed|: | PKCS#12)"),
        ClassifiedError(
            Action.UNREACHABLE, "a certificate or key cannot be read; it may be about to be replaced"
        ),
    ),
)


def classify_transaction(error: KafkaError) -> ClassifiedError:
    """
    Classifies errors of init, begin, commit and abort, and those raised by flush and poll.

    If librdkafka requires an abort, or reports the producer as unusable, this overrides a RETRY of the table: after
    such an answer a repetition can only fail or, worse, end another transaction (EO-9).
    """
    found = _TRANSACTION.get(error.code())
    spent = error.txn_requires_abort() or error.fatal()
    if found is not None:
        if spent and found.action in _AGAIN:
            return ClassifiedError(Action.REBUILD, f"{found.reason}, and the transaction cannot go on")
        return found
    if error.retriable() and not spent:
        return ClassifiedError(Action.RETRY, "librdkafka says that it may be repeated")
    return ClassifiedError(Action.REBUILD, "unknown error; nothing is guessed")


def classify_delivery(error: KafkaError) -> ClassifiedError:
    """Classifies errors of one record, from produce and delivery reports.  None of them is retried."""
    found = _DELIVERY.get(error.code())
    return (
        found if found is not None else ClassifiedError(Action.REBUILD, "unknown error; nothing is guessed")
    )


def classify_fetch(error: KafkaError) -> ClassifiedError:
    """Classifies error events of a consumer, other than the end of a partition."""
    found = _FETCH.get(error.code())
    if error.code() == KafkaError._AUTO_OFFSET_RESET and "log truncation detected" in error.str():
        # reported when offsets are not reset; recovery sees no gap in such a log, and would loop for ever
        found = _FETCH[KafkaError._LOG_TRUNCATION]
    if found is not None:
        if error.fatal() and found.action in _AGAIN:
            return ClassifiedError(Action.REBUILD, f"{found.reason}, and this consumer is spent")
        return found
    if error.retriable() and not error.fatal():
        return ClassifiedError(Action.RETRY, "librdkafka says that it may be repeated")
    if error.code() >= KafkaError.UNKNOWN and not error.fatal():
        # a broker's code, and none of a fetch: UNKNOWN_SERVER_ERROR, when it cannot read its own files
        return ClassifiedError(Action.UNREADABLE, "the leader fails without saying how; fetch again")
    return ClassifiedError(Action.REBUILD, "unknown error; fetch again from the committed position")


def classify_admin(error: KafkaError) -> ClassifiedError:
    """Classifies errors for metadata, offsets, topics and settings; all of these may be repeated without harm."""
    found = _ADMIN.get(error.code())
    if found is not None:
        return found
    if error.retriable():
        return ClassifiedError(Action.RETRY, "librdkafka says that it may be repeated")
    return ClassifiedError(Action.FATAL, "unknown error")


def classify_creation(error: KafkaError) -> ClassifiedError:
    """Classifies errors of client creation: librdkafka checks properties and the files that they name."""
    text = error.str()
    for words, verdict in _CREATION:
        if words.search(text):
            return verdict
    return ClassifiedError(Action.CONFIGURATION, "the client library refuses a property")


_AGAIN: Final = frozenset({Action.RETRY, Action.UNREACHABLE})

_REACHABLE = (
    "check bootstrap.servers, that a broker listens there, and that security.protocol is the listener's"
)
_CREDENTIALS = (
    "check sasl.mechanism and the credentials (sasl.username, sasl.password, or the token) of this cluster"
)
_HANDSHAKE = (
    "check that the listener speaks TLS (security.protocol), that ssl.ca.location holds the CA of the broker's "
    "certificate, and that the certificate names the host in bootstrap.servers"
)
_OTHER_PROTOCOL = (
    "set security.protocol to that of the listener; this one speaks another (plaintext, ssl, sasl_plaintext, "
    "sasl_ssl)"
)
_GRANT = "grant it to the mirror's principal: kafka-acls.sh --add"
_FIXES: Final[dict[Action, str]] = {
    Action.UNREACHABLE: _REACHABLE,
    Action.RETRY: "see whether the cluster is healthy, then start again",
    Action.UNAUTHORIZED: _GRANT,
    Action.CONFIGURATION: "correct the setting that the message names, on the cluster's properties or the broker",
    Action.TOPIC_GONE: "create the topic, or take it out of the link's topics",
}
_FIX_BY_CODE: Final[dict[int, str]] = {
    _E._AUTHENTICATION: _CREDENTIALS,
    _E.SASL_AUTHENTICATION_FAILED: _CREDENTIALS,
    _E.UNSUPPORTED_SASL_MECHANISM: "set sasl.mechanism to one that the listener offers",
    _E.ILLEGAL_SASL_STATE: _OTHER_PROTOCOL,
    _E._SSL: _HANDSHAKE,
    _E._RESOLVE: "check the host names in bootstrap.servers, and those that the brokers advertise",
    _E.UNSUPPORTED_COMPRESSION_TYPE: "set compression.type under `producer` of the cluster to a codec that its brokers "
    "know",
    _E.UNSUPPORTED_VERSION: "use brokers of Kafka 2.8 or newer",
    _E._UNSUPPORTED_FEATURE: "use brokers of Kafka 2.8 or newer",
    _E.INVALID_REPLICATION_FACTOR: "set replication_factor to at most the number of the target's brokers",
    _E.POLICY_VIOLATION: "create the topic by hand as the cluster's policy wants it, or have the policy changed; or "
    "put its source topic under the link's `exclude`",
    _E.TOPIC_EXCEPTION: "put the source topic under the link's `exclude`, or choose another `naming` for the link",
    _E.INVALID_TRANSACTION_TIMEOUT: "lower transaction_timeout, or raise the broker's transaction.max.timeout.ms",
    _E.THROTTLING_QUOTA_EXCEEDED: "raise the quota of the mirror's principal, or wait",
}


def to_mirror_error(
    error: KafkaError,
    *,
    doing: str,
    cluster: ClusterUser | str,
    reason: KafkaError | None = None,
    right: Right | Sequence[Right] | None = None,
) -> MirrorError:
    """
    Returns the user's error.

    Args:
        error: librdkafka's error.
        doing: Attempted operation, as an infinitive; empty for the connection.
        cluster: The cluster and our user there; a text if no right can be missing.
        reason: Earlier error of librdkafka, such as of a connection.  A request that was never sent "timed out"; only
            this tells why.
        right: ACL that the request needs, for the command that grants it; of several those on what the broker's answer
            speaks of.
    """
    verdict = classify_admin(error)
    # the reason behind a timeout is the error; the timeout is only when we stopped waiting
    cause = reason if reason is not None and verdict.action in _AGAIN else error
    action = classify_admin(cause).action
    words = said(cause)
    message = (
        f"could not {doing} on cluster {cluster}: {words}"
        if doing
        else f"no way to cluster {cluster}: {words}"
    )
    fix = _FIX_BY_CODE.get(cause.code(), _FIXES.get(action, "see the broker's log for the reason"))
    if mismatch := _mismatch(cause):
        fix = mismatch
    if action in _AGAIN:
        refused = cause.code() == _E._SSL and any(word in words.lower() for word in _HANDSHAKE_WORDS)
        return (HandshakeError if refused else UnreachableError)(message, fix=fix)
    if cause.code() == _E.UNKNOWN:
        return BrokerFailedError(message, fix=fix)
    if action is Action.TOPIC_GONE:
        return TopicGoneError(message, fix=fix)
    if action is not Action.UNAUTHORIZED or mismatch:
        return ClusterError(message, fix=fix)
    needed = [right] if isinstance(right, Right) else right or ()
    if denied := [one for one in needed if one.resource == _DENIED.get(cause.code())]:
        account = cluster if isinstance(cluster, ClusterUser) else ClusterUser(cluster)
        return lacking(f"{message}; ", account, denied)
    return AuthorizationError(message, fix=fix)


# of a handshake that the other side or our side refused; one that ends with the connection names none of them
_HANDSHAKE_WORDS: Final = ("certificate", "alert", "wrong version number", "unsupported protocol", "cipher")

# error code -> resource of the right that is missing
_DENIED: Final = {
    _E.TOPIC_AUTHORIZATION_FAILED: "topic",
    _E.GROUP_AUTHORIZATION_FAILED: "group",
    _E.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
}


def _mismatch(cause: KafkaError) -> str:
    """
    Returns the fix for mismatched security protocols, which only librdkafka's text reveals.

    A listener reacts differently to a foreign first byte: it closes the connection, answers in plain text, or refuses
    the handshake.  librdkafka reports a broken connection, a TLS error, or a failed login.
    """
    text = cause.str().lower()
    if "unsupported sasl mechanism" in text:
        return _FIX_BY_CODE[_E.UNSUPPORTED_SASL_MECHANISM]
    if any(words in text for words in _FOREIGN):
        return _OTHER_PROTOCOL
    return ""


_FOREIGN = (
    "not valid in current sasl state",
    "plaintext broker listener",
    "ssl listener",
    "wrong version number",
    "incorrect security.protocol",
)
