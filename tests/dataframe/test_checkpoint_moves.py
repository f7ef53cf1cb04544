"""A streaming query that moves to the other cluster of a link: its checkpoint is translated, or kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from source_rig import FAILS_AS_WANTED, Query, as_record, options_of

from eomirror import load_config
from eomirror.dataframe import checkpoint
from eomirror.dataframe.checkpoint import translate_checkpoint
from eomirror.errors import DifferenceError

if TYPE_CHECKING:
    from pathlib import Path

    from support.links.link import TestLink
    from support.traffic.records import Record

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def rows_by_value(query: Query) -> list[Record]:
    return sorted(map(as_record, query.rows), key=repr)


def written(link: TestLink) -> list[Record]:
    return sorted((record for each in link.written["orders"].values() for record in each), key=repr)


def begun(link: TestLink, session: Any, folder: Path) -> Query:
    """A query on the source that has read some and is in the middle of a batch, and a copy that is up to date."""
    link.create("orders", partitions=2)
    link.write("orders", 400)
    query = Query(
        session, folder / "c", link.east, subscribe=link.topic("orders"), startingOffsets="earliest",
        includeHeaders="true", maxOffsetsPerTrigger=150,
    )  # fmt: skip
    query.fails_at = 1
    with pytest.raises(PySparkException, match=FAILS_AS_WANTED):
        query.run()
    link.write("orders", 200)
    link.catch_up()
    return query


def test_a_job_moves_with_its_checkpoint(link: TestLink, spark_session: Any, tmp_path: Path) -> None:
    """Every row exactly once, the batch that failed on the source included; and back again."""
    query = begun(link, spark_session, tmp_path)
    config = load_config(link.path)
    before = {file.name: file.read_bytes() for file in (query.folder / "offsets").iterdir()}
    tried = translate_checkpoint(query.folder, config, config.links[0], dry_run=True)
    assert {file.name: file.read_bytes() for file in (query.folder / "offsets").iterdir()} == before
    found = translate_checkpoint(query.folder, config, config.links[0])
    assert (found.offsets, found.repeats, found.reverse) == (tried.offsets, True, False)
    assert {one.kind for one in found.offsets} <= {"exact", "next"}
    query.options |= options_of(link.west, subscribe=link.copy("orders"))
    query.run()
    assert rows_by_value(query) == written(link)
    back = translate_checkpoint(query.folder, config, config.links[0])
    assert back.reverse
    query.options |= options_of(link.east, subscribe=link.topic("orders"))
    link.write("orders", 100)
    query.run()
    assert rows_by_value(query) == written(link)


def test_an_untranslated_checkpoint_is_refused_on_the_other_cluster(
    link: TestLink, spark_session: Any, tmp_path: Path
) -> None:
    """Equal names and offsets of another log would skip or repeat records without a sound."""
    query = begun(link, spark_session, tmp_path)
    query.options |= options_of(link.west, subscribe=link.copy("orders"))
    with pytest.raises(PySparkException, match=r"does not exist any more"):
        query.run()


def test_a_link_that_is_behind_is_named(link: TestLink, spark_session: Any, tmp_path: Path) -> None:
    """An offset that is not mirrored has no translation, and no file changes."""
    query = begun(link, spark_session, tmp_path)
    query.run()
    link.write("orders", 100)
    query.run()
    config = load_config(link.path)
    before = {file.name: file.read_bytes() for file in (query.folder / "offsets").iterdir()}
    with pytest.raises(DifferenceError, match="not mirrored yet"):
        translate_checkpoint(query.folder, config, config.links[0])
    assert {file.name: file.read_bytes() for file in (query.folder / "offsets").iterdir()} == before


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_translation_that_was_killed_is_completed(
    link: TestLink, spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """After each step Spark reads the old files, or refuses; a repetition completes it."""
    query = begun(link, spark_session, tmp_path)
    config = load_config(link.path)
    done = 0
    replace = checkpoint._replace

    def killed(file: Path, content: bytes) -> None:
        nonlocal done
        if done == steps:
            raise KeyboardInterrupt
        done += 1
        replace(file, content)

    monkeypatch.setattr(checkpoint, "_replace", killed)
    with pytest.raises(KeyboardInterrupt):
        translate_checkpoint(query.folder, config, config.links[0])
    monkeypatch.undo()
    if steps > 1:
        with pytest.raises(PySparkException, match="run `eomirror checkpoint translate` again"):
            query.run()
    translate_checkpoint(query.folder, config, config.links[0])
    query.options |= options_of(link.west, subscribe=link.copy("orders"))
    query.run()
    assert rows_by_value(query) == written(link)


def test_a_copy_is_read_by_the_offsets_of_its_source(
    link: TestLink, spark_session: Any, tmp_path: Path
) -> None:
    """With mirror.source the checkpoint stays as it is, and the rows show the source's topics and offsets."""
    query = begun(link, spark_session, tmp_path)
    query.options |= options_of(link.west) | {"mirror.source": link.name}
    query.run()
    assert rows_by_value(query) == written(link)
    shown = {(row["topic"], row["partition"], row["offset"]) for row in query.rows}
    assert len(shown) == len(query.rows)
    from_source = Query(
        spark_session, tmp_path / "s", link.east, subscribe=link.topic("orders"), startingOffsets="earliest"
    ).run()
    assert shown == {(row["topic"], row["partition"], row["offset"]) for row in from_source.rows}
