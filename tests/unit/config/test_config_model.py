"""What a good file becomes: defaults, overrides, client dictionaries, published documents."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Config, Secret, load_config, masked
from eomirror.config.clients import (
    CONSUMER_ONLY,
    PRODUCER_ONLY,
    admin_properties,
    consumer_properties,
    producer_properties,
)
from eomirror.config.schema import json_schema, reference_page
from eomirror.errors import StateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[3]


def configuration(*overrides: str, environ: Mapping[str, str] | None = None, **link: object) -> Config:
    """Two clusters, one link, and changes to it."""
    return load_config(
        {
            "clusters": {"east": {"bootstrap.servers": "h:1"}, "west": {"bootstrap.servers": "h:2"}},
            "links": [{"source": "east", "target": "west", "topics": ["orders", "pay.*"], **link}],
        },
        overrides=overrides,
        environ=environ or {},
    )


def test_defaults_are_those_of_the_documentation() -> None:
    """A link of three lines is complete."""
    link = configuration().links[0]
    assert (link.name, link.state_name) == ("east->west", "east.west")
    assert (link.lanes, link.plane, link.on_gap, link.start) == (2, "auto", "stop", "earliest")
    assert (link.commit_interval, link.commit_interval_min, link.epoch) == (0.1, 0.003, 300.0)
    assert (link.transaction_timeout, link.replication_factor, link.groups) == (15.0, None, (".*",))
    assert link.target_topic("orders") == "east.orders"


def test_a_link_wins_over_defaults_and_an_override_over_both() -> None:
    """The nearest wins; the command line is nearest."""
    config = load_config(
        {
            "clusters": {"a": {"bootstrap.servers": "h:1"}, "b": {"bootstrap.servers": "h:2"}},
            "defaults": {"lanes": 3, "epoch": "1m", "topics": ["x"]},
            "links": [{"source": "a", "target": "b", "lanes": 4}],
        },
        overrides=["links[0].lanes=5", "defaults.plane=client", "spark.executor.memory=2g"],
    )
    link = config.links[0]
    assert (link.lanes, link.epoch, link.plane, link.topics) == (5, 60.0, "client", ("x",))
    assert dict(config.spark) == {"spark.executor.memory": "2g"}


@pytest.mark.parametrize(
    ("override", "attribute", "value"),
    [
        ("links[0].topics=[a, 'b.*']", "topics", ("a", "b.*")),
        ("links[0].topics[1]=c", "topics", ("orders", "c")),
        ("links[0].topics[2]=c", "topics", ("orders", "pay.*", "c")),
        ("links[0].name=nightly", "state_name", "nightly"),
        ("links[0].name=east->west", "state_name", "east.west"),
        ("links[0].commit_interval=1.5s", "commit_interval", 1.5),
        ("links[0].start=2026-01-31T12:00:00+01:00", "start", 1769857200000),
        ("links[0].start=1769857200000", "start", 1769857200000),
        ("links[0].start=latest", "start", "latest"),
        ("links[0].provenance=on", "provenance", "on"),
        ("links[0].heartbeats=off", "heartbeats", "off"),
        ("links[0].forward=[east]", "origins", ("east",)),
        ("links[0].forward=local", "origins", ("east",)),
        ("links[0].replication_factor=2", "replication_factor", 2),
    ],
)
def test_every_kind_of_value_can_be_overridden(override: str, attribute: str, value: object) -> None:
    """Paths are written as faults write them; words such as `on` stay words."""
    assert getattr(configuration(override).links[0], attribute) == value


def test_anchors_share_settings_and_an_override_changes_one_place(tmp_path: Path) -> None:
    """What several clusters or links have in common is written once; secrets stay hidden in each of them."""
    path = tmp_path / "mirror.yaml"
    path.write_text(
        "clusters:\n"
        "  east: &login {bootstrap.servers: 'h:1', sasl.password: canary}\n"
        "  west: {<<: *login, bootstrap.servers: 'h:2'}\n"
        "links:\n"
        "  - &both {source: east, target: west, topics: &names [orders], exclude: *names, lanes: 3}\n"
        "  - {<<: *both, source: west, target: east, provenance: on}\n"
    )
    path.chmod(0o600)
    config = load_config(path, overrides=["links[1].topics[0]=pay", "clusters.west.sasl.username=w"])
    assert [link.topics for link in config.links] == [("orders",), ("pay",)]
    assert [(link.exclude, link.lanes) for link in config.links] == [(("orders",), 3)] * 2
    assert [cluster.bootstrap_servers for cluster in config.clusters.values()] == ["h:1", "h:2"]
    assert [dict(each.properties).get("sasl.username") for each in config.clusters.values()] == [None, "w"]
    assert config.clusters["west"].properties["sasl.password"] == Secret("canary")
    assert "canary" not in json.dumps(masked(config))


def test_an_override_of_a_client_property_is_taken_as_it_is() -> None:
    """Property names have dots, and values may start with what YAML would read as a mark."""
    config = configuration(
        "clusters.east.sasl.password=*a: [b",
        "clusters.east.consumer.fetch.min.bytes=5",
        "clusters.west.bootstrap.servers=x:1,y:2",
    )
    east = config.clusters["east"]
    assert east.properties["sasl.password"] == Secret("*a: [b")
    assert dict(east.consumer) == {"fetch.min.bytes": "5"}
    assert config.clusters["west"].bootstrap_servers == "x:1,y:2"


def test_values_of_client_properties_keep_their_text(tmp_path: Path) -> None:
    """Librdkafka reads them, not YAML: `on`, 0755, 1e3 and true arrive as written."""
    path = tmp_path / "mirror.yaml"
    path.write_bytes(
        b"\xef\xbb\xbfclusters:\r\n  a: {bootstrap.servers: 'h:1', p1: on, p2: 0755, p3: 1e3, p4: true, p5: 1_0}\r\n"
        b"  b: {bootstrap.servers: 'h:2', client.rack: '$${env:X}${env:X}'}\r\n"
        b"links: [{source: a, target: b, topics: t}]\r\n"
    )
    config = load_config(path, environ={"X": "$${env:X}"})
    properties = config.clusters["a"].properties
    assert [properties[f"p{n}"] for n in range(1, 6)] == ["on", "0755", "1e3", "true", "1_0"]
    assert config.clusters["b"].properties["client.rack"] == "${env:X}$${env:X}"


def test_a_configuration_survives_pickling_and_cannot_be_changed() -> None:
    """Spark tasks get what the driver read, unchanged."""
    config = configuration()
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301  our own bytes
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.links[0].lanes = 9  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.clusters["east"] = config.clusters["west"]  # type: ignore[index]
    assert hash(config.clusters["east"]) == hash(pickle.loads(pickle.dumps(config.clusters["east"])))  # noqa: S301  our own bytes


def test_what_is_shown_can_be_loaded_again() -> None:
    """`check -o yaml` writes a configuration, not a report about one."""
    config = configuration(
        naming={"match": "(.*)_R", "to": "$1"}, forward=["east"], start=1_700_000_000_000, lanes=7
    )
    shown = masked(config)
    shown["links"][0].pop("replication_factor")
    assert masked(load_config(shown)) == masked(config)


def test_an_unknown_link_names_the_known_ones() -> None:
    """`--link` with a typo."""
    config = configuration()
    assert config.link("east->west") is config.link("east.west")
    with pytest.raises(UsageError, match="east->west") as caught:
        config.link("east-west")
    assert caught.value.exit_code == 2


def test_origins_become_ids_only_when_all_ids_are_known() -> None:
    """A link that must choose by origin refuses to guess an id."""
    link = configuration(forward=["east", "west"]).links[0]
    with pytest.raises(StateError):
        link.origin_ids("east", "id-e")
    known = dataclasses.replace(link, cluster_ids={"west": "id-w"})
    assert known.origin_ids("east", "id-e") == ["id-e", "id-w"]
    assert configuration().links[0].origin_ids("east", "id-e") is None


def test_warnings_do_not_refuse() -> None:
    """What is odd but may be meant is said, and works."""
    config = load_config(
        {
            "clusters": {
                "a": {"bootstrap.servers": "h:1", "sasl.username": "u"},
                "b": {"bootstrap.servers": "h:1", "enable.ssl.certificate.verification": False},
            },
            "links": [
                {"source": "a", "target": "b", "topics": ["x"], "epoch": "10s"},
                {"source": "a", "target": "b", "topics": ["y"], "name": "second"},
            ],
        }
    )
    assert [warning.path for warning in config.warnings] == [
        "clusters.a.sasl.username",
        "clusters.b.enable.ssl.certificate.verification",
        "links[0].target",
        "links[0].epoch",
        "links[1].target",
        "links[1]",
    ]


# -- clients ------------------------------------------------------------------------------------


def test_properties_reach_only_the_clients_that_know_them() -> None:
    """Librdkafka warns about properties of the other role."""
    cluster = configuration(
        "clusters.east.linger.ms=5",
        "clusters.east.fetch.min.bytes=7",
        "clusters.east.socket.keepalive.enable=true",
        "clusters.east.consumer.client.rack=r1",
        "clusters.east.sasl.password=secret",
    ).clusters["east"]
    consumer: dict[str, Any] = consumer_properties(cluster, client_id="c", **{"fetch.wait.max.ms": 10})
    producer = producer_properties(cluster, client_id="p", transactional_id="t", transaction_timeout_ms=9)
    admin = admin_properties(cluster, client_id="a")
    assert {"linger.ms", "acks"} & set(consumer) == set()
    assert {"fetch.min.bytes", "client.rack", "isolation.level"} & set(producer) == set()
    assert set(admin) == {
        "bootstrap.servers",
        "socket.keepalive.enable",
        "sasl.password",
        "client.id",
        "allow.auto.create.topics",
    }
    assert (consumer["client.rack"], consumer["fetch.wait.max.ms"], consumer["client.id"]) == ("r1", 10, "c")
    assert producer["sasl.password"] == "secret"


def test_what_makes_it_exactly_once_wins_over_everything() -> None:
    """Rule 12: forced values stand last, whatever a caller or a file says."""
    cluster = configuration("clusters.east.acks=-1").clusters["east"]
    consumer = consumer_properties(cluster, client_id="c", **{"isolation.level": "read_uncommitted"})
    producer = producer_properties(
        cluster, client_id="p", transactional_id="t", transaction_timeout_ms=9, acks=1
    )
    assert consumer["isolation.level"] == "read_committed"
    assert (consumer["enable.auto.commit"], consumer["auto.offset.reset"]) == ("false", "error")
    assert (producer["acks"], producer["enable.idempotence"], producer["transactional.id"]) == (
        "all",
        "true",
        "t",
    )


def test_no_property_is_of_both_roles() -> None:
    """The two lists that route properties exclude each other."""
    assert set() == CONSUMER_ONLY & PRODUCER_ONLY


# -- published documents ------------------------------------------------------------------------


def test_the_published_schema_is_current() -> None:
    """Editors see what the program reads: `python -m eomirror.config.schema docs` after a change."""
    assert json.loads((ROOT / "docs" / "eomirror.schema.json").read_text()) == json_schema()


def test_the_reference_page_is_current() -> None:
    """The page for people has them, too."""
    assert (ROOT / "docs" / "configuration.md").read_text() == reference_page()


def test_the_example_of_the_reference_page_is_valid(tmp_path: Path) -> None:
    """What a newcomer copies works."""
    page = reference_page()
    path = tmp_path / "mirror.yaml"
    path.write_text(page.split("```yaml\n")[1].split("```")[0])
    assert len(load_config(path, environ={"EAST_PASSWORD": "x"}).links) == 1
