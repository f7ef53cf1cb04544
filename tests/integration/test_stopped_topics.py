"""`eomirror status` of a topic that its mirror has stopped: control holds the reason until the topic goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from eomirror.records.control import ControlView, decode_control
from support.links.link import TestLink, alter_topic
from support.traffic.records import read_committed, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(240)]


def status(link: TestLink, *arguments: str) -> str:
    """What the command writes on stdout; it must end with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "status", str(link.path), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def seen(link: TestLink) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The link, and partition 0 of each topic by its last word."""
    (found,) = json.loads(status(link, "-o", "json"))["links"]
    return found, {each["topic"].rsplit(".", 1)[1]: each["partitions"][0] for each in found["topics"]}


def control(link: TestLink) -> ControlView:
    """What control says."""
    (records,) = read_committed(link.west, f"eomirror.{link.name}.control").values()
    return decode_control([(key, value, "control-0") for key, value, _, _ in records])


def refuse(link: TestLink, word: str) -> int:
    """The copy takes no record from more than an hour ahead; writes one of these, gives its timestamp."""
    alter_topic(link.west, link.copy(word), message_timestamp_after_max_ms="3600000")
    time.sleep(1.0)
    future = int(time.time() * 1000) + 7_200_000
    link.write_these(word, [(b"future", b"v", future, ())], abort_every=0)
    return future


def test_a_stopped_topic_is_named_until_it_goes_on(link: TestLink) -> None:
    """With reason and fix, while the mirror runs and when it is gone; others are well, and so is a mended topic."""
    link.create("poisoned", message_timestamp_after_max_ms=str(2**63 - 1))
    link.create("healthy")
    link.write("poisoned", 50)
    link.write("healthy", 50)
    with link.running() as run:
        run.wait(lambda: link.whole("poisoned", "healthy"))
        future = refuse(link, "poisoned")
        run.wait(lambda: run.stopped.get(link.topic("poisoned")))
        link.write("poisoned", 20)

        run.wait(lambda: control(link).stopped)
        found, topics = seen(link)

        (stop,) = found["stopped"]
        assert found["state"] == "running"
        assert (stop["topic"], stop["exit_code"]) == (link.topic("poisoned"), 1)
        assert str(future) in stop["reason"]
        assert stop["fix"]
        assert (topics["poisoned"]["stopped"], topics["poisoned"]["problem"]) == (True, stop["reason"])
        assert topics["poisoned"]["lag_records"] >= 20
        assert (topics["healthy"]["stopped"], topics["healthy"]["problem"]) == (False, "")
    table = " ".join(status(link, "-o", "table").split())
    assert f"stopped: {link.topic('poisoned')}: " in table
    assert "fix: " in table
    assert seen(link)[0]["state"] == "stopped"

    # a run that starts gives the copy the settings of its source, and the record fits again
    assert link.stopped() == (0, {})
    found, topics = seen(link)
    assert found["stopped"] == []
    assert (topics["poisoned"]["stopped"], topics["poisoned"]["problem"]) == (False, "")
    assert (found["lag_records"], control(link).stopped) == (0, ())


def test_a_topic_that_goes_on_under_a_running_mirror_is_taken_out(link: TestLink) -> None:
    """And so is one that the link does not mirror any more."""
    words = ("poisoned", "dropped")
    for word in words:
        link.create(word, message_timestamp_after_max_ms=str(2**63 - 1))
        link.write(word, 50)
    with link.running() as run:
        run.wait(lambda: link.whole(*words))
        for word in words:
            refuse(link, word)
        run.wait(lambda: len(run.stopped) == len(words))
    assert {each["topic"] for each in seen(link)[0]["stopped"]} == {link.topic(word) for word in words}

    link.settings["exclude"] = [link.topic("dropped")]
    with link.running() as run:
        run.wait(lambda: link.whole("poisoned"))
        run.wait(lambda: not control(link).stopped)
    assert seen(link)[0]["stopped"] == []


def test_what_control_shows_of_a_stop_is_the_owners(link: TestLink) -> None:
    """EO-10: a driver that has lost its link writes nothing of its stopped topics any more."""
    link.create("poisoned", message_timestamp_after_max_ms=str(2**63 - 1))
    link.write("poisoned", 50)
    with link.running() as first:
        first.wait(lambda: link.whole("poisoned"))
        with link.running(take_over=True) as second:
            wait_for(lambda: first.error is not None, 60)
            refuse(link, "poisoned")
            second.wait(lambda: control(link).stopped)
            (stop,) = control(link).stopped
            generation = control(link).generation
            assert generation is not None
            assert stop.run == generation.run
