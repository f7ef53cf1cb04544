"""
Exceptions of eomirror. Pure.

::

    MirrorError                       exit 1   something failed; the message says what to do
    |-- UsageError                    exit 2   the command line or a library call is wrong
    |-- ConfigError                   exit 78  the configuration is refused; holds every fault
    |-- ClusterError                  exit 1   a cluster cannot be reached or refuses us
    |   |-- UnreachableError          exit 1   no answer; a mirror retries
    |   |   |-- HandshakeError          exit 1   the TLS handshake failed on either side; a mirror that starts gives up,
    |   |   |                                  one that runs retries
    |   |   `-- QuotaError              exit 1   a quota delays a change; a mirror waits for the time that it was told
    |   |-- TransactionRefusedError   exit 1   a broker refuses a transaction of a sink, with its code
    |   |-- BrokerFailedError         exit 1   a broker failed without a reason; a mirror retries
    |   `-- AuthorizationError        exit 1   an ACL is missing; names resource and operation; a running
    |                                          mirror waits for it, unless it is to end caught up
    |-- TopicError                    exit 1   one topic cannot be mirrored; the others can
    |   |-- TopicGoneError            exit 1   a topic is not there any more; a mirror looks again (a ClusterError, too)
    |   |-- UnrepresentableRecordError  exit 1  a record this plane cannot write unchanged
    |   `-- RecordRefusedError        exit 1   the target refuses a record (size, timestamp)
    |-- RowError                      exit 1   a row of a DataFrame cannot be written
    |-- RegistryError                 exit 1   a schema registry does not answer, or refuses a request
    |   `-- RegistryRefusedError      exit 1   it does not keep what was registered, so it cannot be a target
    |-- StateError                    exit 1   a record in the target's state topics is unusable
    |-- DifferenceError               exit 3   differs, not caught up, or not ready
    |-- DataLossError                 exit 4   the source lost records before they were mirrored, or the target
    |                                          lost records that it had acknowledged
    |-- SupersededError               exit 5   another mirror owns the link
    `-- NotReadyError                 exit 6   a link cannot fail over, or is promoted
    LaneError                         internal: end of one attempt of a lane
    |-- FencedError                   a newer producer took this transactional.id
    |-- TransactionFailedError        abort, then rebuild the lane from EO-2
    |   `-- SourceDamagedError        a batch of the source does not match its checksum
    |       `-- SourceUnreadableError its leader cannot read it, without a reason
    |-- PlaneChangedError             abort; the other plane continues with the next producer
    `-- OutcomeUnknownError           the commit may have happened; never guess, rebuild

A MirrorError is shown to users: its text is one screen at most, lower case, names the fault and its place, and ends
with the fix.  A LaneError never leaves the lane: the runner turns it into a rebuild or a stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.types import SourcePartition

__all__ = [
    "EXIT_CODES",
    "AuthorizationError",
    "BrokerFailedError",
    "ClusterError",
    "ConfigError",
    "DataLossError",
    "DifferenceError",
    "Fault",
    "FencedError",
    "HandshakeError",
    "LaneError",
    "MirrorError",
    "NotReadyError",
    "OutcomeUnknownError",
    "PlaneChangedError",
    "QuotaError",
    "RecordRefusedError",
    "RegistryError",
    "RegistryRefusedError",
    "RowError",
    "SourceDamagedError",
    "SourceUnreadableError",
    "StateError",
    "StoppedError",
    "SupersededError",
    "TopicError",
    "TopicGoneError",
    "TransactionFailedError",
    "TransactionRefusedError",
    "UnreachableError",
    "UnrepresentableRecordError",
    "UsageError",
    "changed_error",
    "gap_error",
    "hole_error",
    "some",
    "truncated_error",
]

#: exit code -> meaning; docs/reference/exit-codes.md is generated from it
EXIT_CODES: Final = {
    0: "Done.",
    1: "Failed. The error names the cause and the fix. `run` also ends with 1 if it had to leave a topic out.",
    2: "Usage: the command line is wrong. Nothing was changed.",
    3: "Source and target differ, or the link is not caught up, or an offset or a group is not known.",
    4: "Data loss: the source deleted or changed records before they were mirrored, or the target lost records that it "
    "had acknowledged. `run` also ends with 4 on SIGTERM and Ctrl-C while a topic is stopped for it.",
    5: "Superseded: another mirror, or a command of failover, owns the link.",
    6: "Not ready: a precondition of a failover command does not hold; or the link must not run, because it is "
    "promoted, was handed back to MirrorMaker 2, or would mirror a second time what its copies hold.",
    78: "The configuration is refused. All faults are listed.",
    130: "Interrupted with Ctrl-C before the command was done (128 + SIGINT).",
    141: "The reader of stdout closed the pipe (128 + SIGPIPE).",
    143: "Terminated before the command was done (128 + SIGTERM). `run` ends with 0 on SIGTERM and Ctrl-C if every "
    "open transaction was committed in time, and with 128 + the signal if one was aborted.",
}


class MirrorError(Exception):
    """
    Base of all errors that are shown to users.

    Args:
        message: The fault and its place.
        fix: The next step, as an imperative; shown on its own line.
        topic: Source topic, if the error concerns one only: the lane stops that topic and mirrors the others.

    Attributes:
        exit_code: Exit code of a command that ends with the error.
        topic_retried: A topic that stops with the error only lacks an ACL or a serving leader, and is retried.
        missing_rights: Rights that are missing, as far as they are known: plain values of `config.rights.Right`.
    """

    exit_code: ClassVar[int] = 1
    topic_retried: ClassVar[bool] = False
    missing_rights: tuple[Mapping[str, str], ...] = ()

    def __init__(self, message: str, *, fix: str = "", topic: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.topic = topic

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message

    def as_dict(self) -> dict[str, object]:
        """Returns the fields for ``-o json``; `missing_rights` where there are some."""
        plain: dict[str, object] = {"problem": self.message, "fix": self.fix or None}
        return plain | ({"missing_rights": list(self.missing_rights)} if self.missing_rights else {})

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles exceptions of tasks; keyword-only arguments need `_rebuild`
        return (_rebuild, (type(self), self.__dict__, self.args))


def _rebuild(kind: type[MirrorError], state: dict[str, object], args: tuple[object, ...]) -> MirrorError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(MirrorError):
    """The command line or a library call is wrong; nothing was changed."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A fault of a configuration.

    Attributes:
        path: Path of the setting, such as ``links[0].naming``.
        message: Description of the fault, with the value unless it is a secret.
        fix: A valid setting.
        line: Line in the file, from 1; 0 if unknown.
    """

    path: str
    message: str
    fix: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.path} (line {self.line})" if self.line else self.path
        return f"{place}: {self.message}" + (f"\n    fix: {self.fix}" if self.fix else "")


class ConfigError(MirrorError):
    """The configuration is refused.  ``faults`` holds all of them, not only the first."""

    exit_code = 78

    def __init__(self, faults: list[Fault], *, source: str = "") -> None:
        self.faults = faults
        self.source = source
        noun = "fault" if len(faults) == 1 else "faults"
        head = f"{source or 'configuration'}: {len(faults)} {noun}"
        super().__init__("\n".join([head, *(f"  {fault}" for fault in faults)]))


class ClusterError(MirrorError):
    """A cluster cannot be reached, or refuses the client."""


class UnreachableError(ClusterError):
    """A cluster does not answer.  A mirror retries, every other command gives up."""

    topic_retried = True


class HandshakeError(UnreachableError):
    """
    A TLS handshake failed for another reason than a broken connection, such as an untrusted certificate.

    A mirror that starts gives up, because the configuration is wrong.  One that runs retries, because a certificate may
    be under replacement.
    """


class QuotaError(UnreachableError):
    """
    A quota of the cluster delays a change.  A mirror waits and repeats it.

    Args:
        message: The quota and its cluster.
        seconds: Time until the cluster takes the next change.
        fix: How to get a larger quota.
        topic: Topic that waits.
    """

    def __init__(self, message: str, *, fix: str = "", topic: str = "", seconds: float = 0.0) -> None:
        super().__init__(message, fix=fix, topic=topic)
        self.seconds = seconds


class BrokerFailedError(ClusterError):
    """A broker failed without a reason (UNKNOWN_SERVER_ERROR); a retry may succeed."""

    topic_retried = True


class TransactionRefusedError(ClusterError):
    """
    A broker refuses a transaction of a sink, or a batch in it.

    Args:
        message: What is refused.
        fix: The next step.
        topic: Unused.
        code: Kafka's name of the broker's error code.
    """

    def __init__(self, message: str, *, fix: str = "", topic: str = "", code: str = "") -> None:
        super().__init__(message, fix=fix, topic=topic)
        self.code = code


class AuthorizationError(ClusterError):
    """
    An ACL is missing, or the authentication is refused; the message names the resource and the operation.

    A running mirror retries, because the ACL may be granted again.  A mirror that starts, or only catches up, gives up.
    """

    topic_retried = True


class TopicError(MirrorError):
    """One topic cannot be mirrored; other topics can."""


class TopicGoneError(ClusterError, TopicError):
    """A request names a topic that the cluster does not have, such as one that was deleted since it was listed."""


class UnrepresentableRecordError(TopicError):
    """A record that this plane cannot write unchanged, such as timestamp 0 through librdkafka."""


class RecordRefusedError(TopicError):
    """The target refuses a record: too large, or its timestamp is out of the allowed range."""


class RowError(MirrorError):
    """A row of a DataFrame cannot be written: no topic, no such partition, a malformed column."""


class RegistryError(MirrorError):
    """
    A schema registry does not answer, or refuses a request.  The mirror of schemas repeats it, records are mirrored on.

    Args:
        message: Registry, request and answer.
        fix: The next step.
        topic: Unused.
        code: Error code of the registry, or the HTTP status; 0 without an answer.
    """

    def __init__(self, message: str, *, fix: str = "", topic: str = "", code: int = 0) -> None:
        super().__init__(message, fix=fix, topic=topic)
        self.code = code


class RegistryRefusedError(RegistryError):
    """A registry answers that it has done a request, and has not: it cannot be the target of a mirror."""


class StateError(MirrorError):
    """A record in one of eomirror's own topics is unusable: corrupt, or of an unknown version."""


class DifferenceError(MirrorError):
    """Source and target differ, or a link is not caught up or not ready."""

    exit_code = 3


class DataLossError(MirrorError):
    """
    Records are lost on one side.

    The source lost or changed them before they were mirrored (EO-6), or the target lost records that it had
    acknowledged (EO-5).
    """

    exit_code = 4


class SupersededError(MirrorError):
    """Another mirror owns the link (EO-10)."""

    exit_code = 5


class NotReadyError(MirrorError):
    """A precondition of a failover command does not hold, or a promoted link was asked to mirror."""

    exit_code = 6


class StoppedError(MirrorError):
    """The operation was stopped before it was complete; no step is half done."""


class LaneError(Exception):
    """End of an attempt of a lane; never shown to users as it is."""


class FencedError(LaneError):
    """A newer producer took this lane's transactional.id; read control before anything else (EO-10)."""


class TransactionFailedError(LaneError):
    """The open transaction must be aborted and the lane rebuilt from its committed positions."""


class SourceDamagedError(TransactionFailedError):
    """
    A batch of the source does not match its checksum, or cannot be read; another fetch may succeed.

    Args:
        message: Description of the fault.
        source: Source partition of the batch.
    """

    def __init__(self, message: str, source: SourcePartition) -> None:
        super().__init__(message)
        self.source = source


class SourceUnreadableError(SourceDamagedError):
    """The leader of a source partition cannot read it, without a reason; a retry may succeed."""


class PlaneChangedError(LaneError):
    """The plane cannot serve: abort, and continue with a producer of the other plane in the same attempt."""


class OutcomeUnknownError(LaneError):
    """A commit was sent and its outcome is unknown (EO-8); rebuild the lane and read the committed state."""


def gap_error(source: SourcePartition, position: int, log_start: int) -> DataLossError:
    """Returns the error of a gap ``[position, log_start)`` (EO-6)."""
    return DataLossError(
        f"{source}: the source deleted offsets [{position}, {log_start}) before they "
        "were mirrored (retention or deleted records); part of the range may have held no records",
        fix="to resume after the gap, set on_gap: accept on the link, which records the range; to keep "
        "records longer, raise retention.ms of the source topic",
        topic=source.topic,
    )


def hole_error(source: SourcePartition, start: int, end: int) -> DataLossError:
    """Returns the error of offsets ``[start, end)`` that are missing between two batches of a log (EO-6)."""
    return DataLossError(
        f"{source}: offsets [{start}, {end}) are missing in the middle of the source's log, although the topic is not "
        "compacted: the source has lost a part of the log, for example a segment file",
        fix="check the log directories of the source's brokers, and restore the segment if another replica has it; "
        "to resume after the missing range, set on_gap: accept on the link, which records the range. No record is "
        "lost if the topic was compacted before the link first ran",
        topic=source.topic,
    )


def changed_error(source: SourcePartition, what: str) -> DataLossError:
    """
    Returns the error of a log whose last mirrored records have changed (EO-5).

    Args:
        source: Source partition.
        what: The record there and the mirrored one, as a sentence without a full stop.
    """
    return DataLossError(
        f"{source}: the source's log diverges from the mirrored records, although its topic id and leader epochs are "
        f"the same: {what}; the cluster was probably restored from an older state and then written to",
        fix="the target may hold records that the source lost, and the source records that were never mirrored: "
        f"`eomirror verify` shows them. To resume from the current log of the source: --resume-at {source}=OFFSET",
        topic=source.topic,
    )


def truncated_error(source: SourcePartition, position: int, log_end: int) -> DataLossError:
    """Returns the error of a log that ends before the position (EO-5)."""
    return DataLossError(
        f"{source}: the source was truncated or restored from an older state: it was mirrored up to "
        f"offset {position}, but the log ends at {log_end}",
        fix="find out what happened to the source; the target may hold records that the source lost. "
        f"To resume from the current log of the source: --resume-at {source}={log_end}",
        topic=source.topic,
    )


def some(names: Sequence[str], most: int = 3) -> str:
    """Returns the first names for a message, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
