"""The runbook names the user's own link, clusters and file, and only commands that exist."""

from __future__ import annotations

import re

import pytest

from eomirror import load_config
from eomirror.cli.app import cli
from eomirror.failover.report import runbook

THERE = {"source": "east", "target": "west", "topics": ["orders"]}
BACK = {
    "name": "back", "source": "west", "target": "east", "topics": [r"east\.orders"],
    "naming": {"match": r"east\.(.*)", "to": "$1"},
}  # fmt: skip


@pytest.mark.parametrize("links", [[THERE], [THERE, BACK]], ids=["one way", "with a link back"])
def test_the_runbook_is_for_this_configuration(links: list[dict[str, object]]) -> None:
    """Every command and option in it is one that the command line has."""
    config = load_config(
        {
            "clusters": {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:2"}},
            "links": links,
        }
    )

    text = runbook(config, config.links[0], "my mirror.yaml")

    assert "w:2" in text
    calls = re.findall(
        r"eomirror ([a-z-]+) ('my mirror.yaml' --link (?:'east->west'|back|east-west-back))([^\n]*)", text
    )
    assert {verb for verb, _, _ in calls} >= {
        "readiness", "failover", "reverse", "run", "restore", "failback", "cutover", "unfence", "history",
    }  # fmt: skip
    for verb, _, rest in calls:
        command = cli.get_command(None, verb)  # type: ignore[arg-type]  the group does not use the context
        assert command is not None, verb
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest.partition("#")[0])) <= known, (verb, rest)
    assert ("--link back" if len(links) == 2 else "--link east-west-back") in text


def test_the_runbook_has_the_step_for_a_transaction_that_the_crash_left_open() -> None:
    """With the address of the old source; and it says that a cutover which waits stops no producer."""
    config = load_config(
        {
            "clusters": {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:2"}},
            "links": [THERE],
        }
    )

    text = runbook(config, config.links[0], "mirror.yaml")

    assert "kafka-transactions.sh --bootstrap-server e:1 abort --topic TOPIC" in text
    assert "`--method wait` stops no producer" in text
