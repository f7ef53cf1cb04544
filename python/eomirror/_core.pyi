"""The Rust core: batching, header rewriting, loop detection, offset-map arithmetic, and the witness."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, final

__all__ = [
    "Acks",
    "HangingTransactionClient",
    "LogAudit",
    "NativeLane",
    "OriginComparison",
    "PartitionAccount",
    "PartitionComparison",
    "PartitionMap",
    "PartitionScan",
    "PatternSet",
    "Plan",
    "PlaneReader",
    "Planner",
    "Policy",
    "RowPlacer",
    "SinkProducer",
    "Transform",
    "Witness",
    "__version__",
    "alter_client_quotas",
    "build_profile",
    "decode_offset_map",
    "delete_topics_by_id",
    "describe_client_quotas",
    "digest_behind",
    "encode_offset_map",
    "key_partition",
    "lacking_rights",
    "last_hop",
]

__version__: str
build_profile: str

_Tokens: TypeAlias = Callable[[str], tuple[str, float] | tuple[str, float, str, dict[str, str]]]

@final
class PatternSet:
    """Full-match regular expressions, include minus exclude, in linear time (the Rust `regex` crate)."""

    def __new__(cls, include: Sequence[str], exclude: Sequence[str]) -> PatternSet:
        """
        Compile the patterns.

        Raises:
            ValueError: A pattern does not compile or is too large; names it and says why.
        """

    def matches(self, name: str) -> bool:
        """Returns True if a pattern of ``include`` matches all of ``name`` and none of ``exclude`` does."""

@final
class Transform:
    """Rules that leave records out and change others; compiled once, frozen."""

    def __new__(cls, rules: Sequence[dict[str, Any]], unreadable: str) -> Transform:
        """
        Compile rules.

        Args:
            rules: `eomirror.config.transform.Rule.plain`.
            unreadable: ``stop``, ``drop`` or ``keep`` records that are no JSON, where a rule reads a field.

        Raises:
            ValueError: An expression or a path is none; names it and says why.
        """

@final
class Policy:
    """Policy of a link for its records; compiled once, frozen."""

    def __new__(
        cls,
        routes: Mapping[str, str],
        *,
        source_cluster_id: str,
        target_cluster_id: str,
        header: bool = False,
        guard: bool = False,
        origins: Sequence[str] | None = None,
        origin: str | None = None,
        producer_id: int | None = None,
        keyed: Mapping[str, int] | None = None,
        transform: Transform | None = None,
    ) -> Policy:
        """
        Compile a policy.

        Args:
            routes: Source topic -> target topic.
            source_cluster_id: Id of the source cluster.
            target_cluster_id: Id of the target cluster.
            header: Write the provenance header ``eomirror.hops`` into kept records.
            guard: Drop records whose provenance says that they would go round.
            origins: Ids of the clusters whose records are forwarded; None for any.
            origin: Alias of the source cluster, to write the header ``eomirror.origin``; None for no such header.
            producer_id: Of the producer that sends the records; the headers carry it as a mark. None for no mark.
            keyed: Target topics whose records are placed by key, with their number of partitions.
            transform: Rules that leave records out and change others; then neither header nor guard.

        Raises:
            ValueError: A topic name or cluster id is not one.
        """

@final
class Planner:
    """One lane's batches and its one open transaction; for one thread."""

    def __new__(cls, policy: Policy) -> Planner: ...
    def set_policy(self, policy: Policy) -> None:
        """
        Change the policy, between two transactions.

        Raises:
            RuntimeError: A transaction is open.
        """

    def plan(self, messages: list[Any]) -> Plan:
        """
        Decide about a consumed batch, in one call, and enter it into the open transaction's books.

        Args:
            messages: What `confluent_kafka.Consumer.consume` gave.

        Raises:
            UnrepresentableRecordError: A record has timestamp 0, which librdkafka takes for "now".
            TopicError: A topic has no route, or a record or its provenance header is broken.
            TransactionFailedError: An offset went back.
        """

    def leave_out(self, messages: list[Any]) -> list[str]:
        """
        Enter records that the target refuses as dropped, with reason ``dead-letter``.

        Returns:
            The digest of each record, hexadecimal.

        Raises:
            TopicError: A topic has no route.
            TransactionFailedError: An offset went back.
        """

    def settle(self, acks: Acks) -> list[PartitionAccount]:
        """
        Compare the books with what the target acknowledged (rule 7); the books stay open.

        Raises:
            TransactionFailedError: They do not match; names topic-partition and the counts.
        """

    def planned(self) -> list[tuple[str, int, int]]:
        """Target topic, target partition and number of records that were entered for it, if any."""

    def reached(self) -> list[tuple[str, int, int, int | None]]:
        """
        Source partitions that records were planned from since the last `clear`.

        Returns:
            Source topic, partition, the offset after the last record, and that record's leader epoch if known.
        """

    def tails(self) -> list[tuple[str, int, tuple[int, str, str]]]:
        """Topic, partition and last kept record of the open transaction, as `PartitionAccount.tail`."""

    def clear(self) -> None:
        """Close the books, after a commit or an abort."""

@final
class Plan:
    """Plan for a batch."""

    @property
    def records(self) -> list[tuple[Any, ...]]:
        """Positional arguments of ``Producer.produce`` for each kept record, in fetch order."""

    @property
    def ends(self) -> list[tuple[str, int, int]]:
        """End-of-partition events: topic, partition, offset."""

    @property
    def error_at(self) -> int | None:
        """Index of the first message that carries any other error; neither it nor what follows is in the plan."""

    @property
    def fetched(self) -> int:
        """Records in the batch."""

    @property
    def kept(self) -> int:
        """Records to produce."""

    @property
    def dropped(self) -> int:
        """Records left out on purpose."""

    @property
    def bytes(self) -> int:
        """Keys, values and headers of the kept records."""

@final
class PartitionAccount:
    """One source partition's account of the open transaction."""

    @property
    def source_topic(self) -> str: ...
    @property
    def source_partition(self) -> int: ...
    @property
    def fetched(self) -> int:
        """Records that were fetched."""

    @property
    def acked(self) -> int:
        """Records that the target acknowledged."""

    @property
    def bytes(self) -> int:
        """Keys, values and headers of the kept records."""

    @property
    def dropped(self) -> dict[str, int]:
        """Records dropped on purpose, by reason."""

    @property
    def changed(self) -> dict[str, int]:
        """Acknowledged records that rules of the transform changed, by rule."""

    @property
    def copied_headers(self) -> int:
        """Acknowledged records that carry the provenance header of another record."""

    @property
    def first_source_offset(self) -> int: ...
    @property
    def last_source_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int:
        """Of the last record; -1 when not known."""

    @property
    def timestamp(self) -> int:
        """Of the last kept record, ms; -1 when nothing was kept."""

    @property
    def target_topic(self) -> str: ...
    @property
    def target_partition(self) -> int: ...
    @property
    def first_target_offset(self) -> int:
        """-1 when nothing was acknowledged."""

    @property
    def last_target_offset(self) -> int:
        """-1 when nothing was acknowledged."""

    @property
    def placed(self) -> list[tuple[int, int, int]]:
        """Target partition, first and last offset there, where records are placed by key; else empty."""

    @property
    def offset_map(self) -> builtins.bytes:
        """Value of the offset map's chunk; empty when nothing was acknowledged, or where records are placed by key."""

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """Ranges of the chunk: source offset, target offset, count; built on access."""

    @property
    def digest(self) -> str:
        """Chained xxh3-64 over the kept records, 16 hexadecimal digits; empty when nothing was kept."""

    @property
    def tail(self) -> tuple[int, str, str] | None:
        """Offset of the last kept record, and the chained digest before and behind it; None on the native plane."""

    @property
    def jumps(self) -> list[tuple[int, int]]:
        """Offsets between two records that no record had: at most 16 ranges, the largest; none on the native plane."""

@final
class PartitionMap:
    """
    The offset map of one source partition, put together from its chunks.

    An answer is a kind and an offset: ``exact`` (that record), ``next`` (no record was mirrored from the offset
    asked for; going on there skips and repeats none), ``nothing`` (the map is empty; -1), ``before`` (asked for
    before the first record that is known, which is there), or ``beyond`` (the end of what was looked at).
    """

    def __new__(cls) -> PartitionMap: ...
    def take_in(self, value: bytes, topic: str, partition: int) -> bool:
        """
        Take in a chunk, in log order; a later one counts where two disagree.

        Returns:
            Whether it speaks of this target partition; one that does not is left out.

        Raises:
            StateError: The bytes are corrupt or of an unknown version.
        """

    def ranges(self) -> int:
        """Returns the number of ranges of the map, 24 bytes each."""

    def keep_near(self, source: int, target: int, most: int) -> None:
        """
        Forget what does not decide where a log, or its copy, was cut; more chunks can be taken in.

        Args:
            source: First source offset that is left.
            target: First target offset that is left.
            most: How many ranges that begin before either are kept, besides the first of all.
        """

    def listed(self) -> list[tuple[int, int, int]]:
        """The ranges: source offset, target offset, count."""

    def part_to_target(self, offset: int) -> tuple[str, int] | None:
        """Answer for a source offset if the newest chunks, which alone were taken in, decide it."""

    def part_to_source(self, offset: int) -> tuple[str, int] | None:
        """Answer for a target offset if the newest chunks, which alone were taken in, decide it."""

    def to_target(self, offset: int, position: int) -> tuple[str, int]:
        """Translates a source offset; ``position`` is the next offset to mirror, read before the map."""

    def to_source(self, offset: int, stable_end: int) -> tuple[str, int]:
        """Translates a target offset; ``stable_end`` is the target's last stable offset, read before the map."""

@final
class Acks:
    """Acknowledgements of the target; made by a witness, or by hand for tests."""

    def __new__(
        cls, partitions: Sequence[tuple[str, int, list[tuple[int, int]]]] = ..., *, failed: int = 0
    ) -> Acks: ...
    @property
    def failed(self) -> int:
        """Records whose acknowledgement carried an error."""

    @property
    def partitions(self) -> list[tuple[str, int, list[tuple[int, int]]]]:
        """Target topic, partition, and runs of (first offset, count) in order of delivery."""

@final
class Witness:
    """Counts a client's requests and notes its acknowledged offsets, from librdkafka's own threads."""

    @staticmethod
    def plugin_path() -> str:
        """Path of this extension, for ``plugin.library.paths``."""

    @staticmethod
    def arm(cimpl_path: str) -> Witness:
        """
        Make a witness for the next client that is created on this thread with the plugin.

        Args:
            cimpl_path: Path of the loaded ``confluent_kafka.cimpl``, through which librdkafka is found.

        Raises:
            MirrorError: librdkafka's functions cannot be found through it.
        """

    @property
    def attached(self) -> bool:
        """Returns True once a client has taken this witness."""

    def mark(self) -> None:
        """Forget requests; acknowledgements are kept."""

    def requests(self) -> dict[int, tuple[int, int, int]]:
        """API key -> sent, answered, errors since `mark`."""

    def early_registrations(self) -> int:
        """
        AddPartitionsToTxn requests since `mark` that were sent before any Produce request.

        One is what a transaction needs; more mean that the coordinator was still writing the markers of the
        transaction before, and sent the client away.
        """

    def take_acks(self) -> Acks:
        """Acknowledgements since the last call."""

@final
class HangingTransactionClient:
    """
    Asks leaders for open transactions (KIP-664), and coordinators to end them (KIP-98).

    Connects when it is first asked.

    Args:
        properties: A consumer's, as librdkafka names them.
        tokens: As of a `PlaneReader`.

    Raises:
        MirrorError: The native client cannot honour a property; the fix says more.
    """

    def __new__(
        cls, properties: dict[str, str], tokens: _Tokens | None = None
    ) -> HangingTransactionClient: ...
    def open(
        self, partitions: Sequence[tuple[str, int]], seconds: float
    ) -> list[tuple[str, int, int, int, int]]:
        """
        Open transactions in partitions: topic, partition, producer id, its newest epoch there, first offset.

        Raises:
            UnreachableError: A leader does not answer in time.
            MirrorError: A broker refuses us, or does not know the request.
        """

    def open_transactions(
        self, partitions: Sequence[tuple[str, int]], seconds: float
    ) -> list[tuple[str, int, int, int, int, str | None, tuple[int, int] | None]]:
        """
        Open transactions in partitions, as `open`, with what their coordinators know of them.

        Returns:
            Also the transactional id, None where no coordinator shows one; and the begin (ms since the epoch) with the
            timeout (ms), None where the coordinator does not know the transaction as open.

        Raises:
            UnreachableError: A broker does not answer in time.
            MirrorError: A broker refuses us, or does not know the request.
        """

    def log_sizes(self, partitions: Sequence[tuple[str, int]], seconds: float) -> list[tuple[str, int, int]]:
        """
        Topic, partition, and the bytes of the leader's log, where they are known; one request to each broker.

        Brokers before Kafka 3.2 tell a principal without the right to describe the cluster nothing.

        Raises:
            UnreachableError: A broker does not answer in time.
            MirrorError: A broker refuses us, or does not know the request.
        """

    def record_states(
        self, records: Sequence[tuple[str, int, int]], seconds: float
    ) -> list[tuple[str, int, Literal["committed", "unknown", "pending", "deleted", "unreadable"], int]]:
        """
        Returns the states of acknowledged records: topic, partition and offset, one in each partition.

        Returns:
            Topic, partition, state, and the partition's last stable offset.

        ``unknown``: some transaction around it was aborted, perhaps its own.

        Raises:
            UnreachableError: A leader does not answer in time.
            MirrorError: A broker refuses us.
        """

    def is_written_by(self, record: tuple[str, int, int], writer: tuple[int, int], seconds: float) -> bool:
        """
        Returns True if this producer (id, epoch) wrote the record at (topic, partition, offset).

        ``committed`` of `record_states` does not tell: it is said of a transaction marker too, and of what others
        wrote.  False where the log does not hold the offset any more.

        Raises:
            UnreachableError: The leader does not answer in time.
            MirrorError: A broker refuses us.
        """

    def writer_of(self, record: tuple[str, int, int], seconds: float) -> tuple[int, int] | None:
        """
        Return the producer id and epoch of the batch that holds an offset (topic, partition, offset).

        -1 and -1 for a marker, or a producer that is not idempotent; None where the log holds no such batch any more,
        or never did.

        Raises:
            UnreachableError: The leader does not answer in time.
            MirrorError: A broker refuses us.
        """

    def batch_at(
        self, record: tuple[str, int, int], seconds: float
    ) -> tuple[int, int, int, int, int, int] | None:
        """
        Returns the batch that holds an offset (topic, partition, offset).

        Returns:
            Its base offset, CRC, largest timestamp (ms), last offset, producer id and epoch; -1 and -1 for a marker, or
            a batch outside of a transaction.  None where the log holds no such batch any more, or never did.

        Raises:
            UnreachableError: The leader does not answer in time.
            MirrorError: A broker refuses us.
        """

    def batches_at(
        self, records: Sequence[tuple[str, int, int]], seconds: float
    ) -> list[tuple[str, int, tuple[int, int, int, int, int, int]]]:
        """
        Returns topic, partition and the batch, as `batch_at` does, of each partition where one holds the offset.

        One request to each leader brings the batches of many partitions.

        Args:
            records: Topic, partition and offset; one offset of a partition.

        Raises:
            UnreachableError: A leader does not answer in time.
            MirrorError: A broker refuses us.
        """

    def committed(
        self, partition: tuple[str, int], offsets: tuple[int, int], seconds: float
    ) -> tuple[list[tuple[int, int, int, int, int, int]], int]:
        """
        Returns the batches of committed records with offsets in a range (first, behind the last), as `batch_at` does.

        Returns:
            Also the offset up to which the log was read: before the range's end where the log, or what is stable of it,
            ends earlier.

        Raises:
            UnreachableError: The leader does not answer in time.
            MirrorError: A broker refuses us.
        """

    def copied(
        self, partition: tuple[str, int], offsets: tuple[int, int], from_cluster: str, seconds: float
    ) -> tuple[list[tuple[int, int]], int]:
        """
        Returns the ranges of offsets whose committed records a link has copied from a cluster.

        It judges as the loop guard of a lane does: by the provenance header, whose mark names the producer of the batch
        (docs/adr/0017).  A record that an application emitted again, header and all, is in none.

        Args:
            partition: Topic and number.
            offsets: First offset, and the offset behind the last.
            from_cluster: Id of the cluster.

        Returns:
            Ranges (first, behind the last), and the offset up to which the log was read, as `committed` does.

        Raises:
            UnreachableError: The leader does not answer in time.
            MirrorError: A broker refuses us.
        """

    def has_committed_behind(
        self, record: tuple[str, int, int], producer_ids: set[int], most: int, seconds: float
    ) -> bool:
        """
        Returns True if committed records of these producers follow a record (topic, partition, offset).

        Args:
            record: The record; -1 for the beginning of the log.
            producer_ids: Whose.
            most: Look no further than so many bytes.
            seconds: How long to wait for a leader.

        Raises:
            UnreachableError: The leader does not answer in time.
            MirrorError: A broker refuses us.
        """

    def producer_identity(self, transactional_id: str, seconds: float) -> tuple[int, int] | None:
        """
        Producer id and epoch of a transactional id; None where its coordinator knows none.

        Raises:
            UnreachableError: The coordinator does not answer in time.
            MirrorError: A broker refuses us, or does not know the request.
        """

    def writers(self, partitions: Sequence[tuple[str, int]], seconds: float) -> list[tuple[str, int, str]]:
        """
        Topic, partition, and a transactional id that has written there, as far as brokers remember: about a day.

        Raises:
            UnreachableError: A broker does not answer in time.
            MirrorError: A broker refuses us, or does not know the request.
        """

    def end(
        self,
        transactional_id: str,
        partitions: Sequence[tuple[str, int]],
        *,
        commit: bool,
        transaction_timeout: float,
        seconds: float,
        held: tuple[int, int] | None = None,
    ) -> tuple[int, int]:
        """
        Take over a transactional id, and end what its producer has open in these partitions; writes no record.

        The holder of the id passes its identity, and is refused if another producer has taken the id since.

        Returns:
            Producer id and epoch that it was done with.

        Raises:
            FencedError: Another producer took the id at the same time.
            UnreachableError: It was not done in time; the same again may do it.
            MirrorError: A broker refuses us.
        """

@final
class LogAudit:
    """
    Reads the logs of a link's target through the native client, uncommitted and with markers, and audits them.

    Args:
        properties: A consumer's, as librdkafka names them.
        seconds: How long to wait for a broker.
        tokens: As of a `PlaneReader`.

    Raises:
        MirrorError: The native client cannot honour a property, or cannot log in or connect; the fix says more.
    """

    def __new__(
        cls, properties: dict[str, str], seconds: float, tokens: _Tokens | None = None
    ) -> LogAudit: ...
    def add(self, topic: str, partition: int, role: str, start: int, end: int, topic_id: str) -> None:
        """
        Read a partition from its log's start to an end; all are added before the first step.

        Args:
            role: ``data``, ``positions`` or ``offset-map``.
            start: First offset of the log.
            end: Offset behind the last one to read.
            topic_id: Id of the topic; positions of an earlier topic of this name are not held against it.
        """

    def learn(self, producer_id: int) -> None:
        """Say that a producer id is the link's own, before its positions do."""

    def step(self, seconds: float) -> bool:
        """
        Read for at most so long, and never longer than a tenth of a second; whether all ends are reached.

        Raises:
            MirrorError: A broker refuses us, or a log cannot be read.
        """

    def progress(self) -> tuple[int, int]:
        """Bytes read, and how many parts of transactions wait for their counterparts."""

    def finish(self, at_rest: bool) -> dict[str, Any]:
        """
        Returns the findings, under the names of `eomirror.verify.transactions.TransactionAudit`; ends the audit.

        Args:
            at_rest: True if no producer writes, so that an open transaction is a finding.
        """

@final
class NativeLane:
    """
    Moves one lane's records through the native plane; for the thread that made it.

    No call holds the interpreter's lock while it waits, or keeps Python from its signals for longer than a tenth of
    a second; what a signal handler raises comes out of the call.  Every call may raise
    `eomirror.plane.native.errors.NativeFailureError`, in a forked child too.
    """

    def __new__(
        cls,
        source: dict[str, str],
        target: dict[str, str],
        *,
        transactional_id: str,
        transaction_timeout: float,
        source_cluster_id: str,
        target_cluster_id: str,
        header: bool = False,
        guard: bool = False,
        origins: Sequence[str] | None = None,
        origin: str | None = None,
        source_tokens: _Tokens | None = None,
        target_tokens: _Tokens | None = None,
        transform: Transform | None = None,
    ) -> NativeLane:
        """
        Prepare a lane; connects nowhere yet.

        Args:
            source: librdkafka's properties of a consumer, as text.
            target: Properties of a producer on the target.
            transactional_id: The id that `open` takes.
            transaction_timeout: Seconds after which the coordinator aborts what is left open.
            source_cluster_id: Id of the source cluster.
            target_cluster_id: Id of the target cluster.
            header: Write the provenance header into records.
            guard: Drop records whose provenance says that they would go round.
            origins: Ids of the clusters whose records are forwarded; None for any.
            origin: Alias of the source cluster, to write the header ``eomirror.origin``; None for no such header.
            source_tokens: Gives tokens for the source's OAUTHBEARER; see `PlaneReader`.  Called from within any of
                the calls below, when a connection is opened.
            target_tokens: Returns tokens for the target.
            transform: Rules that leave records out and change others; then neither header nor guard.
        """

    @staticmethod
    def failure_kinds() -> list[str]:
        """Kinds that a failure can have."""

    def route(
        self,
        source_topic: str,
        target_topic: str,
        *,
        target_id: str | None,
        max_batch_bytes: int,
        partitions: int | None = None,
    ) -> None:
        """
        Say where records of a topic go.

        Args:
            source_topic: Source topic.
            target_topic: Target topic; the partition number stays, unless ``partitions`` is given.
            target_id: Id of the target topic that is meant; None when not known.
            max_batch_bytes: Largest batch that it takes.
            partitions: Its number of partitions, to place records by key; None to keep the number of their partition.

        Raises:
            ValueError: A topic's name or id is not one.
        """

    def open(self, seconds: float) -> tuple[int, int]:
        """Take the transactional id with a new producer; its producer id and epoch."""

    def start(
        self,
        starts: Sequence[
            tuple[
                str,
                int,
                int,
                int | None,
                int | None,
                str | None,
                tuple[tuple[int, int, int] | None, str, int],
            ]
        ],
    ) -> None:
        """
        Begin to fetch: topic, partition, offset, leader epoch, where that is known, topic id, history of the log.

        The history is the batch before the offset (base offset, CRC, largest timestamp), how to treat holes, and how
        many offsets were missing so far.  ``count`` only counts the offsets of holes, and compares no batch: for a log
        that is or was compacted, or may be.  ``name`` names holes in `advances`, ``stop`` fails before one; both fail
        where the source holds another batch than the one that is given, now and behind each lost connection.
        """

    def stop(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Drop these partitions with everything fetched of them, while no transaction is open."""

    def restart(self) -> None:
        """Forget everything fetched, and every partition."""

    def await_records(self, seconds: float, other: int | None = None) -> bool:
        """Returns True if there is something to mirror; returns early once the descriptor ``other`` can be read."""

    def has_more(self) -> bool:
        """Returns True if records arrived for partitions of the open transaction and for no others; does not wait."""

    def advances(
        self,
    ) -> list[
        tuple[
            str,
            int,
            int,
            int | None,
            tuple[tuple[int, int, int] | None, int, bool, list[tuple[int, int]]],
        ]
    ]:
        """
        Returns the advances since the last commit: topic, partition, next offset, leader epoch, facts of the log.

        That is the batch before the offset (base offset, CRC, largest timestamp), how many offsets were missing so far,
        whether a batch has shown that the log was compacted, and the holes since the last commit.
        """

    def log_ends(self) -> list[tuple[str, int, int]]:
        """Topic, partition and last stable offset, where it is known."""

    def pinned(self) -> list[str]:
        """Source topics of the open transaction that are fetched and written by id."""

    def begin(self, seconds: float) -> tuple[int, int]:
        """Begin a transaction; its producer id and epoch."""

    def pump(self, seconds: float, most: int) -> tuple[int, int, bool, bool]:
        """
        Send what is at hand, until the transaction holds ``most`` bytes.

        Returns:
            Records, bytes of their batches, whether nothing is left, whether the transaction is full.
        """

    def write(
        self, records: Sequence[tuple[str, int, builtins.bytes, builtins.bytes | None]], timestamp: int
    ) -> None:
        """Send records of ours: topic, partition, key, value; ``timestamp`` in ms."""

    def speculative_accounts(self) -> list[PartitionAccount] | None:
        """Predicts the result of `settle` for copies that the lane alone writes; None if it cannot be predicted."""

    def settle(self, seconds: float) -> list[PartitionAccount]:
        """Wait until everything is acknowledged, and balance the books (rule 7)."""

    def commit(self, seconds: float) -> bool:
        """
        Commit, by the same request as often as it takes.

        Returns:
            False where partitions have got new leaders since `open`, so that markers may have been left out.
        """

    def abort(self, seconds: float) -> bool:
        """Abort; whether that was answered in time."""

    def throttled(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """Source, target: in how many answers brokers asked us to wait (KIP-219), and for how many seconds we did."""

    def protocol(self) -> str:
        """Returns the protocol of the last transaction, ``V1`` or ``V2``; empty without a producer."""

    def stalled(self) -> list[tuple[str, int, float, str]]:
        """Partitions that cannot be read at the moment: topic, partition, for how many seconds, why."""

    def close(self) -> None:
        """Close all connections."""

_Binary: TypeAlias = tuple[bytes | None, bytes, bytes, int]
_Headers: TypeAlias = tuple[bytes | None, bytes, int, int, _Binary, _Binary]
_Rows: TypeAlias = tuple[int, _Binary, _Binary, bytes, bytes, bytes, _Headers | None]

@final
class PartitionScan:
    """
    Reads the committed records of a range of offsets into the buffers of Arrow arrays.

    Args:
        end: Offset behind the last one to read; not beyond the last stable offset.
        topic_id: The intended topic; None accepts any.
        headers: Also return headers.
        skips_deleted: Continue at the log start where records were deleted, instead of failing.
        times: First and last timestamp of the returned records, in ms since 1970.
        ranges: Source offset, target offset and count, sorted; only records in these target ranges are returned, under
            their source offsets.
    """

    def __new__(
        cls,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        topic_id: str | None = None,
        headers: bool = False,
        skips_deleted: bool = False,
        times: tuple[int, int] | None = None,
        ranges: Sequence[tuple[int, int, int]] | None = None,
    ) -> PartitionScan: ...
    def step(self, reader: PlaneReader, seconds: float, rows: int, size: int) -> bool:
        """
        Read for at most so long, and never longer than a tenth of a second.

        Returns:
            True once that many rows or bytes wait to be taken, or the range is read to its end.

        Raises:
            DataLossError: Records of the range were deleted, or the topic was.
            TopicError: The partition cannot be read.
            ClusterError: The cluster refuses us.
        """

    def take(self) -> _Rows | None:
        """
        Take the rows that were read; None for no rows.

        Returns:
            Number of rows; keys and values, each as validity bitmap (None without nulls), offsets, data and number of
            nulls; offsets, timestamps in microseconds, types of timestamps; and headers, if they are wanted: validity
            and offsets of the lists, number of null lists, number of headers, their keys and values.
        """

    @property
    def done(self) -> bool:
        """True once the range is read to its end."""

    @property
    def position(self) -> int:
        """Next offset to read."""

    @property
    def fetched_bytes(self) -> int:
        """Bytes of the batches that were fetched."""

    @property
    def lost(self) -> tuple[int, int] | None:
        """Range of offsets that were deleted and skipped; None for none."""

@final
class PlaneReader:
    """A connection of the native plane that reads committed record batches; serves one comparison at a time."""

    def __new__(
        cls,
        properties: dict[str, str],
        seconds: float,
        tokens: _Tokens | None = None,
    ) -> PlaneReader:
        """
        Connect.

        Args:
            properties: librdkafka's properties of a consumer, as text.
            seconds: How long it may take.
            tokens: Gives tokens for ``sasl.mechanism: OAUTHBEARER``, in the form of confluent-kafka's ``oauth_cb``: is
                called with ``sasl.oauthbearer.config``, and returns a token and the time since 1970, in seconds, at
                which it expires; with these, if need be, a principal (not used) and SASL extensions. Called again
                before the token expires; while it fails, connections wait. The message of a `MirrorError` is
                shown, of other exceptions only the name; what is no `Exception` is raised to the caller.

        Raises:
            UnreachableError: No broker answers.
            AuthorizationError: The brokers refuse the credentials or the certificate.
            ClusterError: A property is wrong, or cannot be honoured (see `unsupported_properties`).
        """

    def holes(
        self, topic: str, partition: int, start: int, end: int, seconds: float
    ) -> tuple[list[tuple[int, int]], bool] | None:
        """
        Look at all batches of a range, markers and aborted ones too.

        Args:
            partition: Its partition.
            start: First offset.
            end: Offset behind the last; not beyond the last stable offset.
            seconds: How long it may take.

        Returns:
            Ranges of offsets that no batch has, about 100 at most, and whether a batch shows that the log was
            compacted; None where the range could not be read to its end.

        Raises:
            ClusterError: The cluster refuses us.
        """

    def density(
        self, offsets: Sequence[tuple[str, int, int]], size: int, seconds: float
    ) -> list[tuple[str, int, int, int]]:
        """
        Fetch about ``size`` bytes of each partition from its offset.

        Returns:
            Topic, partition, bytes of the batches, and offsets that they span. A partition without an answer in time
            is left out.

        Raises:
            ClusterError: The cluster refuses us.
        """

    @staticmethod
    def unsupported_properties(
        properties: dict[str, str], tokens: _Tokens | None = None
    ) -> list[tuple[str, str]]:
        """
        Properties that the native plane cannot honour, and why; none means that it can serve.

        Args:
            properties: librdkafka's properties, as text.
            tokens: As of a new reader; not called.

        Raises:
            ClusterError: A value is wrong for every client.
        """

@final
class OriginComparison:
    """Compares a source partition with copies that are placed by key, by the header ``eomirror.origin``."""

    def __new__(
        cls,
        prefix: str,
        partition: int,
        source: tuple[int, int],
        count: int,
        *,
        shortened: set[int] = ...,
        from_start: bool = True,
        timestamps: bool = True,
        most: int = 1_000_000,
        share: tuple[int, int] = ...,
        transform: Transform | None = None,
    ) -> OriginComparison:
        """
        Say what to compare.

        Args:
            prefix: Beginning of the header: ``ALIAS/TOPIC/PARTITION/``.
            partition: Source partition.
            source: First source offset, and end.
            count: Number of target partitions.
            shortened: Target partitions whose log does not begin at 0: their first copies may be deleted.
            from_start: Whether all originals were mirrored; if not, those before the first copy are left out.
            timestamps: Whether timestamps count.
            most: Copies in memory.
            share: Which share of the source offsets, of how many.

        Raises:
            ValueError: A count is not positive.
        """

    def begin(self, side: str, topic: str, partition: int, start: int, end: int) -> None:
        """Begin with a range of ``source``, or of a ``target`` partition; all of the target comes first."""

    def feed(self, messages: list[Any], reached: int | None) -> bool:
        """
        Take committed messages of the begun range, from a client that is at ``reached`` after them.

        Returns:
            True at the end of the range, and when there are too many copies.

        Raises:
            ValueError: No range was begun.
        """

    @property
    def position(self) -> int:
        """Offset up to which the begun range is read; -1 before the first."""

    def finish(self) -> None:
        """End the comparison, after all ranges."""

    @property
    def too_many(self) -> bool:
        """True if there are too many copies for one share: the result would be wrong."""

    @property
    def matched(self) -> int:
        """Equal records so far."""

    def counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Read records of source and target, and those of each that are not compared."""

    def take(self) -> list[tuple[str, int | None, int | None, int | None]]:
        """Differences since the last call: kind, source offset, target partition, target offset."""

@final
class PartitionComparison:
    """Compares a source partition with its copy, in bounded memory; records never become Python objects."""

    def __new__(
        cls,
        source: tuple[str, int, int, int, int],
        target: tuple[str, int, int, int, int],
        *,
        timestamps: bool = True,
        guard: tuple[str, str, list[str] | None] | None = None,
        marked: bool = True,
        by_key: tuple[int, int, int] | None = None,
        dead_letters: list[tuple[int, int]] = ...,
        others: list[bytes] = ...,
        own: list[bytes] = ...,
        returned: list[bytes] = ...,
        origins: bool = True,
        transform: Transform | None = None,
        window: int = 4096,
        history: int = 65536,
    ) -> PartitionComparison:
        """
        Say what to compare.

        Args:
            source: Topic, partition, first offset, end of what is compared, end of what is read (``by_key`` reads
                on, to excuse what compaction removed because of later records; else the same).
            target: The target partition.
            timestamps: Whether timestamps count.
            guard: Source cluster id, target cluster id and forwarded origins of a link that leaves out records by
                their provenance; None for one that mirrors all.
            marked: Whether a link with a guard marks its own records by their provenance, by which they are told from
                others on the target.
            by_key: Compare the last record of every key instead of each record: most keys in memory, which share
                of them, of how many.
            dead_letters: Source offset, and digest of the record there, timestamp included; a record whose digest it is
                counts as left out.
            others: Chunks of the offset maps of other links that write into the same copy: records that they name are
                left out.
            own: Chunks of the link's own offset map: records that they name are the link's, also without a header.
            returned: Chunks of the offset maps of reverse links, which write into the source partition: records that
                they name are left out, also without a header.
            origins: Whether the header ``eomirror.origin`` counts; it does not where the link writes it.
            window: Records of either side that are looked at beyond the first difference.
            history: Matched records that are remembered to recognise duplicates.
        """

    def step(self, source: PlaneReader, target: PlaneReader, seconds: float) -> bool:
        """
        Read and compare for at most ``seconds`` (and at most 0.1) without the interpreter's lock.

        Returns:
            Whether all is compared.

        Raises:
            TopicError: A partition cannot be read there; names topic and offset.
            ClusterError: A cluster refuses us.  One that does not answer is waited for.
        """

    def wants(self, side: str) -> bool:
        """Returns True if `feed` should bring more messages of ``source`` or ``target``."""

    def feed(self, side: str, messages: list[Any], reached: int | None) -> bool:
        """
        Take committed messages that another client consumed; as `step` otherwise.

        Args:
            side: ``source`` or ``target``.
            messages: Of this partition, in order, without events.
            reached: The client's position behind them; None when not known.
        """

    def extend(
        self,
        source_end: int,
        target_end: int,
        dead_letters: list[tuple[int, int]] = ...,
        starts: tuple[int, int] = ...,
        others: list[bytes] = ...,
        own: list[bytes] = ...,
        returned: list[bytes] = ...,
    ) -> None:
        """
        Both sides have more now, and there may be more dead letters; not for ``by_key``.

        Args:
            source_end: End of what is compared of the source.
            target_end: End offset on the target.
            dead_letters: As for the constructor.
            starts: Source and target offset before which nothing can be compared any more.
            others: As for the constructor; replaces the chunks that were given before, as the next two do.
            own: As for the constructor.
            returned: As for the constructor.
        """

    def read_on(self, source_tail: int, target_tail: int) -> None:
        """Read on to these offsets, beyond what is compared, and judge all keys anew; for ``by_key`` only."""

    def read_again(self) -> None:
        """Read both sides once more, and judge the keys anew that differ; for ``by_key`` only."""

    def resume_at(self) -> tuple[int, int] | None:
        """Source and target offset at which another comparison could go on; None while there is no such place."""

    def take(self) -> list[tuple[str, int | None, int | None]]:
        """Differences since the last call, at most 1,000: kind, source offset, target offset."""

    @property
    def too_many_keys(self) -> bool:
        """Returns True if this share has more keys than fit; its result would be wrong."""

    def counts(self) -> dict[str, Any]:
        """Records matched, differences by kind, and what was read of either side."""

_Columns: TypeAlias = Mapping[str, tuple[str, int, int, list[Any], list[Any]]]

@final
class SinkProducer:
    """
    A transactional producer of rows, which are Arrow columns.

    A column is (type, offset, length, buffers, children), with types ``null``, ``int32``, ``int64``, ``bytes``,
    ``large_bytes`` and ``list``.  Calls end after ``seconds``; begin, settle, commit and abort resume if called again.
    """

    def __new__(
        cls,
        properties: Mapping[str, str],
        transactional_id: str,
        *,
        seconds: float,
        transaction_timeout_ms: int = 60_000,
        codec: str = "none",
        batch_bytes: int = 524_288,
        identity: tuple[int, int] | None = None,
        tokens: _Tokens | None = None,
    ) -> SinkProducer:
        """
        Connect, and take the transactional id.

        Args:
            properties: librdkafka's.
            transactional_id: Its open transaction is aborted, and its earlier producers are fenced.
            seconds: Maximum wait.
            transaction_timeout_ms: Time after which the coordinator aborts.
            codec: ``compression.type`` of the batches.
            batch_bytes: Size of a batch before compression.
            identity: Producer id and epoch of a transaction of protocol V2 that another process has begun, and ends:
                nothing is asked of the coordinator.  No partition may have been written in it before.
            tokens: Source of OAUTHBEARER tokens.

        Raises:
            TransactionRefusedError: The coordinator refuses.
            MirrorError: No broker answers, or a property is not supported.
        """

    @property
    def transaction_version(self) -> int:
        """The cluster's ``transaction.version``; 0 if it has none."""

    def partitions(self, topic: str, seconds: float) -> int | None:
        """Returns how many partitions a topic has; None if it does not exist."""

    def end_offset(self, topic: str, partition: int, seconds: float) -> int:
        """Returns the end of a log, whatever is committed."""

    def claim(self, topic: str, partition: int, since: int, key: bytes, own: bytes, seconds: float) -> bool:
        """Claims ``key`` outside of the transaction; True if no other name claimed it at or behind ``since``."""

    def latest(self, topic: str, partition: int, key: bytes, seconds: float) -> bytes | None:
        """Returns the value of the last committed record of a key, after waiting for open transactions."""

    def begin(self, seconds: float) -> tuple[int, int]:
        """Begins a transaction; returns producer id and epoch."""

    def limit(self, topic: str | None = None, task: int | None = None, tasks: int | None = None) -> None:
        """Sets the topic of rows without one, and the partitions that may be written: those of one of so many tasks."""

    def write(self, rows: int, columns: _Columns, seconds: float) -> None:
        """
        Writes rows: columns key, value, headers, topic, partition (-1 for any own one) and timestamp (in us).

        Raises:
            RowError: A row cannot be written.
            TransactionRefusedError: A broker refuses a batch; the transaction must be aborted.
            UnreachableError: The brokers do not answer.
        """

    def count_only(self) -> None:
        """Lets later rows be counted, not written: to compare them with rows that were written before."""

    def send(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Queues one record behind all others of its partition."""

    def settle(self, seconds: float) -> list[tuple[str, int, int, int, str, int, int]]:
        """
        Waits until everything is acknowledged.

        Returns:
            Topic, partition, records, bytes, digest, first and next target offset of the rows of each partition.
        """

    def commit_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]], seconds: float) -> None:
        """Adds offsets of a consumer group to the transaction; only in protocol V2."""

    def commit(self, seconds: float) -> None:
        """Commits; after `UnreachableError` the outcome is open, and only this call may follow."""

    def abort(self, seconds: float) -> None:
        """Aborts; does nothing outside of a transaction."""

@final
class RowPlacer:
    """
    Chooses partitions of rows as Java's default partitioner does, and which of several tasks writes each.

    Args:
        tasks: Number of tasks.
        topic: Topic of rows without one.
        by_value: A row without a key goes to the partition that its value gives.  Otherwise the value gives its task,
            which chooses among its partitions.
    """

    def __new__(cls, tasks: int, *, topic: str | None = None, by_value: bool = False) -> RowPlacer: ...
    def place(self, rows: int, columns: _Columns, count: Callable[[str], int]) -> tuple[bytes, bytes]:
        """
        Returns partition (-1 for any of the task's) and task of each row, as buffers of 32-bit numbers.

        Args:
            rows: Number of rows.
            columns: As of `SinkProducer.write`.
            count: Returns how many partitions a topic has.

        Raises:
            RowError: A row has no topic, or names a partition that does not exist.
        """

def digest_behind(before: str, message: Any) -> str:
    """
    The chained digest behind a message (`PartitionAccount.tail`).

    Args:
        before: The digest before it, hexadecimal.
        message: A confluent_kafka Message without an error.

    Raises:
        ValueError: ``before`` is no digest.
    """

def encode_offset_map(topic: str, partition: int, ranges: Sequence[tuple[int, int, int]]) -> bytes:
    """
    Bytes of an offset-map chunk.

    Args:
        topic: Target topic.
        partition: Target partition.
        ranges: (source offset, target offset, count), growing on both sides.

    Raises:
        StateError: The ranges are none, or do not grow.
    """

def decode_offset_map(value: bytes) -> tuple[str, int, list[tuple[int, int, int]]]:
    """
    Target topic, partition and ranges of a chunk.

    Raises:
        StateError: The bytes are corrupt or of an unknown version.
    """

def lacking_rights(
    properties: dict[str, str],
    tokens: _Tokens | None,
    asked: Sequence[tuple[str, str, str]],
    seconds: float,
) -> list[tuple[str, str, str]]:
    """
    Those of the asked rights that the user lacks, by requests that change nothing; resources need not exist.

    Args:
        properties: As of a `HangingTransactionClient`.
        tokens: As of a `PlaneReader`.
        asked: Operation, resource type and name: Read or Write on topics, Write on transactional ids, and Describe,
            Read or Delete on groups.
        seconds: Maximum time.

    Raises:
        MirrorError: No broker answers, or it refuses us.
        ValueError: There is no such request.
    """

def last_hop(header: bytes, topic: str, key: bytes | None, value: bytes | None) -> str | None:
    """Id of the cluster that a record was copied from; None where the header is none of ours, or another record's."""

def key_partition(key: bytes, partitions: int) -> int:
    """
    Returns the partition that a Java producer chooses for a key: murmur2 (org.apache.kafka.common.utils.Utils).

    A key must stay in its partition, because there is no order between records of two partitions.

    Raises:
        ValueError: ``partitions`` is not positive.
    """

def describe_client_quotas(
    properties: dict[str, str], tokens: _Tokens | None, seconds: float
) -> list[tuple[list[tuple[str, str | None]], str, float]]:
    """
    All client quotas that are set (KIP-546): entity, name of the quota, value.

    An entity is a list of its types (``user``, ``client-id``, ``ip``) with their names; None is the default entity.

    Args:
        properties: As of a `HangingTransactionClient`.
        tokens: As of a `PlaneReader`.
        seconds: Maximum time.

    Raises:
        AuthorizationError: DescribeConfigs on the cluster is missing.
        MirrorError: No broker answers, or it refuses us.
    """

def alter_client_quotas(
    properties: dict[str, str],
    tokens: _Tokens | None,
    changes: Sequence[tuple[Sequence[tuple[str, str | None]], str, float | None]],
    seconds: float,
) -> list[tuple[list[tuple[str, str | None]], str]]:
    """
    Set and remove client quotas; the entities that the broker refuses, each with its text.

    Args:
        properties: As of a `HangingTransactionClient`.
        tokens: As of a `PlaneReader`.
        changes: Entity, name of the quota, and its value; None removes it.
        seconds: Maximum time.

    Raises:
        MirrorError: No broker answers, or it refuses us.
    """

def delete_topics_by_id(
    properties: dict[str, str], tokens: _Tokens | None, ids: Sequence[str], seconds: float
) -> list[tuple[str, str]]:
    """
    Delete topics by their ids (KIP-516); those that the broker refuses to delete, each with Kafka's name of the error.

    One that does not exist is deleted already; another topic that has its name is left alone.

    Args:
        properties: As of a `HangingTransactionClient`.
        tokens: As of a `PlaneReader`.
        ids: In the form of Kafka's tools.
        seconds: Maximum time.

    Raises:
        MirrorError: No broker answers, or it refuses us.
        ValueError: A text is no topic id.
    """
