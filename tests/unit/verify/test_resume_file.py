"""The file with which an interrupted comparison goes on: what it keeps, and when it is refused."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from eomirror.errors import UsageError
from eomirror.verify.counts import KINDS, PartitionCounts
from eomirror.verify.resume import LinkResume, ResumeFile
from eomirror.verify.verdict import Range, Scope

if TYPE_CHECKING:
    from pathlib import Path

ASKED = {"topic": None, "from_offset": None, "since": "2h"}
CLUSTERS = ("east-id", "west-id")
TOPICS = ("topic-id", "copy-id")
ONE = Scope(source=Range("t", 0, 0, 100, 100), target=Range("e.t", 0, 0, 120, 120))
HALF = PartitionCounts(
    matched=40,
    differences={**dict.fromkeys(KINDS, 0), "missing": 1},
    source={"records": 41, "position": 50},
    target={"records": 40, "position": 60},
    found=(("missing", 7, None),),
    at=(50, 60),
    whole=False,
)


def kept(path: Path) -> LinkResume:
    """The link's part of a file that knows half of a partition."""
    file = ResumeFile(path, ASKED)
    file.link("east->west", CLUSTERS).record(ONE, TOPICS, HALF)
    file.save()
    return ResumeFile(path, ASKED).link("east->west", CLUSTERS)


def test_what_was_counted_is_there_again(tmp_path: Path) -> None:
    """Counts, differences and the place at which it goes on survive the program."""
    path = tmp_path / "resume.json"
    assert kept(path).before(ONE, TOPICS) == HALF
    assert [item.name for item in tmp_path.iterdir()] == ["resume.json"]


def test_a_partition_that_it_does_not_know_begins_anew(tmp_path: Path) -> None:
    """So does one in whose comparison there is no place to go on."""
    other = replace(ONE, source=Range("t", 1, 0, 100, 100))
    link = kept(tmp_path / "resume.json")
    assert link.before(other, TOPICS) is None
    link.record(other, TOPICS, replace(HALF, at=None))
    assert link.before(other, TOPICS) is None


def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    """A folder stands in its place, or a file in that of its folder."""
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "file" / "resume.json"):
        with pytest.raises(UsageError, match="cannot be read"):
            ResumeFile(path, ASKED)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not the file of a comparison"),
        (b"[1]", "is not the file of a comparison"),
        (b'{"clusters": {}}', "is not the file of a comparison"),
        (orjson.dumps({"v": 2, "asked": ASKED, "links": {}}), "has version 2"),
        (orjson.dumps({"v": 1, "asked": {**ASKED, "since": "3h"}, "links": {}}), "is about since=3h"),
    ],
)
def test_a_file_that_answers_another_question_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """And it is left as it is."""
    path = tmp_path / "resume.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="--resume") as refused:
        ResumeFile(path, ASKED)
    assert words in str(refused.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "held", [None, [], {}, {"source": "east-id", "target": "west-id"}, {"partitions": 1}]
)
def test_a_file_whose_link_is_damaged_is_refused(tmp_path: Path, held: Any) -> None:
    """Whoever edits it is told, and gets no traceback."""
    path = tmp_path / "resume.json"
    path.write_bytes(orjson.dumps({"v": 1, "asked": ASKED, "links": {"east->west": held}}))
    with pytest.raises(UsageError, match="does not say what was compared"):
        ResumeFile(path, ASKED).link("east->west", CLUSTERS)


def test_a_file_about_other_clusters_is_refused(tmp_path: Path) -> None:
    """A link of the same name between others is another link."""
    path = tmp_path / "resume.json"
    kept(path)
    with pytest.raises(UsageError, match="other clusters"):
        ResumeFile(path, ASKED).link("east->west", ("east-id", "other"))


@pytest.mark.parametrize(
    ("one", "topics", "words"),
    [
        (ONE, ("topic-id", "new"), "recreated"),
        (ONE, ("new", "copy-id"), "recreated"),
        (replace(ONE, target=Range("x.t", 0, 0, 9, 9)), TOPICS, "recreated"),
        (replace(ONE, source=Range("t", 0, 0, 49, 49)), TOPICS, "further in t-0 than the mirror"),
    ],
)
def test_a_file_about_other_topics_or_a_later_position_is_refused(
    tmp_path: Path, one: Scope, topics: tuple[str, str], words: str
) -> None:
    """What it counted is not part of what is there now."""
    with pytest.raises(UsageError) as refused:
        kept(tmp_path / "resume.json").before(one, topics)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("matched", "many"), ("source", {"records": "many"}), ("target", 3), ("found", [["missing", "x", None]]),
     ("at", [1]), ("differences", {})],
)  # fmt: skip
def test_counts_that_are_none_are_refused(tmp_path: Path, name: str, value: object) -> None:
    """Before anything is added to them."""
    path = tmp_path / "resume.json"
    kept(path)
    body = orjson.loads(path.read_bytes())
    body["links"]["east->west"]["partitions"]["t-0"]["tally"][name] = value
    path.write_bytes(orjson.dumps(body))
    with pytest.raises(UsageError, match="does not say what was compared of t-0"):
        ResumeFile(path, ASKED).link("east->west", CLUSTERS).before(ONE, TOPICS)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Better at once than after hours."""
    with pytest.raises(UsageError, match="No such file"):
        ResumeFile(tmp_path / "none" / "resume.json", ASKED).save()


def test_parts_add_up_and_never_go_back(tmp_path: Path) -> None:
    """A run that was interrupted before it took a record leaves the place as it was."""
    del tmp_path
    nothing: dict[str, Any] = {"source": {"position": 50}, "target": {"position": 60}}
    again = HALF.plus(PartitionCounts(at=(0, 0), whole=False, **nothing), show=5)
    assert again == HALF
    rest = PartitionCounts(matched=10, found=(("foreign", None, 70),), at=(100, 120), **nothing)
    whole = HALF.plus(rest, show=1)
    assert (whole.matched, whole.at, whole.whole) == (50, (100, 120), True)
    assert whole.found == HALF.found


def test_a_link_that_others_put_beside_the_file_is_not_followed(tmp_path: Path) -> None:
    """In a folder where others can write, what it points to keeps its content, and the file is the owner's alone."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path = tmp_path / "resume.json"
    # the name of this process is no secret
    (tmp_path / f".resume.json.{os.getpid()}").symlink_to(victim)

    assert kept(path).before(ONE, TOPICS) == HALF

    assert victim.read_bytes() == b"precious"
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_replaced_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """The folder has come in its place since it was read."""
    path = tmp_path / "resume.json"
    file = ResumeFile(path, ASKED)
    path.mkdir()
    with pytest.raises(UsageError, match="name a file in a folder that you may write"):
        file.save()
    assert [item.name for item in tmp_path.iterdir()] == ["resume.json"]
