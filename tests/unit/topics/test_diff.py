"""What a copy needs, from what both sides are."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.kafka.cluster_metadata import ConfigValue, CreateTopic, TopicFacts
from eomirror.topics.diff import (
    AddPartitions,
    AlterConfig,
    Change,
    Differs,
    Refuse,
    Surplus,
    TopicPair,
    default_replication_factor,
    desired_configs,
    topic_changes,
)
from eomirror.topics.plan import Plan

FOR_EVER = "9223372036854775807"
TIMESTAMPS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOR_EVER,
    "message.timestamp.after.max.ms": FOR_EVER,
}
DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "compression.type": "producer",
    "segment.bytes": "1073741824",
    "min.insync.replicas": "1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOR_EVER,
    "message.timestamp.after.max.ms": "3600000",
    "flush.messages": FOR_EVER,
}


def configs(source: str = "default", **overrides: str) -> dict[str, ConfigValue]:
    """Effective settings of a topic; ``overrides`` (dots written as two underscores) come from ``source``."""
    found = {name: ConfigValue(value, is_default=True) for name, value in DEFAULTS.items()}
    for name, value in overrides.items():
        found[name.replace("__", ".")] = ConfigValue(value, is_default=source != "topic", source=source)
    return found


def facts(name: str = "orders", partitions: int = 3) -> TopicFacts:
    return TopicFacts(name, f"id-of-{name}", partitions, 1)


def changes(
    source_configs: dict[str, ConfigValue],
    target_configs: dict[str, ConfigValue] | None = None,
    *,
    partitions: int = 3,
    target_partitions: int = 3,
    name: str = "east.orders",
    wanted: int | None = None,
    **options: Any,
) -> tuple[Any, ...]:
    pair = TopicPair(
        facts(partitions=partitions),
        source_configs,
        name,
        None if target_configs is None else facts(name, target_partitions),
        target_configs,
    )
    options.setdefault("brokers", 1)
    return topic_changes(pair, target_partitions=wanted, **options)


def test_a_missing_copy_is_created_like_its_source() -> None:
    """Partitions come from the source, replicas from the target, settings from both."""
    (change,) = changes(configs("topic", retention__ms="1000"), partitions=7, brokers=5)

    assert isinstance(change, CreateTopic)
    assert (change.name, change.partitions, change.replication_factor) == ("east.orders", 7, 3)
    assert change.configs["retention.ms"] == "1000"
    assert change.configs.items() >= TIMESTAMPS.items()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("retention.ms", "-1"),
        ("retention.bytes", "5000"),
        ("max.message.bytes", "9000000"),
    ],
)
def test_a_default_of_the_source_s_brokers_is_carried_over(name: str, value: str) -> None:
    """A copy must not be deleted or refused because the target's brokers have other defaults."""
    source = configs("broker file", **{name.replace(".", "__"): value})

    assert desired_configs(source, DEFAULTS)[name] == value


def test_loss_relevant_settings_are_set_even_where_the_defaults_agree() -> None:
    """The target's default may change next year; the copy's own setting does not."""
    assert desired_configs(configs(), DEFAULTS)["retention.ms"] == "604800000"


def test_storage_settings_are_set_only_where_the_target_differs() -> None:
    """Segments and compression follow the source, without noise where the target has the same anyway."""
    same = desired_configs(configs(), DEFAULTS)
    other = desired_configs(configs(), {**DEFAULTS, "segment.bytes": "1"})

    assert "segment.bytes" not in same
    assert other["segment.bytes"] == DEFAULTS["segment.bytes"]


def test_without_knowledge_of_the_target_a_broker_s_wish_is_carried_over() -> None:
    """Kafka's own defaults are left alone then, those of the source's brokers are not."""
    wished = desired_configs(configs("broker", compression__type="zstd"))

    assert wished["compression.type"] == "zstd"
    assert "segment.bytes" not in wished


def test_the_target_s_own_affairs_are_left_alone() -> None:
    """How many replicas must be in sync, and throttles, are decided where the copy lives."""
    source = configs(
        "topic",
        min__insync__replicas="2",
        leader__replication__throttled__replicas="*",
        unclean__leader__election__enable="true",
        remote__storage__enable="true",
        flush__messages="1",
    )
    wanted = desired_configs(source, {**DEFAULTS, **dict.fromkeys(source)})

    assert not wanted.keys() & source.keys() - DEFAULTS.keys()
    assert "min.insync.replicas" not in wanted
    assert wanted["flush.messages"] == "1"


def test_a_setting_that_the_target_does_not_know_is_left_out() -> None:
    """A newer source's setting must not make the older target refuse the topic."""
    assert "new.in.5" not in desired_configs(configs("topic", new__in__5="x"), DEFAULTS)


def test_where_no_topic_tells_only_settings_that_all_brokers_know_are_carried_over() -> None:
    """A new cluster has no topic yet; it would refuse a topic with a setting of another make."""
    source = configs("topic", confluent__tier__enable="true", flush__messages="1", retention__ms="5")
    assert desired_configs(source).items() >= {"flush.messages": "1", "retention.ms": "5"}.items()
    assert "confluent.tier.enable" not in desired_configs(source)


@pytest.mark.parametrize(("source", "copy"), [("100000", "1048576"), ("1048577", "1048577")])
def test_segments_are_as_large_as_brokers_of_kafka_4_ask_for(source: str, copy: str) -> None:
    """Older ones took smaller ones; a setting that decides nothing shall not keep a topic from being mirrored."""
    assert desired_configs(configs("topic", segment__bytes=source), DEFAULTS)["segment.bytes"] == copy


def test_append_times_of_the_source_become_create_times() -> None:
    """A target with LogAppendTime would write the time of the copy over the source's."""
    source = configs(
        "topic", message__timestamp__type="LogAppendTime", message__timestamp__after__max__ms="5"
    )

    assert desired_configs(source, DEFAULTS).items() >= TIMESTAMPS.items()


def test_the_provenance_header_gets_room() -> None:
    """A record that is as large as the source allows still fits with the mirror's header."""
    wanted = desired_configs(configs(), DEFAULTS, added_header=True)

    assert int(wanted["max.message.bytes"]) > int(DEFAULTS["max.message.bytes"])
    assert desired_configs(configs(), DEFAULTS)["max.message.bytes"] == DEFAULTS["max.message.bytes"]


def test_the_room_ends_where_brokers_can_hold_no_larger_limit() -> None:
    """A topic that takes all that there can be is created, and left alone afterwards."""
    source = configs("topic", max__message__bytes="2147483647", message__timestamp__after__max__ms=FOR_EVER)
    assert desired_configs(source, DEFAULTS, added_header=True)["max.message.bytes"] == "2147483647"
    assert changes(source, source, added_header=True) == ()


def test_links_both_ways_raise_the_limit_once() -> None:
    """The room for the header that one link makes is no reason for the link back to make more."""
    limits = {"east": DEFAULTS["max.message.bytes"], "west": DEFAULTS["max.message.bytes"]}
    raised = []
    for source, target in [("east", "west"), ("west", "east")] * 3:
        found = {
            name: configs("topic", max__message__bytes=limit, message__timestamp__after__max__ms=FOR_EVER)
            for name, limit in limits.items()
        }
        pair = TopicPair(facts(), found[source], "orders", facts(), found[target])
        for change in topic_changes(pair, brokers=1, added_header=True, guard=True):
            assert isinstance(change, AlterConfig)
            if "max.message.bytes" in change.values:
                limits[target] = change.values["max.message.bytes"]
                raised.append(target)

    assert raised == ["west"]


def test_a_limit_below_the_source_s_is_raised() -> None:
    """Also with the room for the header that an equal one lacks."""
    limit = int(DEFAULTS["max.message.bytes"])
    for lacking in (0, 1, 5000, 1_000_000):
        source, target = (
            configs("topic", max__message__bytes=str(value)) for value in (limit + lacking, limit)
        )
        pair = TopicPair(facts(), source, "orders", facts(), target)
        (change,) = topic_changes(pair, brokers=1, added_header=True)
        assert isinstance(change, AlterConfig)
        assert int(change.values["max.message.bytes"]) > limit + lacking


@pytest.mark.parametrize("header", [False, True])
def test_a_limit_that_was_raised_by_a_round_number_is_raised_on_the_copy(header: bool) -> None:
    """From 64 to 128 KiB looks like 16 times the header's room, which only links in a ring make."""
    source = configs("topic", max__message__bytes=str(128 * 1024))
    copy = configs("topic", max__message__bytes=str(64 * 1024), message__timestamp__after__max__ms=FOR_EVER)

    (change,) = changes(source, copy, added_header=header)

    assert isinstance(change, AlterConfig)
    assert int(change.values["max.message.bytes"]) >= 128 * 1024


def test_a_sensitive_or_untold_setting_is_left_out() -> None:
    """What the broker hides cannot be copied."""
    source = {
        "a": ConfigValue(None, is_default=False, source="topic"),
        "b": ConfigValue("x", is_default=False, source="topic", sensitive=True),
    }
    assert not desired_configs(source).keys() & {"a", "b"}


def test_a_copy_that_is_right_needs_nothing() -> None:
    """The second start changes nothing."""
    (created,) = changes(configs())
    copy = configs("topic", **{name.replace(".", "__"): value for name, value in created.configs.items()})

    assert changes(configs(), copy) == ()


def test_a_copy_grows_with_its_source() -> None:
    """Rule 5 of the peers: partitions only ever increase."""
    copy = configs("topic", message__timestamp__after__max__ms=FOR_EVER)

    assert changes(configs(), copy, partitions=5) == (AddPartitions("east.orders", 5, 3),)


def test_more_partitions_than_the_source_are_only_named() -> None:
    """Records keep their partition number, so nothing is wrong; but the operator should know."""
    copy = configs("topic", message__timestamp__after__max__ms=FOR_EVER)

    assert changes(configs(), copy, partitions=2) == (Surplus("east.orders", 3, 2),)


def test_loss_relevant_settings_converge() -> None:
    """A copy whose retention was cut by hand, or that kept a default, is mended."""
    (change,) = changes(configs("topic", retention__ms="-1"), configs("topic", segment__bytes="7"))

    assert change == AlterConfig(
        "east.orders",
        {"retention.ms": "-1", "message.timestamp.after.max.ms": FOR_EVER},
        {"retention.ms": "604800000", "message.timestamp.after.max.ms": "3600000"},
    )


@pytest.mark.parametrize(("copy", "altered"), [("2000000", False), ("1048588", False), ("1000", True)])
def test_the_size_limit_is_raised_but_never_lowered(copy: str, altered: bool) -> None:
    """Lowering it with the source's would refuse records that the source took before."""
    target = configs("topic", max__message__bytes=copy, message__timestamp__after__max__ms=FOR_EVER)

    assert bool(changes(configs(), target)) is altered


def test_the_order_of_cleanup_policies_does_not_matter() -> None:
    """`compact,delete` and `delete, compact` are the same."""
    source = configs("topic", cleanup__policy="compact,delete")
    target = configs("topic", cleanup__policy="delete, compact", message__timestamp__after__max__ms=FOR_EVER)

    assert changes(source, target) == ()


@pytest.mark.parametrize(
    "name", ["__consumer_offsets", "eomirror.east.west.control", ".hidden", "mm2-x.internal"]
)
def test_an_internal_name_on_the_target_is_refused(name: str) -> None:
    """A naming that writes into Kafka's or our own topics would destroy them."""
    (change,) = changes(configs(), name=name)

    assert isinstance(change, Refuse)
    assert change.topic == "orders"
    assert name in change.reason
    assert "naming" in change.fix


@pytest.mark.parametrize(
    ("brokers", "configured", "expected"), [(1, None, 1), (2, None, 2), (5, None, 3), (5, 2, 2), (0, None, 1)]
)
def test_replicas(brokers: int, configured: int | None, expected: int) -> None:
    """Three, or as many as there are brokers, unless a setting says otherwise."""
    assert default_replication_factor(brokers, configured) == expected


@pytest.mark.parametrize(
    ("setting", "found", "wanted", "altered"),
    [
        ("retention.ms", "1000", "2000", True),
        ("retention.ms", "2000", "1000", False),
        ("retention.ms", "-1", "1000", False),
        ("retention.ms", "1000", "-1", True),
        ("cleanup.policy", "compact", "delete", False),
        ("max.message.bytes", "100", "200", True),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime", True),
    ],
)
def test_settings_of_an_aggregate_are_only_extended(
    setting: str, found: str, wanted: str, altered: bool
) -> None:
    """Several sources have settings of their own: none shortens what another needs, and no two take turns."""
    key = setting.replace(".", "__")
    source, target = configs("topic", **{key: wanted}), configs("topic", **{key: found})

    alters = [
        change
        for change in changes(source, target, aggregate=True)
        if isinstance(change, AlterConfig) and setting in change.values
    ]
    assert bool(alters) is altered


def test_settings_of_an_existing_copy_are_left_alone_if_they_are_not_followed() -> None:
    """Nothing on the copy is changed; what differs is told."""
    source, target = configs("topic", retention__ms="1000"), configs("topic", retention__ms="2000")

    found = changes(source, target, sync=False)

    assert [type(change) for change in found] == [Differs]
    assert found[0].wanted["retention.ms"] == "1000"
    assert found[0].found["retention.ms"] == "2000"


def test_excluded_settings_are_neither_set_nor_changed() -> None:
    """The others follow the source; a new copy has the target's own value."""
    source = configs("topic", retention__ms="1000", cleanup__policy="compact")
    target = configs("topic", retention__ms="2000")

    altered, left = changes(source, target, excluded=lambda name: name == "retention.ms")
    (created,) = changes(source, excluded=lambda name: name == "retention.ms")

    assert altered.values["cleanup.policy"] == "compact"
    assert "retention.ms" not in altered.values
    assert left == Differs("east.orders", {"retention.ms": "1000"}, {"retention.ms": "2000"})
    assert "retention.ms" not in created.configs
    assert created.configs["cleanup.policy"] == "compact"


def test_a_copy_with_keyed_records_has_its_own_number_of_partitions() -> None:
    """A new one has the configured number, else that of its source; an existing one keeps its number."""
    (created,) = changes(configs(), partitions=5, keyed=True, wanted=12)
    assert isinstance(created, CreateTopic)
    assert created.partitions == 12
    (created,) = changes(configs(), partitions=5, keyed=True)
    assert isinstance(created, CreateTopic)
    assert created.partitions == 5
    for target in (2, 9):
        found = changes(configs(), configs(), partitions=5, target_partitions=target, keyed=True)
        assert not any(isinstance(change, AddPartitions | Surplus) for change in found)


def test_a_plan_lists_the_settings_of_topics_that_exist() -> None:
    """With both values, and growth among them; a topic that is created has none."""
    changes: dict[str, tuple[Change, ...]] = {
        "orders": (
            AddPartitions("east.orders", 6, 3),
            AlterConfig("east.orders", {"retention.ms": "-1"}, {"retention.ms": "60000"}),
        ),
        "late": (CreateTopic("east.late", 1, 1, {"retention.ms": "-1"}),),
    }
    plan = Plan(("a", "b"), {}, (), (), (), (), changes, first_run=False)

    found = plan.settings("west")

    assert [str(one) for one in found] == [
        "east.orders on west: partitions: 3 -> 6",
        "east.orders on west: retention.ms: 60000 -> -1",
    ]
    assert found[1].as_dict() == {
        "cluster": "west", "topic": "east.orders", "setting": "retention.ms", "from": "60000", "to": "-1",
    }  # fmt: skip


def test_brokers_before_kafka_3_6_have_one_limit_for_timestamps() -> None:
    """A copy there accepts every timestamp as well, and is changed if it does not."""
    limit = "message.timestamp.difference.max.ms"
    older = {**{name: value for name, value in DEFAULTS.items() if name not in TIMESTAMPS}, limit: "1000"}
    older["message.timestamp.type"] = "CreateTime"

    (created,) = changes(configs(), target_defaults=older)
    (changed,) = changes(
        configs(), {name: ConfigValue(value, is_default=True) for name, value in older.items()}
    )

    assert {name: value for name, value in created.configs.items() if "timestamp" in name} == {
        "message.timestamp.type": "CreateTime",
        limit: FOR_EVER,
    }
    assert (changed.values, changed.before) == ({limit: FOR_EVER}, {limit: "1000"})
