"""
Converts the options and client files of Kafka's MirrorMaker 1 and of Go MirrorMaker. Pure.

Sources: Apache Kafka 2.1, kafka/tools/MirrorMaker.scala and kafka/consumer/TopicFilter.scala; elodina/go_kafka_client,
mirrormaker/mirror_maker.go, mirror_maker.go and filter.go.

Both copy from the clusters of consumer files to the cluster of one producer file.  They differ in the filter: Kafka's
is a full match where a comma means "or"; Go's matches anywhere in the name, and a comma is a comma.  So a filter
that both would read differently needs the name of the program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

from eomirror.config.java_properties import decode_properties, parse_properties
from eomirror.convert.flat import FlatFile, GivenSetting
from eomirror.errors import ConfigError, Fault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eomirror.config.mm2_properties import Imported

__all__ = ["GO", "KAFKA", "ClientFile", "MirrorMakerOptions", "convert_mirrormaker"]

#: Kafka's MirrorMaker 1.
KAFKA = "mirrormaker1"
#: Go MirrorMaker.
GO = "go-mirrormaker"

_MOST_LANES = 256
# settings of the connection, for all clients of a cluster; the others are those of its consumer or its producer
_CONNECTION = re.compile(
    r"bootstrap\.servers|security\.protocol|(ssl|sasl)\..*|client\.(dns\.lookup|rack)|metadata\.max\.age\.ms"
    r"|(re|retry\.)?(connect\.)?backoff.*|connections\.max\.idle\.ms|(send|receive)\.buffer\.bytes"
)
# names of the Scala clients and of Go's, and today's
_OLD_NAMES = {
    "metadata.broker.list": "bootstrap.servers",
    "broker.list": "bootstrap.servers",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "send.buffer.bytes": "send.buffer.bytes",
}
_OLD_STARTS = {"smallest": "earliest", "largest": "latest"}
_ZOOKEEPER = (
    "it names ZooKeeper, and the mirror connects to brokers; add the line bootstrap.servers=HOST:PORT with the brokers "
    "of the same cluster"
)
_NOTES = (
    (
        r"group\.id|consumer\.id",
        (
            "the mirror uses no consumer group; to resume where this group stopped, start with `eomirror run "
            "--resume-at TOPIC-PARTITION=OFFSET`"
        ),
    ),
    (r"zookeeper\..*", "the mirror does not use ZooKeeper"),
    (r"exclude\.internal\.topics", "internal topics are never mirrored"),
    (r"partition\.assignment\.strategy|partitioner\.class", "records keep their partition"),
    (r"(key|value)\.(de)?serializer.*", "records are copied byte by byte"),
    (
        (
            r"client\.id|producer\.type|retries|max\.in\.flight.*|.*timeout.*|.*poll\..*|max\.block\.ms|heartbeat\..*"
            r"|buffer\.memory|queue(d)?\..*|num\..*|offset(s)?\..*|auto\.commit.*|rebalance\..*|fetch\..*|refresh\..*"
            r"|worker\..*|max\.worker\..*|message\.send.*|batch\.num.*|metric.*|consumer\..*|requeue\..*|send\..*|socket\..*"
            r"|deployment\..*|barrier\..*|routine\..*|required\.acks|flush\..*|retry\..*"
        ),
        "the mirror sets it itself",
    ),
)
# Kafka's program names no partition, so the producer's default partitioner chooses; Go's uses HashPartitioner
_SPREAD = {
    KAFKA: (
        "MirrorMaker chooses it by the key (murmur2); the mirror keeps that of the source, which is the same if its "
        "producers choose it so and both topics have as many partitions; otherwise set `partitions: keyed` and "
        "`origin_header: true`"
    ),
    GO: (
        "without it Go MirrorMaker chooses the partition by the key (FNV-1a); the mirror keeps that of the source; to "
        "have equal keys of several sources in one partition, add --preserve.partitions=false"
    ),
}
_KEYED = (
    "records are placed by key with murmur2, as by Java's producers; Go MirrorMaker used FNV-1a, so equal keys stay "
    "together, but in another partition than before"
)
_INTERCEPTORS = "it runs foreign code on every record, and records are mirrored unchanged"


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A property file of a client. Hidden from repr: it may hold secrets."""

    name: str
    data: bytes = field(repr=False)

    @property
    def alias(self) -> str:
        """Alias of its cluster, from the name of the file; has no dot."""
        stem = PurePath(self.name).name.split(".")[0]
        return re.sub(r"[^A-Za-z0-9_-]", "_", stem) or "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorMakerOptions:
    """
    Options of the command line, by their names there; None or empty if not given.

    Attributes:
        program: `KAFKA`, `GO`, or empty if the user does not say which.
        consumers: Files of ``--consumer.config``.
        producer: File of ``--producer.config``.
        whitelist: Value of ``--whitelist``.
        blacklist: Value of ``--blacklist``.
        include: Value of ``--include``, the later name of ``--whitelist`` in Kafka.
        others: Values of the options that only one of the programs has, or that tune it.
    """

    program: str = ""
    consumers: tuple[ClientFile, ...] = ()
    producer: ClientFile | None = None
    whitelist: str | None = None
    blacklist: str | None = None
    include: str | None = None
    others: Mapping[str, str] = field(default_factory=dict)


#: Options that only Kafka's program has.
ONLY_KAFKA = (
    "abort.on.send.failure",
    "message.handler",
    "message.handler.args",
    "consumer.rebalance.listener",
    "rebalance.listener.args",
    "offset.commit.interval.ms",
    "new.consumer",
)
#: Options that only Go's program has.
ONLY_GO = (
    "num.producers",
    "preserve.partitions",
    "preserve.order",
    "prefix",
    "queue.size",
    "max.procs",
    "schema.registry.url",
)
_TUNING = {
    "num.streams": "a lane reads all of its partitions at once; set `lanes` if one link should use more cores",
    "queue.size": "a lane bounds what it has read by memory, not by a number of records",
    "max.procs": "the number of lanes and Spark's cores bound it",
    "offset.commit.interval.ms": "positions are committed with the records, every `commit_interval`",
    "new.consumer": "there is only one consumer",
    "consumer.rebalance.listener": "the mirror uses no consumer group",
    "rebalance.listener.args": "the mirror uses no consumer group",
}
# options with another value than the mirror's, and the reason
_REFUSED = {
    "num.producers": f"it becomes `lanes`, a number from 1 to {_MOST_LANES}",
    "prefix": "names of topics have letters, digits, '.', '_' and '-' only",
    "preserve.partitions": "it is true or false",
    "abort.on.send.failure": "the mirror never skips a record that was not written; see `on_refused`",
    "schema.registry.url": "records are copied byte by byte, so schema ids stay those of the source's registry",
}


def convert_mirrormaker(options: MirrorMakerOptions, *, keep_secrets: bool = False) -> Imported:
    """
    Converts the options of a command line of MirrorMaker 1 or Go MirrorMaker.

    Raises:
        UsageError: The options contradict each other, or a filter needs the name of the program.
        ConfigError: A file is no property file of a client.
    """
    if not options.consumers or options.producer is None:
        missing = "--producer.config" if options.consumers else "--consumer.config"
        raise UsageError(
            f"{missing} is missing", fix=f"add {missing} FILE, with the properties of that cluster's client"
        )
    filters = [each for each in ("whitelist", "blacklist", "include") if getattr(options, each) is not None]
    if len(filters) != 1:
        given = " and ".join(f"--{each}" for each in filters) or "neither"
        raise UsageError(
            f"exactly one of --whitelist and --blacklist is required, and {given} is given",
            fix="write one of them; --include is another name of --whitelist",
        )
    return _OptionsImport(options, filters[0]).convert(keep_secrets=keep_secrets)


class _OptionsImport:
    def __init__(self, options: MirrorMakerOptions, named: str) -> None:
        self._options = options
        self._filter = GivenSetting(f"--{named}", str(getattr(options, named)))
        self._excludes = named == "blacklist"
        self._flat = FlatFile()
        self._program = self._decided(named)

    def _decided(self, named: str) -> str:
        """Returns the program that these options belong to."""
        given = self._options.others
        kafka = [
            *(f"--{each}" for each in ONLY_KAFKA if each in given),
            *(["--include"] if named == "include" else []),
        ]
        go = [f"--{each}" for each in ONLY_GO if each in given]
        if kafka and go:
            raise UsageError(
                f"{kafka[0]} is an option of Kafka's MirrorMaker, and {go[0]} one of Go MirrorMaker",
                fix="remove one of them",
            )
        found = self._options.program or (
            KAFKA if kafka else GO if go or len(self._options.consumers) > 1 else ""
        )
        if not found:
            if kafkas_patterns(self._filter.value) != gos_patterns(self._filter.value):
                raise UsageError(
                    f"{self._filter.key} means other topics in each program: Kafka's MirrorMaker compares the whole "
                    "name, Go MirrorMaker any part of it",
                    fix=f"add --from {KAFKA} or --from {GO}",
                )
            found = KAFKA
        return found

    def convert(self, *, keep_secrets: bool) -> Imported:
        """Returns the configuration."""
        options = self._options
        producer = options.producer
        assert producer is not None  # noqa: S101  checked by the caller
        files = [*options.consumers, producer]
        aliases = [each.alias for each in files]
        if len({*aliases}) < len(aliases):
            again = next(each for each in aliases if aliases.count(each) > 1)
            raise UsageError(
                f"two files give the alias {again}",
                fix="rename one: the name of a file becomes its cluster's alias",
            )
        starts = [self._client(each, "consumer") for each in options.consumers]
        self._client(producer, "producer")
        self._flat.put("clusters", GivenSetting("", ", ".join(aliases)))
        for each in options.consumers:
            self._flat.put(f"{each.alias}->{producer.alias}.enabled", GivenSetting("", "true"))
        # neither program copies ACLs
        self._flat.put("sync.topic.acls.enabled", GivenSetting("", "false"))
        self._others()
        found = self._flat.convert(keep_secrets=keep_secrets)
        topics, exclude = self._filters()
        for link, start in zip(found.settings["links"], starts, strict=True):
            ends = {"source": link["source"], "target": link["target"]}
            link.clear()
            link.update({**ends, "topics": list(topics), "exclude": list(exclude)})
            # neither program follows groups or writes topics of its own
            link.update({"groups": [], "naming": self._naming(), "start": start})
            link.update({"heartbeats": "off", "offset_syncs": "off"})
            # neither program touches the settings of a topic that exists
            link["sync_topic_configs"] = False
            if len(starts) > 1:
                link["aggregate"] = True
            if self._keyed():
                # only the header tells where a record was
                link.update({"partitions": "keyed", "origin_header": True})
            if (lanes := self._lanes()) is not None:
                link["lanes"] = lanes
        return found

    # -- filters and names -----------------------------------------------------------------------

    def _filters(self) -> tuple[list[str], list[str]]:
        patterns = (kafkas_patterns if self._program == KAFKA else gos_patterns)(self._filter.value)
        return ([".*"], patterns) if self._excludes else (patterns, [])

    def _naming(self) -> object:
        prefix = self._options.others.get("prefix", "")
        return {"pattern": prefix + "{topic}"} if prefix else "identity"

    def _lanes(self) -> int | None:
        given = self._options.others.get("num.producers", "")
        return int(given) if given.isascii() and given.isdigit() and 1 <= int(given) <= _MOST_LANES else None

    def _keyed(self) -> bool:
        return self._options.others.get("preserve.partitions", "true").lower() == "false"

    # -- options ---------------------------------------------------------------------------------

    def _others(self) -> None:
        flat = self._flat
        if self._program == GO and "," in self._filter.value:
            flat.refuse(
                self._filter,
                "Go MirrorMaker takes the comma as part of the name; write a|b for several topics",
            )
        else:
            flat.take(self._filter, "links[].exclude" if self._excludes else "links[].topics")
        for name, value in self._options.others.items():
            self._option(name, GivenSetting(f"--{name}", value))
        self._merged()

    def _option(self, name: str, setting: GivenSetting) -> None:
        flat, value = self._flat, setting.value
        if name in _TUNING:
            flat.note(setting, _TUNING[name])
        elif place := self._place(name, value):
            flat.take(setting, place)
            if name == "preserve.partitions" and self._keyed():
                flat.note(setting, _KEYED)
        elif name == "preserve.order":
            flat.note(setting, "the order of each partition is always kept")
        else:
            flat.refuse(setting, _REFUSED.get(name, _INTERCEPTORS))

    def _place(self, name: str, value: str) -> str:
        """Returns where an option is carried over; empty if it is not."""
        if name == "num.producers" and self._lanes() is not None:
            return "links[].lanes"
        if name == "prefix" and re.fullmatch(r"[A-Za-z0-9._-]*", value):
            return "links[].naming"
        if name == "preserve.partitions" and self._keyed():
            return "links[].partitions"
        always = name in ("preserve.partitions", "preserve.order", "abort.on.send.failure")
        return "always" if always and value.lower() == "true" else ""

    def _merged(self) -> None:
        """Says that topics of several sources meet in one topic."""
        sources = self._options.consumers
        if len(sources) > 1:
            names = ", ".join(each.alias for each in sources)
            self._flat.note(
                GivenSetting("--consumer.config", ""),
                f"topics of equal names on {names} are merged in one topic; for a topic each, use `naming: prefix`",
            )
        if "preserve.partitions" not in self._options.others:
            name = "--preserve.partitions" if self._program == GO else "partition of a record"
            self._flat.note(GivenSetting(name, ""), _SPREAD[self._program])

    # -- clients ---------------------------------------------------------------------------------

    def _client(self, file: ClientFile, role: str) -> str:
        """Adds the properties of a client file; returns where its link starts."""
        given = dict(self._properties(file))
        start = "latest" if self._program == KAFKA else "earliest"
        if "auto.offset.reset" not in given and role == "consumer" and self._program == KAFKA:
            self._flat.note(
                GivenSetting(f"{file.name}: auto.offset.reset", ""),
                "it is missing, so a group without offsets starts at the end; for all records write `start: earliest`",
            )
        if "bootstrap.servers" not in given:
            if "zookeeper.connect" in given:
                self._flat.refuse(given.pop("zookeeper.connect"), _ZOOKEEPER)
            else:
                self._flat.refuse(
                    GivenSetting(f"{file.name}: bootstrap.servers", ""),
                    "it is missing; write HOST:PORT of the brokers",
                )
        for name, setting in given.items():
            if name == "auto.offset.reset":
                start = self._start(setting)
            elif name == "interceptor.classes":
                self._flat.refuse(setting, _INTERCEPTORS)
            elif name in (
                "acks",
                "enable.idempotence",
                "isolation.level",
                "enable.auto.commit",
                "transactional.id",
            ):
                self._flat.note(setting, "exactly-once is always on")
            elif reason := _note(name):
                self._flat.note(setting, reason)
            else:
                scope = "" if _CONNECTION.fullmatch(name) else f"{role}."
                self._flat.put(f"{file.alias}.{scope}{name}", setting)
        return start

    def _start(self, setting: GivenSetting) -> str:
        value = _OLD_STARTS.get(setting.value.lower(), setting.value.lower())
        if self._program == GO:
            # mirror_maker.go sets SmallestOffset, whatever the file says
            self._flat.note(setting, "Go MirrorMaker ignores it and starts at the earliest record")
            return "earliest"
        if value in ("earliest", "latest"):
            self._flat.take(setting, "links[].start")
            return value
        self._flat.refuse(setting, "a link starts at `earliest` or `latest`")
        return "latest"

    def _properties(self, file: ClientFile) -> Iterator[tuple[str, GivenSetting]]:
        """Yields today's names and the settings of a client file."""
        properties = parse_properties(decode_properties(file.data))
        if not any("." in name for name in properties):
            raise ConfigError(
                [
                    Fault(
                        "file",
                        "it is no property file of a Kafka client",
                        "write lines such as bootstrap.servers=HOST:PORT",
                    )
                ],
                source=file.name,
            )
        if "clusters" in properties:
            raise ConfigError(
                [
                    Fault(
                        "file", "it is a file of MirrorMaker 2", f"eomirror import {PurePath(file.name).name}"
                    )
                ],
                source=file.name,
            )
        for name, (value, line) in properties.items():
            today = _OLD_NAMES.get(name, name)
            if today != name and today in properties:
                continue
            yield today, GivenSetting(f"{PurePath(file.name).name}: {name}", value, line)


def _note(name: str) -> str:
    return next(
        (reason for pattern, reason in _NOTES if re.fullmatch(pattern, name) and name not in _KEPT), ""
    )


# tuning that has a counterpart, although a pattern of `_NOTES` covers it
_KEPT = frozenset(
    {"fetch.max.bytes", "fetch.min.bytes", "fetch.max.wait.ms", "send.buffer.bytes", "retry.backoff.ms"}
)


def kafkas_patterns(text: str) -> list[str]:
    """Returns the full-match expressions of Kafka's filter: TopicFilter.scala takes a comma as "or"."""
    pattern = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    return [_whole(each) for each in _alternatives(pattern)]


def _whole(pattern: str) -> str:
    """Returns a full-match expression without anchors that mean nothing there."""
    ends = pattern.endswith("$") and not pattern.endswith(r"\$")
    return pattern.removeprefix("^").removesuffix("$" if ends else "")


def gos_patterns(text: str) -> list[str]:
    """Returns full-match expressions for Go's filter, which matches anywhere in the name."""
    return [_anywhere(each) for each in _alternatives(text)]


def _anywhere(pattern: str) -> str:
    if pattern == ".*":
        return pattern
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith(r"\$")
    inner = pattern[1 if begins else 0 : len(pattern) - 1 if ends else None]
    if "|" in inner and not re.fullmatch(r"\([^()]*\)", inner):
        # an anchor applies to one alternative only
        return f".*({pattern}).*"
    head = "" if begins or inner.startswith(".*") else ".*"
    tail = "" if ends or inner.endswith(".*") else ".*"
    return f"{head}{inner}{tail}"


def _alternatives(pattern: str) -> list[str]:
    """Splits a pattern at each `|` outside of groups and classes."""
    parts, depth, start, index = [], 0, 0, 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "|" and depth == 0:
            parts.append(pattern[start:index])
            start = index + 1
        index += 1
    return [each for each in [*parts, pattern[start:]] if each]
