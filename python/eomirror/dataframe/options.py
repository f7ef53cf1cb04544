"""Options of ``format("eomirror")``, which are those of Spark's Kafka connector and some of ours. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.config.mm2_clients import ClientProperties, PropertyKeys
from eomirror.config.model import Cluster, FrozenMapping
from eomirror.config.rules import cluster_conflict, property_fault
from eomirror.config.secret import Secret, is_secret_key
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__all__ = [
    "CONFIGURED",
    "OffsetBound",
    "SourceOptions",
    "kafka_cluster",
    "known_option",
    "refuse_unknown",
    "source_schema",
]

#: Prefix of the properties of the Kafka client.
CLIENT = "kafka."

#: Property with those of a configured cluster in JSON, which are taken as they are: a password has no references left.
CONFIGURED = "kafka.eomirror.cluster"

#: Offsets in JSON that stand for the end and for the beginning of a log, as in Spark.
LATEST, EARLIEST = -1, -2

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "groupId")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_OTHERS = (
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "mirror.source",
    "kafkaConsumer.pollTimeoutMs",
)
_KNOWN = (*_SUBSCRIPTIONS, *_STARTS, *_ENDS, *_STREAM_ONLY, *_OTHERS)
# options of Spark's connector without a meaning here, and why
_NEEDLESS = {
    "groupidprefix": "no consumer group is joined; groupId names one that offsets are committed to",
    "kafka.group.id": "no consumer group is joined; groupId names one that offsets are committed to",
    "fetchoffset.numretries": "look-ups of offsets are repeated until they time out",
    "fetchoffset.retryintervalms": "look-ups of offsets are repeated until they time out",
    "minoffsetspertrigger": "batches begin as soon as there are records; use a longer trigger",
    "maxtriggerdelay": "batches begin as soon as there are records; use a longer trigger",
    "maxrecordsperpartition": "use minPartitions",
    "path": "topics are named by options",
}
_COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT"
)
_HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_POLL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """
    The first offsets of a query, or the offsets behind the last ones.

    Attributes:
        option: Option that says so, for messages.
        at: ``earliest``, ``latest``, or a time in ms for all partitions; empty if each has its own.
        offsets: Offset of each partition, where ``at`` is empty.
        times: Time in ms of each partition, where ``at`` is empty.
    """

    option: str
    at: str | int = ""
    offsets: Mapping[tuple[str, int], int] | None = None
    times: Mapping[tuple[str, int], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """
    Options of a source.

    Attributes:
        topics: Topics of ``subscribe``.
        pattern: Pattern of ``subscribePattern``.
        partitions: Partitions of ``assign``.
        strict_times: Fail where no record is at or after a starting time, instead of beginning at the end.
        max_rows: Offsets of one micro-batch.
        max_bytes: Bytes of one micro-batch, as they are stored by the brokers.
        min_partitions: Least number of tasks.
        fail_on_data_loss: Fail where records were deleted before they were read.
        headers: Add the column of headers.
        group: Consumer group that offsets are committed to.
        mirror: State name of the link whose source's offsets count.
        patience: Seconds without records of a partition that has some.
    """

    cluster: Cluster
    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: frozenset[tuple[str, int]] = frozenset()
    start: OffsetBound
    end: OffsetBound
    strict_times: bool = True
    max_rows: int | None = None
    max_bytes: int | None = None
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    headers: bool = False
    group: str = ""
    mirror: str = ""
    patience: float = _POLL_SECONDS

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        """
        Returns the options of a query.

        Raises:
            UsageError: An option is unknown, or has no valid value.
        """
        options = {key.lower(): value for key, value in given.items()}
        refuse_unknown(options, _KNOWN)
        for name in _BATCH_ONLY if streaming else _STREAM_ONLY:
            if name.lower() in options:
                raise UsageError(
                    f"option {name} has a meaning in a {'batch' if streaming else 'streaming'} query only",
                    fix="remove it",
                )
        chosen = [name for name in _SUBSCRIPTIONS if name.lower() in options]
        if len(chosen) != 1:
            raise UsageError(
                f"{' and '.join(chosen)} exclude each other" if chosen else "no topic is named",
                fix="set one of the options subscribe, subscribePattern and assign",
            )
        start = _bound(options, _STARTS, "latest" if streaming else "earliest")
        end = _bound(options, _ENDS, "latest")
        _check_bounds(start, end, streaming=streaming)
        strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
        if strategy not in {"error", "latest"}:
            raise _wrong("startingOffsetsByTimestampStrategy", strategy, "error or latest")
        partitions = _assigned(options["assign"]) if "assign" in options else frozenset()
        return cls(
            cluster=kafka_cluster(options),
            topics=tuple(name.strip() for name in options.get("subscribe", "").split(",") if name.strip()),
            pattern=options.get("subscribepattern", "").strip(),
            partitions=partitions,
            start=start,
            end=end,
            strict_times=strategy == "error",
            max_rows=_number(options, "maxOffsetsPerTrigger"),
            max_bytes=_number(options, "maxBytesPerTrigger"),
            min_partitions=_number(options, "minPartitions") or 0,
            fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
            headers=_flag(options, "includeHeaders", default=False),
            group=options.get("groupid", "").strip(),
            mirror=options.get("mirror.source", "").strip().replace("->", "."),
            patience=(_number(options, "kafkaConsumer.pollTimeoutMs") or _POLL_SECONDS * 1000) / 1000,
        )


def source_schema(given: Mapping[str, str]) -> str:
    """Returns the columns of a source, which are those of Spark's Kafka connector."""
    options = {key.lower(): value for key, value in given.items()}
    headers = _flag(options, "includeHeaders", default=False)
    return f"{_COLUMNS}, {_HEADERS}" if headers else _COLUMNS


def known_option(name: str, known: Collection[str]) -> bool:
    """Returns True for an option of the Kafka client or one of ``known``, whatever its case."""
    return name.lower().startswith(CLIENT) or name.lower() in {each.lower() for each in known}


def refuse_unknown(options: Mapping[str, str], known: Collection[str]) -> None:
    """
    Refuses options that would have no effect.

    Raises:
        UsageError: An option is unknown; names it, and the one that was probably meant.
    """
    for name in options:
        if why := _NEEDLESS.get(name.lower()):
            raise UsageError(f"option {name} is not supported: {why}", fix="remove it")
        if not known_option(name, known):
            names = {each.lower(): each for each in known}
            near = difflib.get_close_matches(name.lower(), names, 1)
            raise UsageError(
                f"option {name} is unknown",
                fix=f"did you mean {names[near[0]]}?" if near else f"the options are: {', '.join(known)}",
            )


def kafka_cluster(given: Mapping[str, str], alias: str = "kafka") -> Cluster:
    """
    Returns the cluster that the options ``kafka.*`` name, in the words of Java's client or of librdkafka.

    Args:
        given: All options.
        alias: Name of the cluster in messages.

    Raises:
        UsageError: A property cannot be honoured, or ``kafka.bootstrap.servers`` is missing.
    """
    keys = {key.lower(): (value, 0) for key, value in given.items() if key.lower().startswith(CLIENT)}
    if CONFIGURED in keys:
        return Cluster(alias, FrozenMapping(_hidden(orjson.loads(keys[CONFIGURED][0]))))
    names = {key.removeprefix(CLIENT): key for key in keys}
    if not keys.get("kafka.bootstrap.servers", ("",))[0].strip():
        raise UsageError("no cluster is named", fix='set the option kafka.bootstrap.servers to "HOST:PORT"')
    found = PropertyKeys(keys)
    into: dict[str, Any] = {}
    ClientProperties(found, keep_secrets=True).convert("KAFKA", "kafka", names, into)
    for name, key in names.items():
        if refused := found.refused.get(key):
            raise UsageError(f"option {key}: {refused.reason}", fix="correct it")
        if key not in found.honoured:
            # librdkafka's own names
            into[name] = found.value(key)
    properties = _hidden(into)
    for name, value in properties.items():
        message, fix = property_fault(name, value)
        if message:
            raise UsageError(f"option kafka.{name}: {message}", fix=fix)
    if conflict := cluster_conflict(properties):
        name, message, fix = conflict
        raise UsageError(f"option kafka.{name}: {message}", fix=fix)
    return Cluster(alias, FrozenMapping(properties))


def _hidden(properties: Mapping[str, Any]) -> dict[str, str | Secret]:
    return {
        name: Secret(str(value)) if is_secret_key(name) else str(value) for name, value in properties.items()
    }


def _bound(options: Mapping[str, str], names: tuple[str, str, str], default: str) -> OffsetBound:
    """Returns the bound of the first of the options that is set, as Spark's connector does."""
    time, times, offsets = names
    if time.lower() in options:
        return OffsetBound(time, at=_required(options, time))
    if times.lower() in options:
        return OffsetBound(times, times=_per_partition(times, options[times.lower()], least=0))
    text = options.get(offsets.lower(), default).strip()
    if text.lower() in {"earliest", "latest"}:
        return OffsetBound(offsets, at=text.lower())
    return OffsetBound(offsets, offsets=_per_partition(offsets, text, least=EARLIEST))


def _check_bounds(start: OffsetBound, end: OffsetBound, *, streaming: bool) -> None:
    if not streaming and (start.at == "latest" or LATEST in (start.offsets or {}).values()):
        raise UsageError(
            f"option {start.option}: a batch query cannot begin at the end", fix="write earliest"
        )
    if end.at == "earliest" or EARLIEST in (end.offsets or {}).values():
        raise UsageError(f"option {end.option}: a query cannot end at the beginning", fix="write latest")


def _assigned(text: str) -> frozenset[tuple[str, int]]:
    example = '{"orders": [0, 1]}'
    parsed = _json("assign", text, example)
    found = set()
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(type(one) is int and one >= 0 for one in numbers):
            raise _wrong("assign", text, example)
        found |= {(topic, one) for one in numbers}
    if not found:
        raise _wrong("assign", text, example)
    return frozenset(found)


def _per_partition(option: str, text: str, *, least: int) -> dict[tuple[str, int], int]:
    example = '{"orders": {"0": 1000, "1": 998}}'
    found = {}
    for topic, inner in _json(option, text, example).items():
        if not isinstance(inner, dict):
            raise _wrong(option, text, example)
        for number, value in inner.items():
            if not number.isdecimal() or type(value) is not int or value < least:
                raise _wrong(option, text, example)
            found[topic, int(number)] = value
    return found


def _json(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise _wrong(option, text, example) from None
    if not isinstance(parsed, dict):
        raise _wrong(option, text, example)
    return parsed


def _parsed(name: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        value = parse(text.strip())
    except ValueError:
        value = 0
    if value <= 0:
        raise _wrong(name, text, "a number above 0")
    return value


def _required(options: Mapping[str, str], name: str) -> int:
    text = options[name.lower()].strip()
    if not text.isdecimal():
        raise _wrong(name, text, "milliseconds since 1970")
    return int(text)


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    return None if text is None else _parsed(name, text, int)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise _wrong(name, text, "true or false")
    return text == "true"


def _wrong(option: str, value: str, wanted: str) -> UsageError:
    return UsageError(f"option {option} has the value {value!r}", fix=f"write {wanted}")
