"""Files of a Spark checkpoint: which count, and how they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from eomirror.dataframe.checkpoint import _BARRIER, _JOURNAL, _apply, _begun, _files, _SourceLine
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def a_checkpoint(folder: Path, *, offsets: int, commits: int) -> None:
    for name, count in (("offsets", offsets), ("commits", commits)):
        (folder / name).mkdir()
        for number in range(count):
            (folder / name / str(number)).write_text(f'v1\n{{}}\n{{"t":{{"0":{number}}}}}')
            (folder / name / f".{number}.crc").write_text("x")


def test_only_the_files_that_spark_reads_again_count(tmp_path: Path) -> None:
    """A completed batch needs its end; one that is repeated also its beginning."""
    a_checkpoint(tmp_path, offsets=3, commits=3)
    assert _files(tmp_path) == (2, False, ["offsets/2"])
    (tmp_path / "commits" / "2").unlink()
    assert _files(tmp_path) == (2, True, ["offsets/1", "offsets/2"])


def test_the_first_batch_of_sparks_connector_has_its_beginning_elsewhere(tmp_path: Path) -> None:
    """It keeps the first offsets in a file of the source."""
    a_checkpoint(tmp_path, offsets=1, commits=0)
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text('v1\n{"t":{"0":0}}')
    assert _files(tmp_path) == (0, True, ["sources/0/0", "offsets/0"])


def test_another_folder_is_refused(tmp_path: Path) -> None:
    """With what to name in its place."""
    with pytest.raises(UsageError, match="no offsets of a streaming query"):
        _files(tmp_path)


@pytest.mark.parametrize(
    ("line", "of_kafka"),
    [
        ('{"t":{"0":5}}', True),
        ('{"t":{"0":5},"$ids":{"t":"x"}}', True),
        ('0,{"t":{"0":5}}', True),
        ('{"logOffset":3}', False),
        ("-", False),
        ("", False),
        ("17", False),
        ('{"$ids":{}}', False),
    ],
)
def test_other_sources_of_a_query_are_left_alone(line: str, of_kafka: bool) -> None:
    """A query may join Kafka with files."""
    assert (_SourceLine.parse(line).document is not None) is of_kafka


def test_files_change_behind_a_barrier(tmp_path: Path) -> None:
    """Hadoop's checksums go, or Spark would refuse the new content."""
    a_checkpoint(tmp_path, offsets=3, commits=2)
    journal = {"link": "l", "batch": 2, "files": {"offsets/1": "one", "offsets/2": "two"}}
    (tmp_path / _JOURNAL).write_bytes(orjson.dumps(journal))

    class Link:
        name = "l"

    assert _begun(tmp_path, Link()) is None, "no file has changed"
    (tmp_path / "offsets" / "2").write_bytes(_BARRIER)
    assert _begun(tmp_path, Link()) == journal
    _apply(tmp_path, journal)
    assert (tmp_path / "offsets" / "1").read_text() == "one"
    assert (tmp_path / "offsets" / "2").read_text() == "two"
    assert not (tmp_path / "offsets" / ".2.crc").exists()
    assert not (tmp_path / _JOURNAL).exists()
