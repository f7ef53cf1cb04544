"""What one topic's absence, name or setting must not do: keep the whole link from starting, on real brokers."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from eomirror.config import Cluster, Link
from eomirror.errors import TopicError
from eomirror.kafka.session import link_sessions
from eomirror.topics.diff import Refuse
from eomirror.topics.discovery import Discovery
from eomirror.topology.naming import Naming
from support.traffic.records import create_topic, delete_topic, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration


@pytest.fixture
def link(topic_name: str) -> Link:
    """A link that never ran, with equal names."""
    return Link(
        name=topic_name, source="east", target="west", topics=(f"{topic_name}.*", f"{topic_name}-later"),
        naming=Naming("identity"), offset_syncs="off", heartbeats="off", groups=(),
    )  # fmt: skip


@pytest.fixture
def discovery(link: Link, east: Any, west: Any) -> Iterator[Discovery]:
    """Its discovery."""
    clusters = Cluster("east", east.client_properties), Cluster("west", west.client_properties)
    with closing(link_sessions(link, *clusters, "test")) as sessions:
        yield Discovery(link, *sessions)


def test_a_name_that_the_target_refuses_is_left_out_of_a_first_run(
    discovery: Discovery, east: Any, west: Any, topic_name: str
) -> None:
    """`pay.in` beside a `pay_in` of the target; the others are mirrored, and a missing one when it appears."""
    for word in (".pay", ".other", ".third"):
        create_topic(east.client_properties, topic_name + word)
    create_topic(west.client_properties, f"{topic_name}_pay")
    bad = f"{topic_name}.pay"

    plan = discovery.plan()
    (refused,) = plan.changes[bad]
    assert isinstance(refused, Refuse)
    assert "exclude" in refused.fix
    assert "naming" in refused.fix
    assert sorted(plan.targets) == [f"{topic_name}.other", f"{topic_name}.third"]
    with pytest.raises(TopicError, match="collides"):
        discovery.prepare(strict=True)

    with capture_logs() as logged:
        begun = discovery.prepare(strict=False)

    assert {item.source.topic for item in begun} == {f"{topic_name}.other", f"{topic_name}.third"}
    (told,) = [line for line in logged if line["event"] == "topic_left_out"]
    assert (told["topic"], told["fix"]) == (bad, refused.fix)
    assert discovery.left_out().keys() == {bad}
    assert [line["topic"] for line in logged if line["event"] == "topic_awaited"] == [f"{topic_name}-later"]
    there = AdminClient(west.client_properties).list_topics(timeout=10).topics
    assert {f"{topic_name}.other", f"{topic_name}.third"} <= there.keys()
    assert bad not in there

    create_topic(east.client_properties, f"{topic_name}-later")
    later = wait_for(
        lambda: [item for item in discovery.refresh() if item.source.topic == f"{topic_name}-later"]
    )
    assert later


def test_a_copy_that_is_deleted_under_a_running_link_is_not_created_again(
    discovery: Discovery, east: Any, west: Any, topic_name: str
) -> None:
    """An idle topic, too: it stops by name at the next look at all copies, and the others go on."""
    for word in (".kept", ".lost"):
        create_topic(east.client_properties, topic_name + word, 2)
    assert len(discovery.prepare(strict=False)) == 4
    lost = f"{topic_name}.lost"
    delete_topic(west.client_properties, lost)

    def left_out() -> bool:
        discovery._configs_compared = float("-inf")
        assert {item.source.topic for item in discovery.refresh()} >= {f"{topic_name}.kept"}
        return lost in discovery.left_out()

    wait_for(left_out)

    error = discovery.left_out()[lost]
    assert f"--resume-at {lost}-0=0 --resume-at {lost}-1=0" in error.fix
    assert {item.source.topic for item in discovery.refresh()} == {f"{topic_name}.kept"}
    assert lost not in AdminClient(west.client_properties).list_topics(timeout=10).topics

    create_topic(west.client_properties, lost, 2)
    wait_for(lambda: len(discovery.refresh()) == 4)
    assert not discovery.left_out()
