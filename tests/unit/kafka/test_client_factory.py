"""What is said of a client that librdkafka does not make: it reads certificates and keys then, and connects nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from eomirror.config import Cluster, Link, Secret
from eomirror.errors import ClusterError, UnreachableError
from eomirror.kafka.client_factory import create_client
from eomirror.lane.spec import AssignedPartition, Ending, LaneSpec
from eomirror.spark.attempt import run_lane
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from pathlib import Path

OFFLINE = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "ssl", "log_level": 0}
HALF = "-----BEGIN CERTIFICATE-----\nAAAA\n"


def cluster(**properties: str | Secret) -> Cluster:
    """One without a listener."""
    return Cluster("west", {**OFFLINE, **{key.replace("_", "."): value for key, value in properties.items()}})


def refused(one: Cluster, kind: Any = Producer) -> ClusterError:
    """What is said of its client."""
    plain = {
        key: value.reveal() if isinstance(value, Secret) else value for key, value in one.properties.items()
    }
    extra = {"group.id": "none"} if kind is Consumer else {}
    with pytest.raises(ClusterError) as caught:
        create_client(kind, one, {**plain, **extra})
    return caught.value


@pytest.mark.parametrize("kind", [Producer, Consumer, AdminClient])
@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_file_that_is_away_or_half_written_passes(tmp_path: Path, name: str, kind: Any) -> None:
    """A certificate that is being replaced is no fault of the configuration; the property is named."""
    path = tmp_path / "one.pem"
    for text in (None, "", HALF):
        if text is not None:
            path.write_text(text)
        error = refused(cluster(**{name: str(path)}), kind)
        assert isinstance(error, UnreachableError)
        assert name in error.message


@pytest.mark.parametrize("kind", [Producer, Consumer, AdminClient])
def test_what_a_client_says_does_not_go_to_stderr(capfd: pytest.CaptureFixture[str], kind: Any) -> None:
    """No broker listens there: librdkafka writes a line to stderr for each try, unless it has a callback."""
    extra = {"group.id": "none"} if kind is Consumer else {}
    one = Cluster("west", {"bootstrap.servers": "127.0.0.1:1"})
    client = create_client(kind, one, {**one.properties, **extra})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    assert not capfd.readouterr().err


def test_a_key_store_that_is_away_passes(tmp_path: Path) -> None:
    """The same, in words of its own."""
    password = Secret("correct horse")
    for text in (None, "nothing of the kind"):
        path = tmp_path / "one.p12"
        if text is not None:
            path.write_text(text)
        error = refused(cluster(ssl_keystore_location=str(path), ssl_keystore_password=password))
        assert isinstance(error, UnreachableError)


def test_a_property_that_is_wrong_stays_wrong(tmp_path: Path) -> None:
    """Only a person can help; that a file is named among the words makes no difference."""
    for properties in (
        {"linger.ms": "-7"},
        {"ssl.cipher.suites": "none"},
        {"ssl.keystore.location": str(tmp_path / "one.p12")},  # without its password
    ):
        error = refused(cluster(**properties))
        assert not isinstance(error, UnreachableError)
        assert "eomirror check" in error.fix


def test_a_reason_that_shows_a_secret_is_left_out() -> None:
    """The value of a property that is refused may be quoted."""
    error = refused(Cluster("west", {**OFFLINE, "linger.ms": Secret("-77777")}))

    assert "-77777" not in str(error)


def test_a_lane_whose_key_is_away_is_tried_again(tmp_path: Path) -> None:
    """F30: a rotation that a rebuild falls into is waited for, and not taken for a refused configuration."""
    west = cluster(ssl_key_location=str(tmp_path / "gone.key"))
    spec = LaneSpec(
        link=Link(name="one", source="west", target="west", topics=("t",)),
        source=west,
        target=west,
        source_cluster_id="a",
        target_cluster_id="b",
        run="r",
        generation=1,
        lane=0,
        epoch=1,
        attempt=1,
        seconds=60.0,
        partitions=(AssignedPartition(SourcePartition("t", 0), "i", "west.t", "j"),),
    )
    report = run_lane(spec, mailbox=None)  # type: ignore[arg-type]  it does not come so far

    assert report.ending is Ending.REBUILD
    assert "ssl.key.location" in report.reason
