"""The line between a lane and the driver, over a real socket, with strangers on it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.clock import SYSTEM_CLOCK, new_token
from eomirror.config import Cluster, Link
from eomirror.driver.channel import AttemptId, LaneChannel
from eomirror.lane.measures import Histogram, LaneMeasures
from eomirror.lane.spec import (
    AssignedPartition,
    GroupOffset,
    LaneProgress,
    LaneSpec,
    PartitionProgress,
    Released,
    StoppedTopic,
    StopReason,
)
from eomirror.plane.protocol import Serving
from eomirror.spark import mailbox as lane_mailbox
from eomirror.spark.frames import (
    MAX_FRAME_BYTES,
    NONCE_BYTES,
    FrameCodec,
    FrameError,
    decode_added,
    decode_groups,
    decode_progress,
    encode_added,
    encode_groups,
    encode_progress,
    encode_released,
    greeting,
)
from eomirror.spark.mailbox import ChannelMailbox, NoLineError
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def spec(epoch: int = 1, attempt: int = 1) -> LaneSpec:
    """An attempt of lane 3."""
    return LaneSpec(
        link=Link(name="a->b", source="a", target="b", topics=(".*",)),
        source=Cluster("a", {}),
        target=Cluster("b", {}),
        source_cluster_id="",
        target_cluster_id="",
        run="run",
        generation=1,
        lane=3,
        epoch=epoch,
        attempt=attempt,
        seconds=60,
        partitions=(),
    )


def progress(position: int = 1, partition: int = 0, **facts: Any) -> LaneProgress:
    """Progress of one partition of topic t."""
    item = PartitionProgress(topic="t", partition=partition, position=position, lso=position + 5)
    return LaneProgress(lane=3, epoch=1, state="OPEN", partitions=(item,), **facts)


def added(partition: int = 0) -> AssignedPartition:
    """A partition to add."""
    return AssignedPartition(SourcePartition("t", partition), "id", "a.t", "target id")


def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    """Wait until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)


class Driver:
    """A channel and what it heard."""

    def __init__(self) -> None:
        self.token = new_token()
        self.heard: list[tuple[AttemptId, LaneProgress]] = []
        self.hellos: list[AttemptId] = []
        self.greeting: list[dict[str, Any]] = []
        self.goodbyes: list[tuple[AttemptId, bool]] = []
        self.channel = LaneChannel(
            "127.0.0.1",
            0,
            token=self.token,
            on_hello=self._hello,
            on_progress=lambda *said: self.heard.append(said),
            on_goodbye=lambda *said: self.goodbyes.append(said),
        )

    def _hello(self, attempt: AttemptId) -> list[dict[str, Any]]:
        self.hellos.append(attempt)
        return self.greeting

    def connect(self, epoch: int = 1, attempt: int = 1, token: str | None = None) -> ChannelMailbox:
        """A lane's mailbox."""
        return ChannelMailbox.connect(
            "127.0.0.1",
            self.channel.port,
            token=token or self.token,
            spec=spec(epoch, attempt),
            clock=SYSTEM_CLOCK,
            seconds=3,
        )


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A listening driver."""
    made = Driver()
    yield made
    made.channel.close()


def codecs() -> tuple[FrameCodec, FrameCodec]:
    """Both ends of one line."""
    token, nonces = new_token(), {"driver_nonce": b"d" * 32, "lane_nonce": b"l" * 32}
    return FrameCodec(token, **nonces, is_driver=True), FrameCodec(token, **nonces, is_driver=False)


def test_frames_arrive_in_order_whatever_the_pieces() -> None:
    """The decoder does not care where the network cuts the bytes."""
    sender, receiver = codecs()
    stream = b"".join(sender.encode({"n": number}) for number in range(5))
    got = [message for at in range(len(stream)) for message in receiver.feed(stream[at : at + 1])]
    assert got == [{"n": number} for number in range(5)]


@pytest.mark.parametrize("damage", ["replayed", "altered", "reflected", "long", "wrong token"])
def test_a_frame_that_is_not_the_next_of_the_other_side_is_refused(damage: str) -> None:
    """Neither a replay nor a change nor our own frame sent back nor a huge length is taken."""
    sender, receiver = codecs()
    frame = sender.encode({"type": "stop"})
    if damage == "replayed":
        receiver.feed(frame)
    elif damage == "altered":
        frame = frame.replace(b"stop", b"ping")
    elif damage == "reflected":
        frame = receiver.encode({"type": "stop"})
    elif damage == "long":
        frame = (MAX_FRAME_BYTES + 1).to_bytes(4, "big")
    else:
        _, receiver = codecs()
    with pytest.raises(FrameError):
        receiver.feed(frame)


def test_what_leaves_a_lane_and_what_comes_keep_their_order(driver: Driver) -> None:
    """EO-2: what was given away is not mirrored, also if the driver made a message before; what comes back is."""
    mailbox = driver.connect()
    zero, one = (Released(frozenset({SourcePartition("t", n)}), n + 2) for n in range(2))
    driver.channel.send(
        "a->b",
        3,
        [
            *encode_added([added(0)]),
            encode_released(zero),
            encode_released(one),
            *encode_added([added(0), replace(added(1), generation=4)]),
        ],
    )
    # the last of them has come
    until(lambda: any(item.source.partition == 1 for item in mailbox._added) or mailbox.stop())
    assert mailbox.released() == Released(zero.sources | one.sources, 3)
    assert mailbox.released() is None
    assert [item.source.partition for item in mailbox.added()] == [1]
    mailbox.close()


def test_progress_and_partitions_survive_the_wire_in_pieces_of_bounded_size() -> None:
    """Ten thousand changed partitions become several frames that together say the same."""
    items = tuple(
        PartitionProgress(topic="t" * 200, partition=n, position=n, lso=None, lag_seconds=0.5)
        for n in range(10_000)
    )
    gone = StoppedTopic("gone", "adopt it", exit_code=4, retried=True)
    said = LaneProgress(
        lane=1, epoch=2, state="OPEN", records=7, partitions=items, stopped_topics={"x": gone},
        serving=Serving("client", "why", 1.5, "waits"),
        measures=LaneMeasures(1, 2, Histogram((3,), 0.5), Histogram(), Histogram((4, 5), 6.0), 7),
    )  # fmt: skip
    sender, receiver = codecs()
    frames = [sender.encode(message) for message in encode_progress(said)]
    assert max(map(len, frames)) < MAX_FRAME_BYTES
    heard = [decode_progress(message) for frame in frames for message in receiver.feed(frame)]
    assert tuple(item for one in heard for item in one.partitions) == items
    assert {(one.records, one.stopped_topics["x"], one.measures, one.serving) for one in heard} == {
        (7, gone, said.measures, said.serving)
    }
    many = [added(n) for n in range(2500)]
    assert [item for message in encode_added(many) for item in decode_added(message)] == many
    assert encode_added([]) == []
    with pytest.raises(FrameError):
        decode_progress({"type": "progress", "lane": 1})


@pytest.mark.parametrize(
    ("group", "metadata"), [("g" * 100, "m" * 4096), ("g", "\x01" * 32_767), ("g" * 32_767, "")]
)
def test_what_groups_commit_beside_their_offsets_never_makes_a_frame_too_long(
    group: str, metadata: str
) -> None:
    """As much as a broker takes, for many partitions at once: consumers keep what they have done out of order there."""
    said = tuple(GroupOffset(group, SourcePartition("t", n), n, None, metadata) for n in range(1200))
    sender, receiver = codecs()
    frames = [sender.encode(message) for message in encode_groups(said)]
    heard = [item for frame in frames for message in receiver.feed(frame) for item in decode_groups(message)]
    assert tuple(heard) == said
    assert len(encode_groups([GroupOffset("g", SourcePartition("t", n), n) for n in range(3000)])) == 3
    assert encode_groups([]) == []


def test_progress_goes_up_and_orders_come_down(driver: Driver) -> None:
    """The whole conversation of an attempt."""
    mailbox = driver.connect()
    assert mailbox.stop() is None
    mailbox.report(progress(position=10, records=4))
    until(lambda: driver.heard)
    assert driver.heard[0][0] == ("a->b", 3, 1, 1)
    assert driver.heard[0][1].partitions[0].position == 10
    driver.channel.send("a->b", 3, encode_added([added(1)]))
    got: list[AssignedPartition] = []
    until(lambda: got.extend(mailbox.added()) or got)
    assert got == [added(1)]
    assert mailbox.added() == ()
    driver.channel.send("a->b", 3, [{"type": "stop", "reason": "reconfigure"}])
    until(lambda: mailbox.stop() is StopReason.RECONFIGURE)
    mailbox.close()


def test_what_an_attempt_must_know_it_learns_when_it_connects(driver: Driver) -> None:
    """A stop that was asked for before the worker had started is not missed."""
    driver.greeting = [{"type": "stop", "reason": "shutdown"}, *encode_added([added(2)])]
    mailbox = driver.connect()
    until(lambda: mailbox.stop() is StopReason.SHUTDOWN)
    until(lambda: mailbox.added() == (added(2),))
    mailbox.close()


def test_a_lane_that_is_to_end_does_not_move(driver: Driver) -> None:
    """An order to move follows a stop that it crossed; any other order replaces it."""
    move, stop = ({"type": "stop", "reason": reason} for reason in ("move", "shutdown"))
    mailbox = driver.connect()
    driver.channel.send("a->b", 3, [move])
    until(lambda: mailbox.stop() is StopReason.MOVE)
    driver.channel.send("a->b", 3, [stop, move, *encode_added([added(1)])])
    until(lambda: mailbox.added() == (added(1),))
    assert mailbox.stop() is StopReason.SHUTDOWN
    mailbox.close()


def test_a_lane_can_wait_for_what_the_driver_says(driver: Driver) -> None:
    """An idle lane sleeps until its descriptor can be read; while a report is unsent it has to look itself."""
    mailbox = driver.connect()
    until(lambda: mailbox.stop() is None and mailbox.descriptor() is not None)
    line = mailbox.descriptor()
    assert select.select([line], [], [], 0)[0] == []
    driver.channel.send("a->b", 3, [{"type": "stop", "reason": "shutdown"}])
    assert select.select([line], [], [], 10)[0] == [line]
    assert mailbox.stop() is StopReason.SHUTDOWN
    for _ in range(2):
        mailbox.report(progress(position=10, records=4))
    assert mailbox.descriptor() is None
    mailbox.close()
    assert mailbox.descriptor() is None


def test_a_busy_line_loses_no_position(driver: Driver) -> None:
    """Reports faster than the line carries them are merged; close sends the rest."""
    mailbox = driver.connect()
    for position in range(1, 2001):
        mailbox.report(progress(position=position, partition=position % 3, records=position))
    mailbox.close()
    until(lambda: driver.heard and driver.heard[-1][1].records == 2000)
    assert len(driver.heard) < 100
    newest: dict[int, int] = {}
    for _, said in driver.heard:
        newest.update({item.partition: item.position for item in said.partitions})
    assert newest == {0: 1998, 1: 1999, 2: 2000}


def test_reporting_never_blocks_when_the_driver_does_not_read() -> None:
    """A driver that hangs costs the lane nothing but its reports."""
    lane_end, driver_end = socket.socketpair()
    _, codec = codecs()
    mailbox = ChannelMailbox(lane_end, codec, SYSTEM_CLOCK)
    items = tuple(PartitionProgress(topic="t" * 200, partition=n, position=n) for n in range(3000))
    slowest = 0.0
    for number in range(20):
        before = time.monotonic()
        mailbox.report(LaneProgress(lane=0, epoch=1, state="OPEN", records=number, partitions=items))
        slowest = max(slowest, time.monotonic() - before)
        time.sleep(0.02)
    assert slowest < 0.5
    driver_end.close()
    mailbox.close()


def test_a_lane_that_lost_its_driver_stops_after_a_grace(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may finish a transaction, and then hands back."""
    monkeypatch.setattr(lane_mailbox, "GRACE_SECONDS", 0.3)
    mailbox = driver.connect()
    driver.channel.close()
    lost = time.monotonic()
    until(lambda: mailbox.stop() is StopReason.SHUTDOWN)
    assert time.monotonic() - lost > 0.2
    mailbox.report(progress())
    mailbox.close()


def test_a_driver_that_is_silent_for_long_is_lost(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that vanished sends no FIN; its pings are missed instead."""
    monkeypatch.setattr(lane_mailbox, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(lane_mailbox, "GRACE_SECONDS", 0.0)
    mailbox = driver.connect()
    until(lambda: mailbox.stop() is StopReason.SHUTDOWN)


def test_a_later_attempt_takes_the_line_and_an_earlier_one_cannot(driver: Driver) -> None:
    """Orders go to the newest attempt; a zombie is hung up on."""
    old = driver.connect(attempt=1)
    new = driver.connect(attempt=2)
    until(lambda: old.stop() is StopReason.SHUTDOWN)
    with pytest.raises(NoLineError):
        driver.connect(attempt=1)
    driver.channel.send("a->b", 3, encode_added([added()]))
    until(lambda: new.added() == (added(),))
    new.close()


def test_an_attempt_of_another_run_connects_once_the_lane_is_forgotten(driver: Driver) -> None:
    """Its numbers begin anew; a connection of before may stay open for long, as to a machine that is gone."""
    old = driver.connect(epoch=5)
    driver.channel.forget("a->b", 3)
    assert driver.channel.wait_disconnected("a->b", 3, 10)
    new = driver.connect(epoch=1)
    driver.channel.send("a->b", 3, encode_added([added()]))
    until(lambda: new.added() == (added(),))
    new.close()
    old.close()


def test_an_epoch_that_goes_on_keeps_its_line(driver: Driver) -> None:
    """Orders go to the next epoch; what the one before still says is heard."""
    old = driver.connect(epoch=1)
    new = driver.connect(epoch=2)
    driver.channel.send("a->b", 3, encode_added([added()]))
    until(lambda: new.added() == (added(),))
    assert old.added() == ()
    old.report(progress(records=7))
    until(lambda: 7 in [said.records for _, said in driver.heard])
    assert old.stop() is None
    driver.channel.send("a->b", 3, [{"type": "stop", "reason": "shutdown"}], all_attempts=True)
    until(lambda: old.stop() is new.stop() is StopReason.SHUTDOWN)
    assert not driver.channel.wait_disconnected("a->b", 3, 0.05)
    new.close()
    assert not driver.channel.wait_disconnected("a->b", 3, 0.05)
    old.close()
    assert driver.channel.wait_disconnected("a->b", 3, 10)


def test_a_lane_that_is_killed_does_not_take_its_leave(driver: Driver) -> None:
    """The driver begins it elsewhere at once; one that ends in order has a result on the way."""
    killed = driver.connect(attempt=1)
    assert killed._line is not None
    killed._line.close()
    until(lambda: driver.goodbyes == [(AttemptId("a->b", 3, 1, 1), False)])
    driver.connect(attempt=2).close()
    until(lambda: driver.goodbyes[1:] == [(AttemptId("a->b", 3, 1, 2), True)])


def test_a_channel_that_closes_hangs_up_on_everybody(driver: Driver) -> None:
    """Also on an epoch that goes on."""
    old, new = driver.connect(epoch=1), driver.connect(epoch=2)
    driver.channel.close()
    until(lambda: old.stop() is new.stop() is StopReason.SHUTDOWN)


def test_strangers_get_nowhere(driver: Driver) -> None:
    """Junk, silence, HTTP and a wrong token disturb no lane."""
    address = ("127.0.0.1", driver.channel.port)
    silent = [socket.create_connection(address) for _ in range(20)]
    for junk in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 5, b"\x80\x04\x95" * 50, b"\xff" * 500):
        with socket.create_connection(address) as stranger:
            stranger.settimeout(5)
            stranger.sendall(junk)
            try:
                while stranger.recv(1000):
                    pass
            except OSError:
                pass  # reset: hung up on, too
    with pytest.raises(NoLineError):
        driver.connect(token=new_token())
    mailbox = driver.connect()
    mailbox.report(progress())
    until(lambda: driver.heard)
    assert driver.hellos == [("a->b", 3, 1, 1)]
    mailbox.close()
    for one in silent:
        one.close()


class Crowd:
    """Strangers who hold connections open, and connect again as soon as they are hung up on."""

    def __init__(self, port: int, count: int, says: bytes) -> None:
        self._port = port
        self._says = says
        self._over = threading.Event()
        self.came = 0
        self._threads = [threading.Thread(target=self._stay, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _stay(self) -> None:
        while not self._over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=5) as line:
                    self.came += 1
                    line.sendall(self._says)
                    line.settimeout(0.2)
                    self._hold(line)
            except OSError:
                continue

    def _hold(self, line: socket.socket) -> None:
        while not self._over.is_set():
            try:
                if not line.recv(1000):
                    return
            except TimeoutError:
                # slow, but not silent
                line.sendall(b"x")

    def leave(self) -> None:
        """All go."""
        self._over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("count", [64, 100])
@pytest.mark.parametrize("says", [b"", b"GET /", b"\0" * 63])
def test_lanes_join_while_strangers_hold_every_place(driver: Driver, count: int, says: bytes) -> None:
    """Eight lanes at once, each at its first connection or soon after; the strangers come back all the time."""
    crowd = Crowd(driver.channel.port, count, says)
    joined: list[ChannelMailbox] = []

    def join(lane: int) -> None:
        made = ChannelMailbox.connect(
            "127.0.0.1", driver.channel.port, token=driver.token, spec=replace(spec(), lane=lane),
            clock=SYSTEM_CLOCK, seconds=4,
        )  # fmt: skip
        joined.append(made)

    try:
        until(lambda: crowd.came >= count)
        lanes = [threading.Thread(target=join, args=(lane,)) for lane in range(8)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        assert sorted(attempt.lane for attempt in driver.hellos) == list(range(8))
        for mailbox in joined:
            mailbox.report(progress())
        until(lambda: len(driver.heard) == 8)
    finally:
        crowd.leave()
        for mailbox in joined:
            mailbox.close()


def test_the_oldest_stranger_goes(driver: Driver) -> None:
    """Of 65 silent ones the first is hung up on, before its time is over; the others stay."""
    address = ("127.0.0.1", driver.channel.port)
    silent = [socket.create_connection(address) for _ in range(64)]
    until(lambda: len(driver.channel._strangers) == 64)
    silent.append(socket.create_connection(address))
    silent[0].settimeout(2)
    assert silent[0].recv(1) == b""
    for one in silent[1:]:
        one.settimeout(0)
        with pytest.raises(BlockingIOError):
            one.recv(1)
    for one in silent:
        one.close()


def test_a_lane_that_has_greeted_is_no_stranger(driver: Driver) -> None:
    """Any number of strangers may come between its greeting and its hello."""
    address = ("127.0.0.1", driver.channel.port)
    nonce = bytes.fromhex(new_token())
    with socket.create_connection(address) as line:
        line.sendall(greeting(driver.token, nonce))
        line.settimeout(5)
        driver_nonce = line.recv(NONCE_BYTES)
        crowd = [socket.create_connection(address) for _ in range(130)]
        until(lambda: len(driver.channel._strangers) == 64)
        codec = FrameCodec(driver.token, driver_nonce=driver_nonce, lane_nonce=nonce, is_driver=False)
        line.sendall(codec.encode({"type": "hello", "link": "l", "lane": 1, "epoch": 1, "attempt": 1}))
        assert codec.feed(line.recv(1000)) == [{"type": "welcome"}]
        # the same greeting once more, as an attacker may have recorded it
        with socket.create_connection(address) as again:
            again.settimeout(5)
            again.sendall(greeting(driver.token, nonce))
            assert again.recv(1) == b""
        for one in crowd:
            one.close()


def test_a_stranger_hears_nothing_and_is_read_for_64_bytes_only(driver: Driver) -> None:
    """Megabytes of a stranger's frame are never kept."""
    with socket.create_connection(("127.0.0.1", driver.channel.port)) as line:
        line.settimeout(5)
        line.sendall((MAX_FRAME_BYTES - 1).to_bytes(4, "big") * 16)
        with contextlib.suppress(ConnectionResetError):
            assert line.recv(1) == b""


def test_a_port_without_a_listener_is_an_error_that_says_where() -> None:
    """The lane's report will name the address, for the operator of a firewall."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NoLineError, match=f"127.0.0.1:{port}"):
        ChannelMailbox.connect(
            "127.0.0.1", port, token=new_token(), spec=spec(), clock=SYSTEM_CLOCK, seconds=0.2
        )


def test_closing_ends_all_threads(driver: Driver) -> None:
    """Nothing of the channel outlives it."""
    mailboxes = [driver.connect(attempt=1)]
    driver.channel.close()
    until(lambda: not [one for one in threading.enumerate() if one.name in {"lane-channel", "lane-line"}])
    mailboxes[0].close()
