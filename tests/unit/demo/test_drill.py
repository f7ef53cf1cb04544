"""The drill on clusters of the user: it touches topics of its own only."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror import load_config
from eomirror.demo.drill import DrillReport, DrillSwitch, OwnClusters
from eomirror.errors import UsageError


def own(**link: Any) -> Any:
    """A configuration with one link."""
    return load_config(
        {
            "clusters": {
                "paris": {"bootstrap.servers": "127.0.0.1:1", "client.dns.lookup": "use_all_dns_ips"},
                "oslo": {"bootstrap.servers": "127.0.0.1:2"},
            },
            "links": [{"name": "dr", "source": "paris", "target": "oslo", "topics": ["orders"], **link}],
        }
    )


def test_the_links_of_the_drill_reach_the_users_clusters_and_their_own_topic_only() -> None:
    """No groups, no heartbeats, no offset syncs: these topics belong to other links as well."""
    config = own()
    clusters = OwnClusters(config, config.links[0])

    made = clusters.config()

    there, back = made.links
    assert made.clusters["paris"] is config.clusters["paris"]
    assert (there.source, there.target, back.source, back.target) == ("paris", "oslo", "oslo", "paris")
    assert there.mirrors(clusters.topic)
    assert there.target_topic(clusters.topic) == clusters.copy
    assert back.target_topic(clusters.copy) == clusters.topic
    assert not there.mirrors("orders")
    assert not back.mirrors("paris.orders")
    assert {(link.groups, link.heartbeats, link.offset_syncs) for link in made.links} == {((), "off", "off")}
    assert clusters.topic.startswith("drill-")


def test_a_link_that_would_mirror_the_drill_is_refused() -> None:
    """Its mirror would write the same copy."""
    config = own(topics=[".*"])
    with pytest.raises(UsageError, match=r"dr would mirror the topic of the drill, drill-.*-orders"):
        OwnClusters(config, config.links[0])
    excluded = own(topics=[".*"], exclude=["drill-.*"])
    OwnClusters(excluded, excluded.links[0])


def test_one_cluster_is_no_drill() -> None:
    """A source that is lost takes its target along."""
    config = load_config(
        {
            "clusters": {"paris": {"bootstrap.servers": "127.0.0.1:1"}},
            "links": [
                {
                    "source": "paris", "target": "paris", "topics": ["orders"],
                    "naming": {"match": "(.*)", "to": "$1_REPLICA"},
                }
            ],
        }
    )  # fmt: skip
    with pytest.raises(UsageError, match="one cluster"):
        OwnClusters(config, config.links[0])


def test_the_evidence_has_rpo_and_rto_of_each_switch() -> None:
    """In Markdown as in JSON."""
    report = DrillReport(
        passed=True, rpo_records=7, rto_seconds=2.5, cuts=(), stages=(), clusters="those of link dr",
        switches=(
            DrillSwitch(name="failover", rpo_records=7, rto_seconds=2.5),
            DrillSwitch(name="failback", rpo_records=0, rto_seconds=4.0),
        ),
        started="2026-11-26T22:45:21+00:00", host="h1", version="0.1.0",
        configuration={"links": [{"name": "dr", "lanes": 3}]},
    )  # fmt: skip

    # what an auditor asks for
    assert "Started at 2026-11-26T22:45:21+00:00 on h1, by eomirror 0.1.0." in report.markdown()
    assert "\n```yaml\nlinks:\n- name: dr\n  lanes: 3\n```\n" in report.markdown()
    assert "| failover | 7 | 2.5 |" in report.markdown()
    assert "| failback | 0 | 4.0 |" in report.markdown()
    assert report.as_dict()["switches"][1]["rto_seconds"] == 4.0
    # a drill moves no group, and groups take most of the time of a failover that has many
    for text in (report.markdown(), report.as_dict()["rto_scope"]):
        assert "no consumer group was moved" in text
