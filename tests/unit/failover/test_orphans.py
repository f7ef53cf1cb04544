"""Orphans: every partition counts, and none is left behind unseen."""

from __future__ import annotations

import base64
import os
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import structlog

from eomirror.clock import SYSTEM_CLOCK
from eomirror.errors import ClusterError, DataLossError, NotReadyError, UnreachableError, UsageError
from eomirror.failover import orphan_reader, orphans
from eomirror.failover.orphan_reader import OrphanRange, OrphanReader, Reading
from eomirror.failover.orphan_sinks import ORPHAN_HEADER, OrphanFile, OrphanTopic
from eomirror.failover.orphans import Standing, orphan_ranges, refuse_forgotten, standing
from eomirror.failover.reversal import _Reverse
from eomirror.kafka.errors import Action
from eomirror.link.source_comparison import ChangedSource, SourceState
from eomirror.records.control import ControlView
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.promotion import Cut, Promotion, PromotionHistory, Restoration, Reversal
from eomirror.recovery.copy_end import CopyEnd, whole
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

OLD, NEW = SourcePartition("orders", 0), SourcePartition("orders", 1)


def cut(*, topic: str = "orders", position: int = 20, target: str = "east.orders", end: int = 18) -> Cut:
    return Cut(
        topic=topic, partition=0, topic_id="t", position=position, target_topic=target, target_topic_id="u",
        target_end=end, timestamp=0,
    )  # fmt: skip


def promotion(*cuts: Cut) -> Promotion:
    return Promotion(
        number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=cuts, started=0, timestamp=0,
    )  # fmt: skip


REVERSAL = Reversal(number=1, link="back", ends={OLD: 25}, run="r", timestamp=0)
RESTORATION = Restoration(number=1, orphans="keep", records=5, place="", run="r", timestamp=0)


def dealt(*ranges: tuple[int, int, str]) -> Restoration:
    return replace(RESTORATION, ranges={OLD: tuple(DealtRange(*each) for each in ranges)})


def test_a_partition_without_a_cut_is_an_orphan_as_a_whole() -> None:
    """The mirror had not found it; and one that ends at its cut has no orphans."""
    assert orphan_ranges(promotion(cut()), {OLD: 20, NEW: 9}, {NEW: 2}) == [
        OrphanRange(source=NEW, start=2, end=9, target="b")
    ]


class Judge:
    """The extension's client: the offsets whose records a link has copied, and how far it has read."""

    def __init__(self, *copied: tuple[int, int], error: Exception | None = None) -> None:
        self.copied_ranges, self.error = list(copied), error
        self.asked: list[tuple[int, int]] = []

    def copied(
        self, _: object, offsets: tuple[int, int], origin: str, __: float
    ) -> tuple[list[tuple[int, int]], int]:
        assert origin == "b"
        if self.error:
            raise self.error
        self.asked.append(offsets)
        return [each for each in self.copied_ranges if each[0] < offsets[1]], offsets[1]


def judged(
    monkeypatch: pytest.MonkeyPatch, judge: Judge, claims: dict[int, str | None], *, target: str = "b",
    reading: Reading | None = None,
) -> set[int]:  # fmt: skip
    """Offsets that count as orphans, of a log whose records claim to be copies from these clusters."""

    class Reader:
        """One record at each offset."""

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def connect(self, _: Any) -> None: ...

        def read(self, _: Any, take: Any, **__: Any) -> None:
            for offset, claimed in claims.items():
                headers = [("eomirror.hops", (claimed or "").encode())] if claimed else []
                take(
                    None,
                    SimpleNamespace(
                        offset=lambda offset=offset: offset, headers=lambda headers=headers: headers, topic=str,
                        key=bytes, value=bytes,
                    ),
                )  # fmt: skip

        def close(self) -> None: ...

    monkeypatch.setattr(orphan_reader, "PartitionReader", Reader)
    monkeypatch.setattr(orphan_reader, "ClusterAdmin", Reader)
    monkeypatch.setattr(orphan_reader, "log_starts", lambda *_: {OLD: 0})
    monkeypatch.setattr(orphan_reader, "last_hop", lambda header, *_: header.decode())
    monkeypatch.setattr(orphan_reader, "extension_client", lambda *_: judge)
    found: set[int] = set()
    sink: Any = SimpleNamespace(
        resume=lambda *_: {}, finish=lambda: None, close=lambda: None,
        write=lambda _, message, __: found.add(message.offset()),
    )  # fmt: skip
    ranges = [OrphanRange(source=OLD, start=0, end=len(claims), target=target)]
    cluster: Any = SimpleNamespace(alias="east")
    OrphanReader(cluster, "c", SYSTEM_CLOCK).write(ranges, sink, reading)
    return found


def test_a_record_that_a_link_back_has_brought_is_no_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link back that ran before the reversal has written among the orphans; other links and applications, too."""
    judge = Judge((1, 2))

    assert judged(monkeypatch, judge, {0: None, 1: "b", 2: "c", 3: None}) == {0, 2, 3}
    # only a header that names the target is worth the question
    assert judge.asked == [(1, 4)]
    assert judged(monkeypatch, judge, {0: None, 1: "b"}, target="") == {0, 1}


def test_a_record_that_was_emitted_again_with_a_header_is_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark decides, as in a lane; one question serves many records."""
    judge = Judge((0, 2), (3, 4))

    reading = Reading()

    assert judged(monkeypatch, judge, dict.fromkeys(range(6), "b"), reading=reading) == {2, 4, 5}
    assert judge.asked == [(0, 6)]
    # a merge leaves these to the native plane: librdkafka reports no producer ids
    assert reading.emitted_again == 3


def test_the_header_alone_decides_where_the_mark_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension's client serves no cluster with Kerberos; the log says what this means."""
    judge = Judge(error=ClusterError("the extension's client cannot honour sasl.mechanism"))

    with structlog.testing.capture_logs() as logs:
        assert judged(monkeypatch, judge, {0: "b", 1: None, 2: "b"}) == {1}

    (said,) = logs
    assert (said["event"], said["cluster"]) == ("copies_judged_by_header_alone", "east")
    with pytest.raises(UnreachableError):
        judged(monkeypatch, Judge(error=UnreachableError("no leader")), {0: "b"})


@pytest.mark.parametrize(
    ("found", "records", "refused"),
    [
        (PromotionHistory({1: promotion(cut())}, {1: REVERSAL}), 5, True),
        (PromotionHistory({1: promotion(cut())}, {1: REVERSAL}), 0, False),
        (PromotionHistory({1: promotion(cut())}, {1: REVERSAL}, {1: RESTORATION}), 5, False),
        (PromotionHistory({1: promotion(cut())}, {1: REVERSAL}, {1: dealt((20, 25, "keep"))}), 5, False),
        (PromotionHistory({1: promotion(cut())}, {1: REVERSAL}, {1: dealt((20, 24, "merge"))}), 5, True),
        (
            PromotionHistory({1: promotion(cut())}, {1: replace(REVERSAL, timestamp=9)}, {1: RESTORATION}),
            5,
            True,
        ),
        (PromotionHistory({1: promotion(cut(position=25))}, {1: REVERSAL}), 5, False),
        (PromotionHistory(), 5, False),
    ],
    ids=[
        "undecided",
        "markers only",
        "decided",
        "a range",
        "a part",
        "an older release, before the reversal",
        "none",
        "mirrors",
    ],
)
def test_a_link_does_not_return_before_its_orphans_are_decided_about(
    monkeypatch: pytest.MonkeyPatch, found: PromotionHistory, records: int, *, refused: bool
) -> None:
    """From then on it would begin behind them."""
    monkeypatch.setattr(
        OrphanReader, "count", lambda _, ranges, *__: {each.source: records for each in ranges}
    )
    link: Any = SimpleNamespace(name="there", source="east")
    sessions: Any = SimpleNamespace(source=SimpleNamespace(cluster=link))
    monkeypatch.setattr(
        orphans,
        "standing",
        lambda *_: Standing(dealt=found.dealt(1), reached={}, short={}, lost={}),
    )

    def ask() -> None:
        refuse_forgotten(link, sessions, ControlView(history=found), client_id="c", clock=SYSTEM_CLOCK)

    if refused:
        with pytest.raises(NotReadyError, match="5 records of east never reached"):
            ask()
    else:
        ask()


def logs_as_now(
    monkeypatch: pytest.MonkeyPatch,
    *,
    reached: int = 0,
    changed: SourceState | None = None,
    copy: CopyEnd | None = None,
    ends: set[SourcePartition] = frozenset(),  # type: ignore[assignment]
) -> tuple[Any, Any]:
    """A link whose merge has come so far, and how its logs differ from that."""
    at = position(OLD, reached, generation=2)
    monkeypatch.setattr(orphans, "LinkState", lambda *_: SimpleNamespace(positions=lambda **_: {OLD: at}))
    found = {} if changed is None else {OLD: ChangedSource(position=at, state=changed, end=22)}
    monkeypatch.setattr(orphans, "changed_sources", lambda *_: found)
    monkeypatch.setattr(orphans, "changed_ends", lambda *_: ends)
    monkeypatch.setattr(
        orphans, "_copies", lambda *_: {OLD: copy or whole(at, "u", 40)} if reached > 20 else {}
    )
    admin = SimpleNamespace(
        describe_topics=lambda names: {name: SimpleNamespace(topic_id="t") for name in names}
    )
    sessions: Any = SimpleNamespace(source=SimpleNamespace(admin=admin, cluster=None), target=None)
    link: Any = SimpleNamespace(name="there", source="east")
    return link, sessions


def end_of_copy(offset: int, *, proven: bool = True) -> CopyEnd:
    return CopyEnd(
        offset=offset,
        target_offset=None,
        writer=None,
        target_topic_id="u",
        target_end=18,
        problem="cut",
        proven=proven,
    )


@pytest.mark.parametrize(
    ("logs", "left", "reached", "short"),
    [
        ({"reached": 24}, [(20, 24, "merge"), (24, 30, "keep")], {OLD: 24}, {}),
        ({"reached": 24, "ends": {OLD}}, [(20, 24, "merge")], {OLD: 24}, {}),
        ({"reached": 24, "changed": SourceState.REPLACED}, [(24, 30, "keep")], {}, {}),
        ({"reached": 24, "changed": SourceState.GAP}, [(24, 30, "keep")], {}, {}),
        (
            {"reached": 24, "copy": end_of_copy(22)},
            [(20, 22, "merge"), (24, 30, "keep")],
            {OLD: 22},
            {OLD: 22},
        ),
        ({"reached": 24, "copy": end_of_copy(24, proven=False)}, [(24, 30, "keep")], {OLD: 20}, {}),
        ({"reached": 20}, [(20, 24, "merge"), (24, 30, "keep")], {}, {}),
    ],
    ids=[
        "as they were",
        "other records where some were kept",
        "a source without what was merged",
        "retention",
        "a copy without its end",
        "a copy whose end is unknown",
        "nothing merged",
    ],
)
def test_what_was_decided_about_orphans_stands_as_long_as_the_logs_hold_them(
    monkeypatch: pytest.MonkeyPatch,
    logs: dict[str, Any],
    left: list[tuple[int, int, str]],
    reached: dict[SourcePartition, int],
    short: dict[SourcePartition, int],
) -> None:
    """Ranges are offsets: the records there may be others since."""
    link, sessions = logs_as_now(monkeypatch, **logs)
    done = dealt((20, 24, "merge"), (24, 30, "keep"))
    control = ControlView(history=PromotionHistory({1: promotion(cut())}, {1: REVERSAL}, {1: done}))

    found = standing(link, sessions, control, promotion(cut()))

    assert [(one.start, one.end, one.action) for one in found.dealt[OLD]] == left
    assert (found.reached, found.short) == (reached, short)
    assert found.lost.keys() == ({OLD} if logs.get("changed") is SourceState.REPLACED else set())


@pytest.mark.parametrize("state", [SourceState.SHORTER, SourceState.REPLACED])
def test_a_link_does_not_return_to_a_source_that_has_lost_merged_orphans(
    monkeypatch: pytest.MonkeyPatch, state: SourceState
) -> None:
    """The copies alone hold them, and the link back takes them for its own."""
    link, sessions = logs_as_now(monkeypatch, reached=24, changed=state)
    history = PromotionHistory({1: promotion(cut())}, {1: REVERSAL}, {1: dealt((20, 24, "merge"))})

    with pytest.raises(
        NotReadyError, match=r"east has lost them since.*orders-0 .*up to (offset )?24"
    ) as raised:
        refuse_forgotten(link, sessions, ControlView(history=history), client_id="c", clock=SYSTEM_CLOCK)

    assert "`eomirror restore CONFIG --link there --orphans recreate`" in raised.value.fix


@pytest.mark.parametrize(("position", "refused"), [(17, True), (18, False), (30, False)])
def test_a_link_does_not_resume_at_the_cut_of_an_older_promotion(position: int, *, refused: bool) -> None:
    """It has mirrored since: it would write those records again."""
    made = object.__new__(_Reverse)
    link: Any = SimpleNamespace(name="back")
    made.link = link
    back: Any = SimpleNamespace(name="there")
    older = promotion(cut(topic="east.orders", target="orders", position=position))
    before = PromotionHistory({1: promotion(cut())})

    if refused:
        with pytest.raises(NotReadyError, match="has not mirrored since"):
            made._refuse_stale(back, older, before)
    else:
        made._refuse_stale(back, older, before)


class Log:
    """Partitions of an old source; each offset holds one record.  Retention may pass, and the reader may be killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.starts = {OLD: 0, NEW: 0}
        self.killed_at: tuple[SourcePartition, int] | None = None
        self.retained_at: dict[tuple[SourcePartition, int], int] = {}
        self.reads: list[tuple[SourcePartition, int]] = []
        self.deadlines: list[Any] = []
        self.headers: dict[int, BaseException] = {}
        # what an application writes anew, from an offset of each partition on
        self.written_on: dict[SourcePartition, int] = {}
        log = self

        class Reader:
            """Reads what the log holds."""

            def __init__(self, *_: Any, **__: Any) -> None: ...

            def connect(self, _: Any) -> None: ...

            def read(self, ranges: Any, take: Any, **options: Any) -> dict[Any, Any]:
                ((where, (low, high)),) = ranges.items()
                log.deadlines.append(options.get("deadline"))
                for offset in range(low, high):
                    if log.killed_at == (where, offset):
                        raise KeyboardInterrupt
                    log.starts[where] = max(log.starts[where], log.retained_at.pop((where, offset), 0))
                    if offset < log.starts[where]:
                        return {where: Action.SOURCE_GAP}
                    log.reads.append((where, offset))
                    take(None, log.message(where, offset))
                return {}

            def close(self) -> None: ...

        monkeypatch.setattr(orphan_reader, "PartitionReader", Reader)
        monkeypatch.setattr(orphan_reader, "ClusterAdmin", Reader)
        monkeypatch.setattr(
            orphan_reader,
            "log_starts",
            lambda _, ranges: {one.source: self.starts[one.source] for one in ranges},
        )

    def message(self, where: SourcePartition, offset: int) -> Any:
        def headers() -> list[tuple[str, bytes]]:
            if offset in self.headers:
                raise self.headers[offset]
            return [("h", b"1")]

        value = b"%d" % offset if offset < self.written_on.get(where, 99) else b"other %d" % offset
        return SimpleNamespace(
            offset=lambda: offset, topic=lambda: where.topic, timestamp=lambda: (1, 7), key=lambda: b"k",
            value=lambda: value, headers=headers,
        )  # fmt: skip


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


RANGES = [OrphanRange(source=OLD, start=2, end=6), OrphanRange(source=NEW, start=0, end=4)]


def written(
    path: Path,
    reading: Reading | None = None,
    ranges: Sequence[OrphanRange] = RANGES,
    starts: dict[SourcePartition, int | None] | None = None,
) -> dict[SourcePartition, int]:
    cluster: Any = SimpleNamespace(alias="east")
    sink = OrphanFile(path, "east", starts)
    return OrphanReader(cluster, "c", SYSTEM_CLOCK).write(ranges, sink, reading)


def offsets(path: Path) -> list[tuple[int, int]]:
    return [(one["partition"], one["offset"]) for one in map(orjson.loads, path.read_bytes().splitlines())]


EVERYTHING = [*((0, offset) for offset in range(2, 6)), *((1, offset) for offset in range(4))]


def test_a_range_of_any_size_has_no_deadline(log: Log, tmp_path: Path) -> None:
    """Only a reader that gets no record at all is late."""
    assert written(tmp_path / "orphans") == {OLD: 4, NEW: 4}
    assert log.deadlines == [None, None]
    assert offsets(tmp_path / "orphans") == EVERYTHING


@pytest.mark.parametrize("killed_at", [(OLD, 2), (OLD, 4), (NEW, 0), (NEW, 3)])
def test_a_killed_export_goes_on_where_it_ended(
    log: Log, tmp_path: Path, killed_at: tuple[SourcePartition, int]
) -> None:
    """No record comes twice, a torn line is written again, and only the last of each partition is read again."""
    log.killed_at = killed_at
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path / "orphans")
    (part,) = tmp_path.glob("orphans.*.part")
    with part.open("ab") as file:
        file.write(b'{"topic":"ord')
    log.killed_at = None
    before = set(log.reads) - {max(each for each in log.reads if each[0] == where) for where, _ in log.reads}
    log.reads.clear()

    assert written(tmp_path / "orphans") == {OLD: 4, NEW: 4}

    assert offsets(tmp_path / "orphans") == EVERYTHING
    assert not before & set(log.reads)
    assert list(tmp_path.iterdir()) == [tmp_path / "orphans"]


def test_a_killed_export_goes_on_although_the_log_has_grown(log: Log, tmp_path: Path) -> None:
    """Applications write on, or the link back does: the end of a range is another one, its beginning is not."""
    log.killed_at = NEW, 1
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path / "orphans")
    log.killed_at = None
    grown = [OrphanRange(source=OLD, start=2, end=8), OrphanRange(source=NEW, start=0, end=4)]

    assert written(tmp_path / "orphans", ranges=grown) == {OLD: 6, NEW: 4}

    assert sorted(offsets(tmp_path / "orphans")) == sorted([*EVERYTHING, (0, 6), (0, 7)])
    assert list(tmp_path.iterdir()) == [tmp_path / "orphans"]


def test_a_file_is_replaced_by_one_that_has_all_its_records(log: Log, tmp_path: Path) -> None:
    """The source may have lost and written on what was exported, or deleted it: the file may be all that is left."""
    path = tmp_path / "orphans.jsonl"
    written(path)
    grown = [replace(RANGES[0], end=9), RANGES[1]]
    assert written(path, ranges=grown) == {OLD: 7, NEW: 4}
    before = path.read_bytes()

    log.written_on[OLD] = 4
    for ranges, lost in (
        (RANGES, "orders-0 [4, 9): 5"),
        ([replace(grown[0], start=4)], "orders-0 [2, 9): 7, orders-1 [0, 4): 4"),
    ):
        for _ in range(2):
            with pytest.raises(UsageError, match="does not contain") as raised:
                written(path, ranges=ranges)
            assert (lost in str(raised.value), str(path) in str(raised.value)) == (True, True)
            assert f"--to {tmp_path}/orphans-2.jsonl" in raised.value.fix
            assert path.read_bytes() == before
    log.written_on.clear()
    with pytest.raises(UsageError, match=r"orders-0 \[2, 4\): 2"):
        written(path, ranges=[replace(grown[0], start=4), RANGES[1]])

    # the way on
    log.written_on[OLD] = 4
    assert written(tmp_path / "orphans-2.jsonl", ranges=grown) == {OLD: 7, NEW: 4}
    assert path.read_bytes() == before
    path.rename(tmp_path / "kept")
    # what was read for the refused export is there still
    assert written(path, ranges=grown) == {OLD: 7, NEW: 4}
    assert sorted(offsets(path)) == sorted(offsets(tmp_path / "orphans-2.jsonl"))


def test_a_part_is_not_continued_where_the_source_is_another(log: Log, tmp_path: Path) -> None:
    """A killed export may hold the only copy as well, and what it lacks would be left out."""
    path = tmp_path / "orphans"
    log.killed_at = NEW, 2
    with pytest.raises(KeyboardInterrupt):
        written(path)
    log.killed_at = None
    (part,) = tmp_path.glob("orphans.*.part")
    before = part.read_bytes()

    log.written_on[OLD] = 4
    # cut and written on, and shorter
    for ranges in ([replace(RANGES[0], end=4), RANGES[1]], RANGES):
        with pytest.raises(UsageError, match=r"orders-0 at offset 5; they are not continued") as raised:
            written(path, ranges=ranges)
        assert str(part) in str(raised.value)
        assert f"--to {tmp_path}/orphans-2" in raised.value.fix
        assert (part.read_bytes(), path.exists()) == (before, False)
    written(tmp_path / "orphans-2")
    assert part.read_bytes() == before

    # what retention has deleted since cannot be compared, and stays in the file
    log.written_on.clear()
    log.starts[OLD] = 6
    assert written(path, starts={OLD: 6, NEW: 0}) == {OLD: 4, NEW: 4}
    assert offsets(path) == EVERYTHING


@pytest.mark.parametrize("held", [b"links: []\n", b'{"topic": "orders"}\n', b"[1]\n", b"\x00\x01", b"7\n"])
@pytest.mark.usefixtures("log")
def test_a_file_of_something_else_is_not_replaced(tmp_path: Path, held: bytes) -> None:
    """The configuration, for one; an empty file may be."""
    path = tmp_path / "mirror.yaml"
    path.write_bytes(held)

    with pytest.raises(UsageError, match="is no file of exported records: line 1") as raised:
        written(path)

    assert (path.read_bytes(), "--to FILE" in raised.value.fix) == (held, True)
    # a line of ours before it does not help
    written(tmp_path / "ours")
    path.write_bytes((tmp_path / "ours").read_bytes() + held)
    with pytest.raises(UsageError, match="is no file of exported records: line 9"):
        written(path)
    assert path.read_bytes().endswith(held)
    path.write_bytes(b"")
    assert written(path) == {OLD: 4, NEW: 4}
    # an editor may have taken the last line feed
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert written(path) == {OLD: 4, NEW: 4}


@pytest.mark.usefixtures("log")
def test_exported_records_are_for_their_user_alone(tmp_path: Path) -> None:
    """Whatever the umask and the folder, and a part that was put there by another is not written to."""
    path, victim = tmp_path / "orphans", tmp_path / "victim"
    before = os.umask(0)
    try:
        written(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="is no file"):
        written(tmp_path)

    victim.write_bytes(b"mine\n")
    part = tmp_path / f"orphans.{_id(tmp_path, RANGES)}.part"
    plants = [
        lambda: part.symlink_to(victim),
        lambda: part.symlink_to(tmp_path / "nowhere"),
        lambda: part.hardlink_to(victim),
        lambda: os.mkfifo(part),
        part.mkdir,
    ]
    for plant in plants:
        plant()
        with pytest.raises(
            UsageError, match=r"\.part is a link, a file of another user, or no file"
        ) as raised:
            written(path)
        assert (str(part) in str(raised.value), "--to FILE" in raised.value.fix) == (True, True)
        assert (victim.read_bytes(), (tmp_path / "nowhere").exists()) == (b"mine\n", False)
        if part.is_dir() and not part.is_symlink():
            part.rmdir()
        else:
            part.unlink()
    part.write_bytes(b"")
    part.chmod(0o666)
    written(path)
    assert path.stat().st_mode & 0o777 == 0o600


def _id(folder: Path, ranges: Sequence[OrphanRange]) -> str:
    """The id in the name of a part of these ranges."""
    sink = OrphanFile(folder / "any", "east")
    sink.resume(ranges, {})
    sink.close()
    (part,) = folder.glob("any.*.part")
    part.unlink()
    return part.name.split(".")[1]


def test_orphans_that_retention_has_deleted_are_named(log: Log, tmp_path: Path) -> None:
    """Nothing is written before the user knows."""
    log.starts[OLD] = 5

    with pytest.raises(DataLossError, match=r"orders-0 \[2, 5\)") as raised:
        written(tmp_path / "orphans")

    assert raised.value.exit_code == 4
    assert "--accept-lost" in raised.value.fix
    assert log.reads == []


def test_the_others_are_written_once_the_loss_is_accepted(log: Log, tmp_path: Path) -> None:
    """Also if retention passes while they are read, and if a whole range is gone."""
    log.starts[NEW] = 90
    log.retained_at[OLD, 3] = 5
    reading = Reading(accept_lost=True)

    assert written(tmp_path / "orphans", reading) == {OLD: 2, NEW: 0}

    assert offsets(tmp_path / "orphans") == [(0, 2), (0, 5)]
    assert [(one.source, one.start, one.end) for one in reading.lost] == [(NEW, 0, 4), (OLD, 3, 5)]


@pytest.mark.parametrize("error", [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), SystemError()])
def test_a_record_whose_headers_cannot_be_shown_is_exported(
    log: Log, tmp_path: Path, error: BaseException
) -> None:
    """A header name that is not UTF-8 fails in the client library; null tells it from a record without headers."""
    log.headers[3] = error
    reading = Reading()

    written(tmp_path / "orphans", reading)

    found = {
        one["offset"]: one for one in map(orjson.loads, (tmp_path / "orphans").read_bytes().splitlines()[:4])
    }
    assert (found[3]["headers"], base64.b64decode(found[3]["value"])) == (None, b"3")
    assert found[2]["headers"] == [["h", "MQ=="]]
    assert reading.unreadable_headers == 2


def test_progress_is_told_every_few_seconds() -> None:
    """In source offsets, which are what is known of a range."""
    told: list[str] = []
    reading = Reading(tell=told.append)
    reading.begin(RANGES, 0.0)

    for seconds, offset in ((1.0, 3), (6.0, 4), (7.0, 5), (12.0, 6)):
        reading.advance(OLD, offset, seconds)

    assert told == ["6 source offsets are left to read", "4 source offsets are left to read"]


class Exported:
    """The topic of exported orphans, its cluster and its producer, which may be killed before a commit."""

    cluster = SimpleNamespace(alias="west")
    clock = SYSTEM_CLOCK

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[Any] = []
        self.open: list[Any] = []
        self.commits_left = 99
        self.created: list[str] = []
        self.admin = self
        monkeypatch.setattr("eomirror.failover.orphan_sinks.TransactionalProducer", lambda *_, **__: self)
        monkeypatch.setattr("eomirror.failover.orphan_sinks._MOST_RECORDS", 3)

    # an admin client
    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        return dict.fromkeys(names, self.created or None)

    def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=1)

    def create_topics(self, topics: list[Any]) -> None:
        self.created = [topic.name for topic in topics]

    def offsets(self, wanted: list[Any], *, at: str, **_: Any) -> dict[Any, int]:
        return dict.fromkeys(wanted, 0 if at == "earliest" else len(self.records))

    # a reader
    @contextmanager
    def reader(self) -> Iterator[Any]:
        yield self

    def connect(self, _: Any) -> None: ...

    def read(self, _: Any, take: Any, **__: Any) -> None:
        for record in self.records:
            made = {name: record[at] for name, at in (("key", 2), ("value", 1), ("headers", 7))}
            take(None, SimpleNamespace(**{name: lambda value=value: value for name, value in made.items()}))

    # a producer
    def init(self) -> None:
        self.open = []

    def begin(self) -> None: ...

    def produce_all(self, records: list[Any]) -> None:
        self.open = list(records)

    def flush(self, _: float) -> None: ...

    def take_acks(self) -> None: ...

    def commit(self) -> None:
        if self.commits_left == 0:
            raise KeyboardInterrupt
        self.commits_left -= 1
        self.records += self.open

    def close(self) -> None: ...


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("transactions", [0, 1, 2])
def test_a_killed_export_to_a_topic_goes_on_behind_its_last_transaction(
    monkeypatch: pytest.MonkeyPatch, transactions: int
) -> None:
    """Each orphan is there once, as it was, with its origin; those of another promotion are not counted."""
    topic = Exported(monkeypatch)
    link: Any = SimpleNamespace(state_name="l", replication_factor=None, transaction_timeout=1.0)
    target: Any = topic
    topic.records = [
        (
            None,
            b"old",
            b"k",
            0,
            None,
            None,
            7,
            [(ORPHAN_HEADER, b'{"promotion":1,"topic":"orders","partition":0,"offset":9}')],
        )
    ]
    topic.created = ["there"]

    def exported() -> dict[SourcePartition, int]:
        cluster: Any = SimpleNamespace(alias="east")
        return OrphanReader(cluster, "c", SYSTEM_CLOCK).write(RANGES, OrphanTopic(link, target, 2))

    topic.commits_left = transactions
    with pytest.raises(KeyboardInterrupt):
        exported()
    topic.commits_left = 99

    assert exported() == {OLD: 4, NEW: 4}

    found = [(orjson.loads(dict(record[7])[ORPHAN_HEADER]), record) for record in topic.records[1:]]
    assert [(origin["partition"], origin["offset"]) for origin, _ in found] == EVERYTHING
    assert {origin["promotion"] for origin, _ in found} == {2}
    assert [record[1] for _, record in found] == [b"%d" % offset for _, offset in EVERYTHING]
    assert all(record[6] == 7 and ("h", b"1") in record[7] for _, record in found)
    assert exported() == {OLD: 4, NEW: 4}
    assert len(topic.records) == 1 + len(EVERYTHING)


def test_a_later_export_to_the_topic_adds_what_has_come_in_every_partition(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last record there is of the last partition: the first one has grown as well, or reaches further back."""
    topic = Exported(monkeypatch)
    link: Any = SimpleNamespace(state_name="l", replication_factor=None, transaction_timeout=1.0)
    cluster: Any = SimpleNamespace(alias="east")
    target: Any = topic

    def exported(*ranges: OrphanRange) -> dict[SourcePartition, int]:
        sink = OrphanTopic(link, target, 2)
        return OrphanReader(cluster, "c", SYSTEM_CLOCK).write(ranges, sink)

    assert exported(*RANGES) == {OLD: 4, NEW: 4}
    topic.commits_left = 1
    wider = OrphanRange(source=OLD, start=0, end=9), OrphanRange(source=NEW, start=0, end=5)
    with pytest.raises(KeyboardInterrupt):
        exported(*wider)
    topic.commits_left = 99
    for _ in range(2):
        assert exported(*wider) == {OLD: 9, NEW: 5}

    # another record at the same offset is added
    log.written_on[OLD] = 7
    for _ in range(2):
        assert exported(*wider) == {OLD: 9, NEW: 5}
    assert [record[1] for record in topic.records[14:]] == [b"other 7", b"other 8"]
    del topic.records[14:]

    origins = [orjson.loads(dict(record[7])[ORPHAN_HEADER]) for record in topic.records]
    assert sorted((origin["partition"], origin["offset"]) for origin in origins) == [
        *((0, offset) for offset in range(9)), *((1, offset) for offset in range(5)),
    ]  # fmt: skip
