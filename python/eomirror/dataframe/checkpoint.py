"""
Translates the checkpoint of a streaming query to the other side of a link.

Spark keeps the end of each micro-batch in ``DIR/offsets/N`` and the completed ones in ``DIR/commits/N``.  A query that
starts again reads the newest file of offsets; if its batch is not completed, it repeats it, from the end of the batch
before.  So one or two files are translated, and in the first batch of Spark's own Kafka connector also where it began,
``DIR/sources/I/0``.  Older files have no effect and stay.

The files change together, or not at all::

    journal     DIR/eomirror-translation.json: every new file, complete                  Spark still reads the old ones
    barrier     offsets/N is replaced by a line that Spark refuses to read               Spark does not start
    before N    offsets/N-1, sources/I/0
    N           offsets/N                                                                Spark reads the new ones
    end         the journal is removed

A command that is killed in between is repeated: it finds the journal, and completes it.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.dataframe.offsets import IDS, QueryOffsets
from eomirror.errors import DifferenceError, UsageError, some
from eomirror.groups.offset_translator import OffsetTranslator
from eomirror.groups.translation import Asked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eomirror.config import Config, Link
    from eomirror.dataframe.offsets import Name
    from eomirror.groups.translation import Translation

__all__ = ["TranslatedCheckpoint", "translate_checkpoint"]

_JOURNAL = "eomirror-translation.json"
_BARRIER = b"eomirror translates this checkpoint: run `eomirror checkpoint translate` again\n"
_HEAD_LINES = 2


@dataclass(frozen=True, slots=True)
class TranslatedCheckpoint:
    """
    Changes of a translation.

    Attributes:
        link: Name of the link.
        reverse: True if the query moves from the target to the source.
        batch: Number of the newest batch.
        repeats: True if that batch is not completed, so that the query repeats it.
        offsets: Translation of each offset, of the newest file last.
        untouched: Sources of the query, by number from 0, whose offsets are not those of Kafka topics.
        files: Files that change.
        written: True if they were changed.
    """

    link: str
    reverse: bool
    batch: int
    repeats: bool
    offsets: tuple[Translation, ...]
    untouched: tuple[int, ...]
    files: tuple[str, ...]
    written: bool

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return asdict(self) | {"offsets": [each.as_dict() for each in self.offsets]}


@dataclass(frozen=True, slots=True)
class _SourceLine:
    """
    A source's line of a file of offsets.

    Attributes:
        before: What stands before the document, such as the name of the source.
        document: Offsets by topic and partition; None if it is the line of another source.
        text: The line.
    """

    before: str
    document: Mapping[str, Any] | None
    text: str

    @classmethod
    def parse(cls, text: str) -> _SourceLine:
        before, brace, rest = text.partition("{")
        try:
            document = orjson.loads(brace + rest)
        except orjson.JSONDecodeError:
            document = None
        return cls(before, document if _is_of_kafka(document) else None, text)


def _is_of_kafka(document: Any) -> bool:
    if not isinstance(document, dict) or not document.keys() - {IDS}:
        return False
    return all(
        isinstance(inner, dict)
        and inner
        and all(number.isdecimal() and type(offset) is int for number, offset in inner.items())
        for topic, inner in document.items()
        if topic != IDS
    )


def translate_checkpoint(
    folder: Path, config: Config, link: Link, *, reverse: bool = False, dry_run: bool = False
) -> TranslatedCheckpoint:
    """
    Rewrites the source offsets of a checkpoint for the other side of a link; all of them, or none.

    Args:
        folder: The query's ``checkpointLocation``; the query must not run.
        reverse: The query moves from the target to the source.  Offsets of ``format("eomirror")`` say so themselves.
        dry_run: Translates, and changes no file.

    Raises:
        UsageError: The folder is no checkpoint, or none of its sources reads Kafka.
        DifferenceError: An offset cannot be translated, such as one that is not mirrored yet; nothing was changed.
        ClusterError: A cluster cannot be asked.
    """
    if (begun := _begun(folder, link)) is not None:
        if not dry_run:
            _apply(folder, begun)
        return TranslatedCheckpoint(
            link.name, begun["reverse"], begun["batch"], begun["repeats"], (), (),
            tuple(begun["files"]), written=not dry_run,
        )  # fmt: skip
    batch, repeats, names = _files(folder)
    texts = {name: (folder / name).read_text() for name in names}
    lines = {name: [_SourceLine.parse(text) for text in _source_lines(name, texts[name])] for name in names}
    documents = [line.document for each in lines.values() for line in each if line.document is not None]
    if not documents:
        raise UsageError(
            f"{folder}: no source of the query reads Kafka topics",
            fix="name the checkpointLocation of a query that does",
        )
    translations, ids, reverse = _translated(
        config, link, [QueryOffsets.of_json(one) for one in documents], reverse=reverse
    )
    files = {name: _rewritten(name, texts[name], lines[name], translations, ids) for name in names}
    newest = f"offsets/{batch}"
    untouched = tuple(number for number, line in enumerate(lines[newest]) if line.document is None)
    if not dry_run:
        journal = {
            "link": link.name, "reverse": reverse, "batch": batch, "repeats": repeats, "files": files,
        }  # fmt: skip
        _replace(folder / _JOURNAL, orjson.dumps(journal))
        _apply(folder, journal)
    return TranslatedCheckpoint(
        link.name, reverse, batch, repeats, tuple(translations.values()), untouched, tuple(files), not dry_run
    )


def _begun(folder: Path, link: Link) -> Mapping[str, Any] | None:
    """Returns the journal of a translation that was interrupted; None if there is none, or it has changed no file."""
    file = folder / _JOURNAL
    if not file.exists():
        return None
    journal: dict[str, Any] = orjson.loads(file.read_bytes())
    newest = f"offsets/{journal['batch']}"
    # without the barrier the query may have run since; where the newest file is new, all are
    if (folder / newest).read_bytes() not in {_BARRIER, journal["files"][newest].encode()}:
        return None
    if journal["link"] != link.name:
        raise UsageError(
            f"{folder} is half translated by link {journal['link']}",
            fix=f"repeat that first: --link {journal['link']}",
        )
    return journal


def _files(folder: Path) -> tuple[int, bool, list[str]]:
    """Returns the newest batch, True if it is to be repeated, and the files that count, the newest last."""
    logged, done = (_numbers(folder / name) for name in ("offsets", "commits"))
    if not logged:
        raise UsageError(
            f"{folder} has no offsets of a streaming query",
            fix="name the query's checkpointLocation; one in HDFS or S3 is copied to a local folder first",
        )
    batch = logged[-1]
    if done and done[-1] == batch:
        return batch, False, [f"offsets/{batch}"]
    names = []
    if batch - 1 in logged:
        names.append(f"offsets/{batch - 1}")
    else:
        # where Spark's own connector began
        names += sorted(f"sources/{one.parent.name}/0" for one in folder.glob("sources/*/0"))
    return batch, True, [*names, f"offsets/{batch}"]


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(one.name) for one in folder.iterdir() if one.name.isdecimal())


def _source_lines(name: str, text: str) -> list[str]:
    lines = text.split("\n")
    if name.startswith("sources/"):
        return lines[1:]
    if len(lines) <= _HEAD_LINES or not lines[0].startswith("v"):
        raise UsageError(f"{name} is not a file of offsets of Spark", fix="check the checkpoint")
    return lines[_HEAD_LINES:]


def _rewritten(
    name: str,
    text: str,
    lines: Sequence[_SourceLine],
    translations: Mapping[tuple[Name, int], Translation],
    ids: Mapping[str, str],
) -> str:
    """Returns a file with other offsets; ids only where there were some."""
    head = text.split("\n")[: 1 if name.startswith("sources/") else _HEAD_LINES]
    rewritten = []
    for line in lines:
        if line.document is None:
            rewritten.append(line.text)
            continue
        before = QueryOffsets.of_json(line.document)
        found = [translations[where, at] for where, at in before.next.items()]
        after = QueryOffsets(
            {(one.to_topic, one.to_partition): one.to_offset or 0 for one in found},
            {one.to_topic: ids[one.to_topic] for one in found if before.ids and one.to_topic in ids},
        )
        rewritten.append(line.before + orjson.dumps(after.as_json()).decode())
    return "\n".join([*head, *rewritten])


def _translated(
    config: Config, link: Link, documents: Sequence[QueryOffsets], *, reverse: bool
) -> tuple[dict[tuple[Name, int], Translation], dict[str, str], bool]:
    """Returns the translation of each offset, the ids of the topics on the other side, and the direction."""
    with closing(OffsetTranslator(config, link, ask_source=False)) as translator:
        positions = translator.reader.positions().values()
    known = {topic_id for one in documents for topic_id in one.ids.values()}
    if known:
        there = {position.target_topic_id for position in positions}
        here = {position.topic_id for position in positions}
        reverse = bool(known & there) and not known & here
        if strange := sorted(
            topic
            for one in documents
            for topic, topic_id in one.ids.items()
            if topic_id not in (there if reverse else here)
        ):
            raise DifferenceError(
                f"link {link.name} has not mirrored {some(list(dict.fromkeys(strange)))}, or not the topic that the "
                "query read",
                fix="name the link that mirrors all topics of the query; a topic that was created again has another id",
            )
    asked = {(name, at): Asked(name, at) for one in documents for name, at in one.next.items()}
    with closing(OffsetTranslator(config, link, reverse=reverse)) as translator:
        found = translator.translate_readers(list(asked.values()))
    result = {((one.topic, one.partition), one.offset): one for one in found}
    problems = [
        f"{name[0]}-{name[1]} at {at}: "
        + (result[name, at].reason if (name, at) in result else "the link does not mirror it")
        for name, at in asked
        if (name, at) not in result or result[name, at].to_offset is None
    ]
    if problems:
        raise DifferenceError(
            "the checkpoint is not translated, and was not changed: "
            + "; ".join(problems[:3])
            + (f"; and {len(problems) - 3} more" if len(problems) > 3 else ""),  # noqa: PLR2004  as many as are shown
            fix="let the link catch up (`eomirror run CONFIG --until caught-up`), then repeat the command",
        )
    ids = {
        (position.topic if reverse else position.target_topic): (
            position.topic_id if reverse else position.target_topic_id
        )
        for position in positions
    }
    return result, ids, reverse


def _apply(folder: Path, journal: Mapping[str, Any]) -> None:
    """Replaces the files of the journal; may be repeated after any interruption."""
    newest = f"offsets/{journal['batch']}"
    others = {name: text for name, text in journal["files"].items() if name != newest}
    if others:
        _replace(folder / newest, _BARRIER)
    for name, text in others.items():
        _replace(folder / name, text.encode())
    _replace(folder / newest, journal["files"][newest].encode())
    (folder / _JOURNAL).unlink()
    _sync(folder)


def _replace(file: Path, content: bytes) -> None:
    """Replaces a file as a whole.  Hadoop's checksum beside it goes first: without one, none is compared."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    fresh = file.with_name(f".{file.name}.eomirror")
    with fresh.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)
    _sync(file.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
