"""A failure before the record lifts the fence, whatever it is; a fence that stays is named."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import pytest

from eomirror.cli import cutover as cutover_commands
from eomirror.cli.failover import asked, promoted
from eomirror.cli.options import LinkCommand
from eomirror.errors import MirrorError, NotReadyError, UnreachableError, UsageError
from eomirror.failover import writer_fence
from eomirror.failover.machine import State, StepOutcome, Verb
from eomirror.failover.promotion import PromotionOptions, _Run, _TakenLink
from eomirror.failover.readiness import Facts, assess
from eomirror.failover.writer_fence import FenceMethod, LinkWriterFence, run_command
from eomirror.records.control import ControlView
from eomirror.records.promotion import Fence, PromotionHistory
from eomirror.status.model import LinkStatus
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock
from support.links.one_link import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDING = Fence(number=1, method="acl", topics=("orders",), lifted=False, host="h", timestamp=1)


class Writers:
    """A fence that counts, and may be impossible to lift."""

    stops = True

    def __init__(self, problem: str = "") -> None:
        self.calls: list[str] = []
        self.problem = problem

    def fence(self) -> None:
        self.calls.append("fence")

    def check(self) -> None:
        """It stands."""

    def undo(self) -> None:
        self.calls.append("undo")
        if self.problem:
            raise MirrorError(self.problem)


def cutover(writers: Writers, clock: PlayedClock | None = None) -> _Run:
    """A cutover that is ready, and has reached its drain."""
    run = _Run(
        CONFIG,
        None,
        Verb.CUTOVER,
        PromotionOptions(fence=writers),
        on_event=lambda _: None,
        clock=clock or PlayedClock(),
    )

    def ready() -> StepOutcome:
        run._readiness = object()  # type: ignore[assignment]  only passed on
        return StepOutcome.FENCE_WANTED

    run._steps[State.CHECKING] = ready
    return run


def raising(error: BaseException) -> Any:
    def step() -> StepOutcome:
        raise error

    return step


def test_the_number_stands_before_the_question(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Verdict and warnings are shown, then the name is asked for; another name changes nothing."""
    readiness = assess(
        Facts(
            status=LinkStatus(link="a->b", state="running", problem="away"), source_answers=False,
            known_lost=706, seen_seconds=29.0,
        ),
        Verb.FAILOVER,
    )  # fmt: skip
    action = LinkCommand(config=CONFIG, link="a->b", dry_run=False, yes=False, report=None, output=None)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.prompt", lambda text, **_: click.echo(text) or "b->a")
    writers = Writers()
    run = cutover(writers)
    run._options = replace(run._options, confirm=asked(action, "failover"))
    taken = run._steps[State.CHECKING]

    def checked() -> StepOutcome:
        event = taken()
        run._readiness = readiness
        return event

    run._steps[State.CHECKING] = checked
    with pytest.raises(UsageError, match="nothing was changed"):
        run.to_the_end()
    assert writers.calls == ["undo"]
    shown = capsys.readouterr()
    assert "706" in shown.err
    assert "warn: lag: 706 offsets" in shown.err
    assert "type its name" in shown.out
    assert asked(replace(action, yes=True), "failover") is None


def test_the_time_to_answer_is_not_that_of_the_command() -> None:
    """`history` shows what the promotion took."""
    clock = PlayedClock()
    run = cutover(Writers(), clock)
    began = run._times.started_ms
    run._options = replace(run._options, confirm=lambda _: clock.sleep(300))
    run._steps[State.FENCING] = raising(NotReadyError("enough"))
    run._steps[State.UNDOING] = lambda: StepOutcome.DONE
    run.to_the_end()
    run.close()
    assert run._times.started_ms - began == 300_000


@pytest.mark.parametrize(("seconds", "state"), [(5, "promoted"), (300, "refused")])
def test_what_changed_while_the_question_stood_counts(seconds: float, state: str) -> None:
    """The source answers again, say: the same check refuses then."""
    clock, writers, looks = PlayedClock(), Writers(), [StepOutcome.FENCE_WANTED, StepOutcome.REFUSED]
    run = cutover(writers, clock)
    ready = run._steps[State.CHECKING]

    def checked() -> StepOutcome:
        ready()
        return looks.pop(0)

    run._steps |= dict.fromkeys(run._steps, lambda: StepOutcome.DONE)
    run._steps |= {State.CHECKING: checked, State.FENCING: run._fence}
    run._options = replace(run._options, confirm=lambda _: clock.sleep(seconds))
    assert run.to_the_end().state == state
    run.close()
    assert writers.calls == (["fence"] if state == "promoted" else [])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), ZeroDivisionError()])
def test_an_interrupted_cutover_lifts_its_fence(error: BaseException) -> None:
    """Also for what is no error of ours: applications would be stopped for good."""
    writers = Writers()
    run = cutover(writers)
    run._steps[State.DRAINING] = raising(error)

    with pytest.raises(type(error)):
        run.to_the_end()

    run.close()
    assert writers.calls == ["fence", "undo"]


def test_a_fence_that_cannot_be_lifted_is_named_with_the_failure() -> None:
    """The user is told of both, and of the command."""
    writers = Writers("no broker answers")
    run = cutover(writers)
    run._steps[State.DRAINING] = raising(NotReadyError("records keep arriving"))

    report = run.to_the_end()

    run.close()
    assert report.state == "failed"
    assert report.error is not None
    assert "records keep arriving" in report.error.message
    assert "no broker answers" in report.error.message
    assert "unfence" in report.error.fix
    assert report.error.exit_code == 6


@pytest.mark.parametrize(("recorded", "undone"), [(None, False), (True, False), (False, True)])
def test_a_fence_stays_while_the_link_may_be_promoted(
    monkeypatch: pytest.MonkeyPatch, *, recorded: bool | None, undone: bool
) -> None:
    """The commit of the record was not answered: applications that write to the source again would lose records."""
    writers = Writers()
    run = cutover(writers)
    monkeypatch.setattr(run, "_is_recorded", lambda: recorded)
    run._recording = True

    assert run._undo() is StepOutcome.DONE

    run.close()
    assert writers.calls == (["undo"] if undone else [])


class Denials:
    """ACL entries of a cluster."""

    def __init__(self, *topics: str) -> None:
        self.entries = set(topics)

    def existing(self) -> frozenset[str]:
        return frozenset(self.entries)

    def cluster_id(self) -> str:
        return "east"

    def bare(self, _: set[str]) -> frozenset[str]:
        return frozenset()

    def deny(self, topics: tuple[str, ...]) -> None:
        self.entries |= set(topics)

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A link with a fence that stands, of which a topic was found later; what is written."""
    world: dict[str, Any] = {"written": [], "denials": Denials("orders", "theirs")}
    monkeypatch.setattr(writer_fence, "history_of", lambda *_: PromotionHistory(fences={1: STANDING}))
    monkeypatch.setattr(LinkWriterFence, "_topics", lambda *_: ("orders", "later", "theirs"))
    monkeypatch.setattr(LinkWriterFence, "_write", lambda _, __, fence: world["written"].append(fence))
    producer = SimpleNamespace(init=lambda: None, close=lambda: None)
    monkeypatch.setattr(LinkWriterFence, "_producer", lambda _: producer)
    monkeypatch.setattr(LinkWriterFence, "_denials", lambda _: world["denials"])
    monkeypatch.setattr(LinkWriterFence, "_broker_settings", lambda _: {})
    monkeypatch.setattr(LinkWriterFence, "_others", lambda *_, **__: {})
    return world


def test_a_fence_that_stands_is_extended_by_what_is_added(fenced: dict[str, Any]) -> None:
    """`unfence` removes each entry that was added, and no other."""
    LinkWriterFence(CONFIG, CONFIG.links[0], FenceMethod(name="acl")).fence()

    # before the entry is added, and behind it: the second fails if another call has begun to lift the fence
    assert [fence.topics for fence in fenced["written"]] == [("later", "orders")] * 2
    assert fenced["denials"].entries == {"orders", "later", "theirs"}


def test_a_fence_of_another_method_is_refused_and_stays(
    fenced: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record would undo one of the two only."""
    other = LinkWriterFence(CONFIG, CONFIG.links[0], FenceMethod(name="command", command="false"))
    monkeypatch.setattr(LinkWriterFence, "lift", lambda _: pytest.fail("not ours"))

    with pytest.raises(NotReadyError, match="fenced already, with the method acl"):
        other.fence()

    other.undo()
    assert fenced["written"] == []


def test_the_output_of_a_hook_is_not_mixed_into_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    """Stdout holds one JSON document."""
    assert run_command("echo done", {}) == 0

    assert capfd.readouterr() == ("", "done\n")


@pytest.mark.parametrize("error", [None, MirrorError("cannot start it")], ids=["failed", "not started"])
def test_a_switch_that_failed_is_an_error_of_the_command(
    monkeypatch: pytest.MonkeyPatch, error: MirrorError | None
) -> None:
    """The link is promoted, but clients are where they were: exit code 0 would tell a script otherwise."""
    report: Any = SimpleNamespace(
        promoted=True,
        switched=None if error else False,
        error=error,
        refused_groups={},
        as_dict=dict,
        readiness=None,
    )
    monkeypatch.setattr("eomirror.failover.promote", lambda *_, **__: report)

    action = LinkCommand(CONFIG, CONFIG.links[0].name, dry_run=False, yes=True, report=None, output="json")
    with pytest.raises(MirrorError, match="is promoted, but the command of --on-switch failed"):
        promoted(action, Verb.CUTOVER, PromotionOptions())


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (
            {"billing": "not authorized", "audit": "no coordinator"},
            "2 groups were not moved: audit: no coordinator; ",
        ),
        ({"*": "there are no checkpoints"}, "no group was moved: there are no checkpoints"),
    ],
)
def test_groups_that_were_not_moved_are_an_error_of_the_command(
    monkeypatch: pytest.MonkeyPatch, refused: dict[str, str], words: str
) -> None:
    """Their consumers would start wherever `auto.offset.reset` sends them; exit code 0 would say otherwise."""
    report: Any = SimpleNamespace(
        promoted=True, switched=None, error=None, refused_groups=refused, as_dict=dict, readiness=None
    )
    monkeypatch.setattr("eomirror.failover.promote", lambda *_, **__: report)

    action = LinkCommand(CONFIG, CONFIG.links[0].name, dry_run=False, yes=True, report=None, output="json")
    with pytest.raises(MirrorError, match=f"is promoted, but {words}") as raised:
        promoted(action, Verb.FAILOVER, PromotionOptions())

    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("facts", "refused"), [(object(), True), (None, False)], ids=["no leader", "deleted"]
)
def test_a_copy_that_exists_has_a_cut(
    monkeypatch: pytest.MonkeyPatch, facts: object | None, *, refused: bool
) -> None:
    """A broker may fail between the check and the cut: the link back would never read that topic."""
    run = cutover(Writers())
    position: Any = SimpleNamespace(target_topic="east.orders")
    run._taken = _TakenLink(ControlView(), {}, {SourcePartition("orders", 0): position})
    monkeypatch.setattr(
        run.sessions.target.admin, "describe_topics", lambda names: dict.fromkeys(names, facts)
    )

    if refused:
        with pytest.raises(UnreachableError, match=r"the end of east\.orders on west is not known"):
            run._refuse_unknown_ends()
    else:
        run._refuse_unknown_ends()
    run.close()


@pytest.mark.parametrize("stands", [True, False])
def test_a_dry_run_of_a_fence_names_what_it_would_change(
    fenced: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    stands: bool,
) -> None:
    """Entries that are there already stay, and nothing is written."""
    if not stands:
        monkeypatch.setattr(writer_fence, "history_of", lambda *_: PromotionHistory())
    monkeypatch.setattr(LinkWriterFence, "_target", lambda _: Denials())
    for name, given in (("fence", {"method": "acl"}), ("unfence", dict[str, str]())):
        action = LinkCommand(CONFIG, CONFIG.links[0].name, dry_run=True, yes=True, report=None, output="json")
        command = getattr(cutover_commands, name).callback.__wrapped__
        assert command(action, fence_command="", **given) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["standing"] == ("acl" if stands else None)
        assert found.get("topics", ["later"]) == ["later"]
    assert fenced["written"] == []
    assert fenced["denials"].entries == {"orders", "theirs"}
