"""MirrorMaker 2's property file: what becomes of every key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from eomirror import load_config
from eomirror.cli.import_mm2 import import_files
from eomirror.config.java_properties import parse_properties
from eomirror.config.mm2_properties import Imported, import_mm2
from eomirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FILE = r"""
# a usual file, with layers
clusters = east, west
east.bootstrap.servers = e1:9092, \
    e2:9092
west.bootstrap.servers=w1:9092
security.protocol: SASL_SSL
sasl.mechanism = SCRAM-SHA-512
east.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="mirror" password="p\\"w";
west.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=mirror password=other;
ssl.truststore.location = /etc/ca.pem
ssl.truststore.type = PEM
east.consumer.isolation.level = read_committed
east.consumer.fetch.max.wait.ms = 200
east.consumer.auto.offset.reset = latest
west.exactly.once.source.support = enabled

east->west.enabled = true
east->west.topics = orders.*, payments
topics = .*
groups = billing.*
groups.exclude = console-.*
tasks.max = 8
replication.factor = 3
west->east.enabled = false
refresh.topics.interval.seconds = 5
sync.group.offsets.enabled = true
offset.storage.replication.factor = 3
emit.heartbeats.enabled = false
sync.topic.acls.enabled = false
replication.policy.separator = _
"""


def imported(text: str, *, keep_secrets: bool = False) -> Imported:
    return import_mm2(text, keep_secrets=keep_secrets)


def link_of(lines: str) -> tuple[dict[str, Any], dict[str, bool]]:
    """The one link of a small file, and the keys that are not honoured with their gravity."""
    found = imported(
        f"clusters=a,b\na.bootstrap.servers=x:1\nb.bootstrap.servers=y:1\na->b.enabled=true\n{lines}"
    )
    return found.settings["links"][0], {item.key: item.grave for item in found.not_honoured if item.line}


def test_settings_that_belong_to_the_target_stay_there() -> None:
    """The switch, the list with its old name, and the interval that switches it off are carried over."""
    off, refused = link_of("sync.topic.configs.enabled=false")
    listed, _ = link_of(
        "sync.topic.configs.enabled=true\na->b.config.properties.exclude=retention\\\\.ms, flush.*"
    )
    old, _ = link_of("config.properties.blacklist=retention.ms")
    never, no_interval = link_of("sync.topic.configs.interval.seconds=-1")

    assert off["sync_topic_configs"] is False
    assert "sync_topic_configs" not in listed
    assert listed["exclude_configs"] == [r"retention\.ms", "flush.*"]
    assert old["exclude_configs"] == ["retention.ms"]
    assert never["sync_topic_configs"] is False
    assert refused == no_interval == {}


def test_a_usual_file_becomes_a_configuration() -> None:
    """Clusters, flows and filters arrive; the YAML that is written is accepted as it is."""
    found = imported(FILE)

    assert found.settings["links"] == [
        {
            "source": "east",
            "target": "west",
            "topics": ["orders.*", "payments"],
            "exclude": [r"mm2.*\.internal", r".*\.replica", "__.*"],
            "groups": ["billing.*"],
            "exclude_groups": ["console-.*"],
            "naming": {"separator": "_"},
            "replication_factor": 3,
            "heartbeats": "off",
            "sync_group_offsets": True,
            "start": "latest",
        }
    ]
    east = found.settings["clusters"]["east"]
    assert east["bootstrap.servers"] == "e1:9092, e2:9092"
    assert east["security.protocol"] == "SASL_SSL"
    assert east["ssl.ca.location"] == "/etc/ca.pem"
    assert east["sasl.username"] == "mirror"
    assert east["consumer"] == {"fetch.wait.max.ms": "200"}
    assert [item.key for item in found.not_honoured] == [
        "tasks.max",
        "refresh.topics.interval.seconds",
        "offset.storage.replication.factor",
    ]
    assert not any(item.grave for item in found.not_honoured)
    config = load_config(
        yaml.safe_load(yaml.safe_dump(found.settings)), environ=dict.fromkeys(found.variables, "secret")
    )
    assert config.links[0].target_topic("orders1") == "east_orders1"


def test_secrets_are_not_written() -> None:
    """Passwords become variables, each named; with an escaped quote the password is still whole when it is kept."""
    found = imported(FILE)
    assert found.variables == {
        "EAST_SASL_PASSWORD": "east.sasl.jaas.config",
        "WEST_SASL_PASSWORD": "west.sasl.jaas.config",
    }
    shown = f"{found!r} {found.settings}"
    assert 'p"w' not in shown
    assert "other" not in shown
    kept = imported(FILE, keep_secrets=True)
    assert kept.settings["clusters"]["east"]["sasl.password"] == 'p"w'
    assert 'p"w' not in repr(kept)


def test_a_property_file_stands_in_place_of_yaml(tmp_path: Path) -> None:
    """By its extension; what is not honoured is a warning."""
    path = tmp_path / "mm2.properties"
    path.write_text(FILE)
    path.chmod(0o600)

    config = load_config(path)

    assert [link.name for link in config.links] == ["east->west"]
    assert any("tasks.max" in str(warning) for warning in config.warnings)


@pytest.mark.parametrize(
    "line",
    [
        "replication.policy.class = com.example.Mine",
        "a->b.transforms = route",
        "topic.filter.class = com.example.Filter",
        "a.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required;",
        "a.ssl.truststore.location = /etc/store.jks",
        "a.sasl.jaas.config = ${file:/etc/secret:jaas}",
        "a.ssl.provider = X",
        "enabled = true",
        "a->b.source.cluster.bootstrap.servers = z:1",
        "a->b.target.cluster.security.protocol = SSL",
        "target.cluster.alias = c",
        "refresh.topics.enabled = false",
        "refresh.groups.enabled = false",
        "a->b.refresh.topics.interval.seconds = -1",
        "use.defaults.from = target",
        "value.converter = org.apache.kafka.connect.json.JsonConverter",
        "a.sasl.jaas.config = x.PlainLoginModule required username=u password='${vault:x:y}';",
    ],
)
def test_what_would_mirror_something_else_is_refused(line: str, tmp_path: Path) -> None:
    """A name, a filter, a transformation or a credential that we cannot carry over is no warning."""
    text = f"clusters=a,b\na.bootstrap.servers=x:1\nb.bootstrap.servers=y:1\na->b.enabled=true\n{line}\n"
    assert [item.grave for item in imported(text).not_honoured if item.line] == [True]
    path = tmp_path / "mm2.properties"
    path.write_text(text)
    with pytest.raises(ConfigError, match="not supported"):
        load_config(path)
    done = CliRunner().invoke(import_files, [str(path)], standalone_mode=False)
    assert done.return_value == 78
    assert done.stdout == ""
    assert "REFUSED: " in done.stderr


@pytest.mark.parametrize(
    ("given", "password"),
    [
        ("'it is;long'", "it is;long"),
        ("'a\\\\'b'", "a'b"),
        ("'say \"x\"'", 'say "x"'),
        ('"it\'s"', "it's"),
        ("plain", "plain"),
    ],
)
def test_a_login_may_stand_in_quotes_of_either_kind(given: str, password: str) -> None:
    """As java.io.StreamTokenizer takes it, by which Kafka reads JAAS."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    line = f"a.sasl.jaas.config = {module} username='me' password={given};"
    found = imported(
        f"clusters=a,b\na.bootstrap.servers=x:1\nb.bootstrap.servers=y:1\n{line}", keep_secrets=True
    )
    cluster = found.settings["clusters"]["a"]
    assert (cluster["sasl.username"], cluster["sasl.password"]) == ("me", password)


@pytest.mark.parametrize(
    ("lines", "start"),
    [
        ("a->b.source.consumer.auto.offset.reset = latest", "latest"),
        ("a->b.consumer.auto.offset.reset = latest\na.consumer.auto.offset.reset = earliest", "earliest"),
        (
            "a->b.source.consumer.auto.offset.reset = earliest\na.consumer.auto.offset.reset = latest",
            "earliest",
        ),
        ("a->b.consumer.auto.offset.reset = latest", "latest"),
    ],
)
def test_where_a_flow_begins_is_said_by_the_key_that_mm2_takes(lines: str, start: str) -> None:
    """The consumer of the source has its own prefix, which wins; nothing of it is left over."""
    link, refused = link_of(lines)
    assert link["start"] == start
    assert refused == {}


@pytest.mark.parametrize("separator", [".", "_", "-", "__"])
def test_flows_in_both_directions_make_no_topics_without_end(separator: str) -> None:
    """What has come from a cluster does not go back there, by its name, as in MM2 (MirrorSourceConnector.isCycle)."""
    package = "replication.policy.class=org.apache.kafka.connect.mirror."
    text = (
        "clusters=a,b,us-c\na.bootstrap.servers=x:1\nb.bootstrap.servers=y:1\nus-c.bootstrap.servers=z:1\n"
        f"{package}DefaultReplicationPolicy\nreplication.policy.separator={separator}\n"
        + "".join(
            f"{s}->{t}.enabled=true\n" for s in ("a", "b", "us-c") for t in ("a", "b", "us-c") if s != t
        )
    )
    config = load_config(imported(text).settings)
    topics = {alias: {"orders", "bar_x"} for alias in config.clusters}
    for _ in range(8):
        before = {alias: set(names) for alias, names in topics.items()}
        for link in config.links:
            topics[link.target] |= {
                link.target_topic(name) for name in before[link.source] if link.mirrors(name)
            }
    assert topics == before
    assert {f"a{separator}orders", f"a{separator}bar_x", f"us-c{separator}a{separator}orders"} <= topics["b"]


def test_policies_and_separators() -> None:
    """MM2's two policies; the separator belongs to the default one."""
    package = "replication.policy.class=org.apache.kafka.connect.mirror."
    assert link_of("")[0]["naming"] == "prefix"
    identity = link_of(f"{package}IdentityReplicationPolicy\nreplication.policy.separator=_")[0]
    assert identity["naming"] == {"policy": "identity", "separator": "_"}
    link, refused = link_of(f"{package}DefaultReplicationPolicy\nreplication.policy.separator=-")
    assert link["naming"] == {"separator": "-"}
    internal = "replication.policy.internal.topic.separator.enabled=false"
    dotted, refused_too = link_of(f"replication.policy.separator=_\n{internal}")
    assert dotted["naming"] == {"separator": "_", "separator_for_internal": False}
    assert refused == refused_too == {}


@pytest.mark.parametrize("policy", ["Default", "Identity"])
@pytest.mark.parametrize("separator", [".", "_", "-", "__", "-x-"])
def test_names_pass_and_topics_of_readers_are_named_as_in_mm2(separator: str, policy: str) -> None:
    """A name with the source's alias is an original; one with the target's is a cycle where MM2 can see it."""
    mark, prefixed = separator, policy == "Default"
    text = (
        "clusters=prod,dr-eu\nprod.bootstrap.servers=x:1\ndr-eu.bootstrap.servers=y:1\nprod->dr-eu.enabled=true\n"
        "dr-eu->prod.enabled=true\nprod->dr-eu.topics=prod.*,dr-eu.*,orders.*\ndr-eu->prod.topics=stock.*,prod.*\n"
        f"replication.policy.class=org.apache.kafka.connect.mirror.{policy}ReplicationPolicy\n"
        f"replication.policy.separator={separator}\n"
    )
    there, back = (
        load_config({**found, "links": [each]}).links[0]
        for found in [imported(text).settings]
        for each in found["links"]
    )

    names = [f"prod{mark}orders", "prod_orders", "prod-orders", "orders.prod.x", f"dr-eu{mark}orders"]
    passed = [name for name in names if there.mirrors(name)]
    assert passed == (names[:4] if prefixed and mark not in "dr-eu" else names)
    assert back.mirrors(f"prod{mark}stock") is not prefixed
    assert there.target_topic("orders") == (f"prod{mark}orders" if prefixed else "orders")
    assert there.mm2_names.checkpoints("prod") == f"prod{mark}checkpoints{mark}internal"
    assert there.mm2_names.offset_syncs("prod") == f"mm2-offset-syncs{mark}prod{mark}internal"
    for internal in ("checkpoints", "heartbeats"):
        own = f"prod{mark}{internal}" + (f"{mark}internal" if internal == "checkpoints" else "")
        assert not there.mirrors(own) or (prefixed and internal == "heartbeats")
    assert "internal topic of MirrorMaker 2" in there.filter.reason(f"mm2-x{mark}internal")


def test_groups_that_mm2_leaves_out_are_left_out() -> None:
    """Its defaults are written out; a group of Kafka Connect on the target has its own business."""
    link, _ = link_of("")
    assert link["exclude_groups"] == ["console-consumer-.*", "connect-.*", "__.*"]
    link, refused = link_of("groups=app.*\na->b.groups.exclude=app-test.*")
    assert refused == {}
    ends = {"a": {"bootstrap.servers": "x:1"}, "b": {"bootstrap.servers": "y:1"}}
    loaded = load_config({"clusters": ends, "links": [link]}).links[0]
    assert [loaded.follows(group) for group in ("app-1", "app-test-1", "other")] == [True, False, False]


def test_a_key_of_a_flow_hides_the_one_of_the_file() -> None:
    """The hidden one is no complaint; a number that ours cannot be is one."""
    link, refused = link_of(
        "topics=x\na->b.topics=y\nsync.topic.acls.enabled=true\na->b.sync.topic.acls.enabled=false"
    )
    assert link["topics"] == ["y"]
    assert refused == {}
    assert link_of("replication.factor=-1")[1] == {"replication.factor": False}


def test_tasks_are_no_lanes() -> None:
    """A task of Connect is a thread; a lane is a producer with a process."""
    link, refused = link_of("tasks.max=10")
    assert "lanes" not in link
    assert refused == {"tasks.max": False}


def test_a_flow_that_is_not_enabled_is_no_link() -> None:
    """As in MM2, where a flow is off unless it is switched on."""
    found = imported(
        "clusters=a,b\na.bootstrap.servers=x:1\nb.bootstrap.servers=y:1\nb->a.topics=x\nb->a.transforms=y"
    )
    assert found.settings["links"] == []
    assert found.not_honoured == ()


keys = st.one_of(
    st.sampled_from([line.split("=")[0].strip() for line in FILE.splitlines() if "=" in line]),
    st.text(st.characters(codec="ascii", exclude_characters="\\\n\r"), max_size=20),
)


@example({"sync.group.offsets.enabled": "TRUE"})
@given(st.dictionaries(keys, st.text(st.characters(codec="ascii"), max_size=20), max_size=12))
def test_every_key_is_honoured_or_named(entries: dict[str, str]) -> None:
    """Nothing is passed over in silence, whatever the file holds."""
    text = "clusters=east,west\neast->west.enabled=true\n" + "".join(
        f"{key}={value}\n" for key, value in entries.items()
    )
    found = imported(text)
    # a default of MM2's that matters and that the file does not name stands in no line of it
    told = [*found.honoured, *(item.key for item in found.not_honoured if item.line)]
    assert sorted(told) == sorted(parse_properties(text))
    defaults = {"sync.topic.acls.enabled"} - set(told)
    assert {item.key for item in found.not_honoured if not item.line} <= defaults


def test_java_reads_property_files_like_this() -> None:
    """Separators, comments, continued lines and escapes of java.util.Properties."""
    text = "# c\n ! c\na=1\nb : 2\nc 3\nd\\ e = x\\ty\\u0041\nf = one, \\\n   two\\\\\ng\nh==v\na=last\n"
    assert {key: value for key, (value, _) in parse_properties(text).items()} == {
        "a": "last",
        "b": "2",
        "c": "3",
        "d e": "x\tyA",
        "f": "one, two\\",
        "g": "",
        "h": "=v",
    }
    assert parse_properties(text)["f"][1] == 7


@pytest.mark.parametrize("value", ["true", "TRUE", " True ", "false", "FaLsE"])
def test_a_boolean_is_read_as_by_kafka(value: str) -> None:
    """ConfigDef trims it and takes any case."""
    assert link_of(f"sync.group.offsets.enabled={value}")[1] == {}


@pytest.mark.parametrize(
    "value", ["yes", "no", "1", "0", "on", "off", "t", "truee", "", "true,", '"true"', "true\u00a0", "${x}"]
)
@pytest.mark.parametrize(
    "key", ["sync.group.offsets.enabled", "a->b.sync.topic.configs.enabled", "b->a.enabled", "enabled"]
)
def test_a_boolean_with_another_value_is_refused_with_its_key_value_and_line(
    key: str, value: str, tmp_path: Path
) -> None:
    """By `import`, `check` and `run` alike: MM2 does not start with it, or leaves the flow off."""
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters=a,b\na.bootstrap.servers=x:1\nb.bootstrap.servers=y:1\na->b.enabled=true\n"
        f"{key} = {value}\n",
        encoding="utf-8",
    )
    done = CliRunner().invoke(import_files, [str(path)], standalone_mode=False)
    assert done.return_value == 78
    assert f"REFUSED: {key} (line 5)" in done.stderr
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert any(fault.line == 5 for fault in refused.value.faults)
