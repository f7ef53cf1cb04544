"""Reading the topics of a link: what it showed last stays, with its age, until it can be read again."""

from __future__ import annotations

from structlog.testing import capture_logs

from eomirror.errors import MirrorError, StateError, UnreachableError
from eomirror.status.model import LinkStatus
from eomirror.status.repeated_reader import TopicsReader
from support.fakes.status_records import gap

STATUS = LinkStatus(link="a->b", state="running", lag_records=0, gaps=(gap("t", 1, 2),))


class Clock:
    """Goes on by a second with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now

    def wall_ms(self) -> int:
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class Reader:
    """Returns or raises what it was given."""

    def __init__(self, *results: LinkStatus | Exception) -> None:
        self.results = list(results)
        self.closed = False

    def read(self) -> LinkStatus:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        self.closed = True


def test_what_was_read_last_stays_with_its_age() -> None:
    """Also over several reads that fail; the next that succeeds replaces it."""
    reader = Reader(
        STATUS, UnreachableError("no way to b", fix="x"), StateError("not readable", fix="y"), STATUS
    )
    topics = TopicsReader("a->b", lambda: reader, Clock())

    good = topics.read()
    assert (good.status, good.took_seconds, good.failed, good.kept_seconds(9.0)) == (STATUS, 1.0, False, None)
    for problem, fix, away in (("no way to b", "x", ("target",)), ("not readable", "y", ())):
        kept = topics.read()
        assert (kept.status.state, kept.status.problem, kept.status.fix) == ("unknown", problem, fix)
        assert (kept.status.gaps, kept.status.lag_records) == (STATUS.gaps, None)
        assert (kept.failed, kept.status.away, kept.kept_seconds(good.at + 30)) == (True, away, 30.0)
    assert topics.read().status is STATUS

    topics.close()
    assert reader.closed


def test_a_link_that_was_never_read_shows_nothing() -> None:
    """The reader is made again until it can be."""
    made: list[Reader | MirrorError] = [StateError("no right", fix="grant it"), Reader(STATUS)]

    def make() -> Reader:
        found = made.pop(0)
        if isinstance(found, MirrorError):
            raise found
        return found

    topics = TopicsReader("a->b", make, Clock())
    unread = topics.read()
    assert (unread.status.state, unread.status.problem, unread.read_at) == ("unknown", "no right", None)
    assert unread.kept_seconds(5.0) is None
    assert topics.read().status is STATUS


def test_an_unforeseen_error_is_named_by_its_kind_only() -> None:
    """The log has the rest."""
    topics = TopicsReader("a->b", lambda: Reader(ValueError("broken")), Clock())
    with capture_logs() as logged:
        read = topics.read()
    assert read.status.problem == "reading its topics fails: ValueError"
    assert "report this as a bug" in read.status.fix
    assert [line["event"] for line in logged] == ["topics_not_read"]
