"""What is refused, where it says so, and what it says would be right."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from eomirror.config import inspect_config, load_config
from eomirror.errors import ConfigError, UsageError

CLUSTERS = """
    clusters:
      east: {bootstrap.servers: "127.0.0.1:19092"}
      west: {bootstrap.servers: "127.0.0.1:29092"}
"""


def write(tmp_path: Path, text: str | bytes) -> Path:
    """The text as a file."""
    path = tmp_path / "mirror.yaml"
    path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
    return path


def faults_of(path: Path, **given: object) -> list[tuple[str, str, str]]:
    """Path, message and fix of every fault."""
    found = inspect_config(path, **given)  # type: ignore[arg-type]
    assert (found.config is None) == bool(found.faults)
    return [(fault.path, fault.message, fault.fix) for fault in found.faults]


def link(settings: str) -> str:
    """A file with one link that has these settings (flow style)."""
    return f"{CLUSTERS}    links:\n      - {{source: east, target: west, {settings}}}\n"


# settings of a link, path below links[0], part of the message or fix
LINK_CASES = [
    ("topics: []", "topics", "matches nothing"),
    ("exclude: [x]", "topics", "is missing"),
    ("topics: [a], topic: b", "topic", "did you mean topics"),
    ("topics: [a], lane: 3", "lane", "did you mean lanes"),
    ("topics: [a], zzz: x", "zzz", "known keys"),
    ("topics: {a: b}", "topics", "this is a mapping"),
    ("topics: [[a]]", "topics[0]", "this is a list"),
    ("topics: [a, '']", "topics[1]", "matches nothing"),
    ("topics: ['(a']", "topics[0]", "not a regular expression"),
    ("topics: ['*.orders']", "topics[0]", "not file patterns"),
    ("topics: ['(?!x).*']", "topics[0]", "use `exclude`"),
    ("topics: 'a,b'", "topics", "write a list"),
    ("topics: [a], exclude: ['[']", "exclude[0]", "not a regular expression"),
    ("topics: [a], lanes: 0", "lanes", "from 1 to 256"),
    ("topics: [a], lanes: 257", "lanes", "from 1 to 256"),
    ("topics: [a], lanes: many", "lanes", "whole number"),
    ("topics: [a], lanes: 1.5", "lanes", "whole number"),
    ("topics: [a], lanes:", "lanes", "this is nothing"),
    ("topics: [a], plane: rust", "plane", "auto, native, client"),
    ("topics: [a], on_gap: skip", "on_gap", "stop, accept"),
    ("topics: [a], on_refused: skip", "on_refused", "stop, dead-letter, raise-limit"),
    ("topics: [a], raise_limit_to: 2000000", "raise_limit_to", "raises no limit"),
    (
        "topics: [a], on_refused: dead-letter, raise_limit_to: 9",
        "raise_limit_to",
        "on_refused is dead-letter",
    ),
    ("topics: [a], on_refused: raise-limit, raise_limit_to: 0", "raise_limit_to", "from 1 to"),
    ("topics: [a], on_refused: raise-limit, exclude_configs: [max.*]", "on_refused", "leaves to the target"),
    ("topics: [a], group_deletions: follow", "group_deletions", "keep, delete"),
    ("topics: [a], group_deletions: delete", "group_deletions", "sync_group_offsets is false"),
    ("topics: [a], schemas: true", "schemas", "names no registry"),
    ("topics: [a], schemas: {source: 'http://a'}", "schemas", "`target` is missing"),
    ("topics: [a], schemas: {source: 'http://a', target: 'http://b', x: 1}", "schemas.x", "unknown key"),
    ("topics: [a], schemas: {source: 'ftp://a', target: 'http://b'}", "schemas.source", "no address"),
    (
        "topics: [a], schemas: {source: 'http://u:p@a', target: 'http://b'}",
        "schemas.source",
        "contains a login",
    ),
    ("topics: [a], schemas: {source: 'http://a', target: 'http://a'}", "schemas", "the same registry"),
    (
        "topics: [a], schemas: {source: 'http://a', target: 'http://b/contexts/.east'}",
        "schemas.target",
        "more than a registry",
    ),
    (
        "topics: [a], schemas: {source: 'http://a?token=x', target: 'http://b'}",
        "schemas.source",
        "more than a registry",
    ),
    (
        "topics: [a], schemas: {source: {url: 'http://a', bearer.auth.token: 'é'}, target: 'http://b'}",
        "schemas.source.bearer.auth.token",
        "no header of HTTP",
    ),
    (
        "topics: [a], schemas: {source: 'http://a', target: 'http://b', context: 'a:b'}",
        "schemas.context",
        "not the name of a context",
    ),
    (
        "topics: [a], schemas: {source: {url: 'http://a', basic.auth.user.info: x}, target: 'http://b'}",
        "schemas.source",
        "has no colon",
    ),
    (
        (
            "topics: [a], schemas: {source: {url: 'http://a', "
            "bearer.auth.client.id: x, bearer.auth.client.secret: y}, target: 'http://b'}"
        ),
        "schemas.source",
        "issuer.endpoint.url is missing",
    ),
    (
        "topics: [a], schemas: {source: {url: 'http://a', ssl.key.location: /x}, target: 'http://b'}",
        "schemas.source",
        "belong together",
    ),
    (
        "topics: [a], schemas: {source: {url: 'h://a'}, target: 'http://b'}",
        "schemas.source",
        "no address",
    ),
    (
        "topics: [a], schemas: {source: {url: 'http://a', bearer.auth.token: '${env:NOT_SET}'}, target: 'http://b'}",
        "schemas.source.bearer.auth.token",
        "NOT_SET is not set",
    ),
    (
        "topics: [a], schemas: {source: {url: 'http://a', acks: all}, target: 'http://b'}",
        "schemas.source.acks",
        "known",
    ),
    (
        "topics: [a], schemas: {source: 'http://a', target: 'http://b', interval: 0ms}",
        "schemas.interval",
        "range",
    ),
    ("topics: [a], provenance: yes", "provenance", "auto, on, off"),
    ("topics: [a], commit_interval: 100", "commit_interval", "has no unit"),
    ("topics: [a], commit_interval: 1 day", "commit_interval", "is not a duration"),
    ("topics: [a], commit_interval: -1s", "commit_interval", "is not a duration"),
    ("topics: [a], commit_interval: 0ms", "commit_interval", "out of range"),
    ("topics: [a], commit_interval: 9223372036854775808ms", "commit_interval", "is not a duration"),
    ("topics: [a], commit_interval: 4s", "commit_interval", "at most 3750ms"),
    ("topics: [a], transaction_timeout: 300ms", "transaction_timeout", "out of range"),
    ("topics: [a], commit_interval_min: 200ms", "commit_interval_min", "at most 100ms"),
    ("topics: [a], epoch: 4s", "epoch", "out of range"),
    ("topics: [a], start: yesterday", "start", "is not a valid time"),
    ("topics: [a], start: '2026-01-31T12:00:00'", "start", "append Z"),
    ("topics: [a], start: 0", "start", "is not a valid time"),
    ("topics: [a], start: 1769860800", "start", "would be 1970-01-21"),
    ("topics: [a], start: 20260131", "start", "would be 1970-01-01"),
    ("topics: [a], forward: all", "forward", "auto, local"),
    ("topics: [a], forward: []", "forward", "forwards nothing"),
    ("topics: [a], forward: [north]", "forward", "no cluster 'north'"),
    ("topics: [a], naming: suffix", "naming", "prefix, identity"),
    ("topics: [a], naming: [prefix]", "naming", "this is a list"),
    ("topics: [a], naming: {pattern: all}", "naming", "without {topic}"),
    ("topics: [a], naming: {pattern: '{topic}_{cluster}'}", "naming", "unknown placeholder"),
    ("topics: [a], naming: {pattern: '{topic} copy'}", "naming", "' ' is not allowed"),
    ("topics: [a], naming: {match: '(.*', to: $1}", "naming", "regular expression"),
    ("topics: [a], naming: {match: '(.*)_R', to: $2}", "naming", "group 2"),
    ("topics: [a], naming: {match: '(.*)_R', to: all}", "naming", "refers to no group"),
    ("topics: [a], naming: {match: a}", "naming", "not a naming policy"),
    ("topics: [a], naming: {map: {a: 'b c'}}", "naming", "not a topic name"),
    ("topics: [a], naming: {map: {a: x, b: x}}", "naming", "two topics would become x"),
    ("topics: [a], name: a.b", "name", "cannot be part of a topic"),
    ("topics: [a], name: east->north", "name", "cannot be part of a topic"),
    ("topics: [a], name: '../../etc'", "name", "cannot be part of a topic"),
    (f"topics: [a], name: {'n' * 230}", "name", "shorten"),
    ("topics: [a], replication_factor: 0", "replication_factor", "from 1 to 100"),
    ("topics: ['${env:TOPIC}']", "topics", "references are allowed only under"),
    ("topics: [a], name: '${env:NAME}'", "name", "references are allowed only under"),
    ("topics: [a], on_gap: '${file:/etc/passwd}'", "on_gap", "references are allowed only under"),
    ("topics: [a], topics: [b]", "", "duplicate key"),
    ("topics: [a], provenance: off, forward: local", "forward", "provenance: off"),
]


@pytest.mark.parametrize(("settings", "place", "text"), LINK_CASES)
def test_a_wrong_setting_of_a_link_is_named_with_what_would_be_right(
    tmp_path: Path, settings: str, place: str, text: str
) -> None:
    """Every fault names its path and tells what would be right; one mistake makes one fault."""
    found = faults_of(write(tmp_path, link(settings)))
    assert len(found) == 1, found
    path, message, fix = found[0]
    assert path == (f"links[0].{place}" if place else "file")
    assert text in f"{message} {fix}"
    assert fix


# properties of a cluster, path below clusters.east, part of the message or fix
CLUSTER_CASES = [
    ("enable.idempotence: false", "enable.idempotence", "EO-12"),
    ("acks: 1", "acks", "the mirror sets all"),
    ("request.required.acks: 0", "request.required.acks", "EO-12"),
    ("isolation.level: read_uncommitted", "isolation.level", "EO-12"),
    ("enable.auto.commit: true", "enable.auto.commit", "EO-12"),
    ("enable.auto.offset.store: true", "enable.auto.offset.store", "EO-12"),
    ("check.crcs: false", "check.crcs", "EO-12"),
    ("auto.offset.reset: earliest", "auto.offset.reset", "EO-12"),
    ("auto.offset.reset: latest", "auto.offset.reset", "start: latest"),
    ("enable.partition.eof: no", "enable.partition.eof", "EO-12"),
    ("allow.auto.create.topics: true", "allow.auto.create.topics", "creates topics itself"),
    ("transactional.id: x", "transactional.id", "fences"),
    ("transaction.timeout.ms: 5000", "transaction.timeout.ms", "`transaction_timeout` of the link"),
    ("group.id: x", "group.id", "no consumer group"),
    ("group.instance.id: x", "group.instance.id", "no consumer group"),
    ("client.id: x", "client.id", "eomirror.LINK.ROLE"),
    ("plugin.library.paths: x.so", "plugin.library.paths", "foreign code"),
    ("statistics.interval.ms: 1000", "statistics.interval.ms", "metrics"),
    ("stats_cb: f", "stats_cb", "only programs can set it"),
    ("debug: 'broker,security'", "debug", "credentials"),
    ("debug: all", "debug", "credentials"),
    ("debug: 'broker, SECURITY'", "debug", "credentials"),
    ("debug: '+all'", "debug", "credentials"),
    ("sasl.jaas.config: x", "sasl.jaas.config", "sasl.username"),
    ("ssl.truststore.location: x", "ssl.truststore.location", "ssl.ca.location"),
    ("metadata.broker.list: 'x:1'", "metadata.broker.list", "bootstrap.servers"),
    ("linger.ms:", "linger.ms", "this is nothing"),
    ("linger.ms: [1]", "linger.ms", "this is a list"),
    ("consumer: 1", "consumer", "this is a single value"),
    ("producer: {acks: 0}", "producer.acks", "EO-12"),
    ("consumer: {isolation.level: read_uncommitted}", "consumer.isolation.level", "EO-12"),
    ("sasl.password: '${env:UNSET}'", "sasl.password", "UNSET is not set"),
    ("sasl.password: '${env:a b}'", "sasl.password", "not a name of an environment variable"),
    ("sasl.password: '${file:secret}'", "sasl.password", "absolute path"),
    ("sasl.password: '${file:/tmp/../etc/passwd}'", "sasl.password", "absolute path"),
    ("sasl.password: '${file:/no/such/file}'", "sasl.password", "No such file"),
    ("sasl.password: '${file:/dev}'", "sasl.password", "cannot be read"),
    ("sasl.password: '${file:/dev/null}'", "sasl.password", "not a regular file"),
    ("sasl.username: '${env:NUL}'", "sasl.username", "NUL"),
]


@pytest.mark.parametrize(("properties", "place", "text"), CLUSTER_CASES)
def test_a_wrong_client_property_is_named_with_what_would_be_right(
    tmp_path: Path, properties: str, place: str, text: str
) -> None:
    """What is ours cannot be set, and what cannot be resolved is refused, each at its path."""
    file = f"""
    clusters:
      east: {{bootstrap.servers: "127.0.0.1:19092", {properties}}}
      west: {{bootstrap.servers: "127.0.0.1:29092"}}
    links: [{{source: east, target: west, topics: [a]}}]
    """
    found = faults_of(write(tmp_path, file), environ={"NUL": "a\0b"})
    assert len(found) == 1, found
    path, message, fix = found[0]
    assert path == f"clusters.east.{place}"
    assert text in f"{message} {fix}"
    assert fix


# whole files, path of the fault, part of the message or fix
FILE_CASES: list[tuple[str | bytes, str, str]] = [
    ("", "clusters", "is missing"),
    ("- a\n", "file", "this is a list"),
    (b"\xff\xfea\x00", "file", "UTF-16"),
    (b"a: \xff", "file", "is not UTF-8"),
    (b"a: b\x00", "file", "U+0000"),
    (b"a: " + b"x" * (1 << 20), "file", "below 1 MiB"),
    ("a: [\n", "file", "close each [ and {"),
    ("a: b: c\n", "file", "a key is not allowed here"),
    ("a: 1\n---\na: 2\n", "file", "more than one document"),
    ("? [a]\n: b\n", "file", "a key must be a single value"),
    ("a: " + "[" * 3000 + "]" * 3000, "file", "nested deeper"),
    ("a: *x\n", "file", "no anchor"),
    ('a: !!python/object/apply:os.system ["true"]\n', "file", "tags"),
    ("a: !secret b\n", "file", "tags"),
    (CLUSTERS, "links", "is missing"),
    (CLUSTERS + "    links: []\n", "links", "is empty"),
    (CLUSTERS + "    links: {source: east}\n", "links", "the section is a mapping"),
    (CLUSTERS + "    links: [east]\n", "links[0]", "this is a single value"),
    (CLUSTERS + "    links: [{source: east, topics: [a]}]\n", "links[0].target", "is missing"),
    (CLUSTERS + "    links: [{source: east, target: north, topics: [a]}]\n", "links[0].target", "east, west"),
    (
        CLUSTERS + "    links: [{source: east, target: east, topics: [a]}]\n",
        "links[0].target",
        "same cluster",
    ),
    (link("topics: [a]") + "    default: {lanes: 3}\n", "default", "did you mean defaults"),
    (link("topics: [a]") + "    lanes: 3\n", "lanes", "under `defaults`"),
    (link("topics: [a]") + "    defaults: {name: x}\n", "defaults.name", "unknown key"),
    (link("topics: [a]") + "    defaults: {lanes: 0}\n", "defaults.lanes", "from 1 to 256"),
    (link("topics: [a]") + "    defaults: [1]\n", "defaults", "this is a list"),
    (link("topics: [a]") + "    spark: [1]\n", "spark", "this is a list"),
    (link("topics: [a]") + "    spark: {master: x}\n", "spark.master", "did you mean spark.master"),
    (
        link("topics: [a]") + "      - {source: east, target: west, topics: [b]}\n",
        "links[1].name",
        "links[0] has the same name",
    ),
    (
        link("topics: [a]") + "      - {source: west, target: east, name: east_west, topics: [b]}\n",
        "links[1].name",
        "would differ only in",
    ),
    ("clusters: []\nlinks: [{source: a, target: b, topics: [a]}]\n", "clusters", "is a list"),
    (
        link("topics: [a]").replace("east:", "ea.st:").replace("source: east", "source: west, name: x"),
        "*",
        "topic",
    ),
    (
        link("topics: [a]").replace("127.0.0.1:19092", "127.0.0.1"),
        "clusters.east.bootstrap.servers",
        "HOST:PORT",
    ),
    (link("topics: [a]").replace("127.0.0.1:19092", "h:0"), "clusters.east.bootstrap.servers", "HOST:PORT"),
    (
        link("topics: [a]").replace("127.0.0.1:19092", "h:99999"),
        "clusters.east.bootstrap.servers",
        "HOST:PORT",
    ),
    (
        link("topics: [a]").replace('bootstrap.servers: "127.0.0.1:19092"', ""),
        "clusters.east.bootstrap.servers",
        "missing",
    ),
    (link("topics: [a]").replace("east", "eomirror"), "clusters.eomirror", "reserved"),
    (link("topics: [a]").replace("east", "\u0435ast"), "*", "cannot be part of a topic"),
]


@pytest.mark.parametrize(("text", "place", "part"), FILE_CASES)
def test_a_wrong_file_is_refused_at_the_right_place(
    tmp_path: Path, text: str | bytes, place: str, part: str
) -> None:
    """Broken, hostile and half-finished files end in a fault with a place, never in a traceback."""
    found = faults_of(write(tmp_path, text))
    assert any(place in (path, "*") and part in f"{message} {fix}" for path, message, fix in found), found


def test_all_faults_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    """One run tells everything, in the order of the file."""
    path = write(
        tmp_path,
        """\
        clusters:
          east: {bootstrap.servers: "127.0.0.1:19092", acks: 1}
          west: {bootstrap.servers: "127.0.0.1:29092"}
        links:
          - source: east
            target: nowhere
            topics: ["(", ok]
            lanes: 0
        defaults:
          epok: 30s
        """,
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert [(fault.path, fault.line) for fault in caught.value.faults] == [
        ("clusters.east.acks", 2),
        ("links[0].target", 6),
        ("links[0].topics[0]", 7),
        ("links[0].lanes", 8),
        ("defaults.epok", 10),
    ]
    assert caught.value.exit_code == 78
    assert str(path) in str(caught.value)


def test_a_missing_file_is_a_fault() -> None:
    """A path that leads nowhere is answered like any other fault."""
    assert "cannot be read" in faults_of(Path("/no/such/mirror.yaml"))[0][1]


@pytest.mark.parametrize(
    "override",
    [
        "lanes",
        "=3",
        "links[4].lanes=1",
        "links.lanes=1",
        "links[0].topics.x=1",
        "a..b=1",
        "links[0].topics=[",
        "links[0].topics=*a",
    ],
)
def test_an_override_that_is_not_understood_is_a_usage_error(tmp_path: Path, override: str) -> None:
    """A wrong command line is no fault of the file: exit 2."""
    with pytest.raises(UsageError) as caught:
        load_config(write(tmp_path, link("topics: [a]")), overrides=[override])
    assert caught.value.exit_code == 2
    assert caught.value.fix


def test_values_in_faults_are_short_and_harmless(tmp_path: Path) -> None:
    """Control characters, colours and long texts of a file do not reach the terminal."""
    path = write(
        tmp_path, link(r'topics: [a], plane: "\e[31mred", on_gap: ' + "x" * 10_000 + r', "\e[2J": 1')
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("value", [{1: "x"}, {"clusters": object()}, {"clusters": {"a": {"x": b"y"}}}])
def test_plain_values_of_foreign_types_are_refused(value: dict[str, object]) -> None:
    """A mapping given by a program is checked like a file."""
    with pytest.raises(ConfigError):
        load_config(value)
