"""The fence by ACL: what it asks first, what it leaves when it is refused, and whose entries it deletes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import ResourcePatternType

from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    MirrorError,
    NotReadyError,
    UnreachableError,
    UsageError,
)
from eomirror.failover import writer_fence
from eomirror.failover.writer_fence import FenceMethod, LinkWriterFence
from eomirror.kafka.acls import WriteDenials
from eomirror.kafka.cluster_metadata import ConfigValue
from eomirror.records.promotion import Fence, PromotionHistory
from support.fakes.clocks import PlayedClock
from support.links.one_link import CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LINK = CONFIG.links[0]
ACL = FenceMethod(name="acl")
STANDING = Fence(
    number=1, method="acl", topics=("orders",), lifted=False, host="h", timestamp=1, source_cluster_id="east"
)
REFUSED = AuthorizationError("User:o lacks Alter on cluster", fix="grant it")
SETTING = "allow.everyone.if.no.acl.found"


class Source:
    """
    ACLs of the source.

    Attributes:
        denied: Topics with an entry DENY Write for all.
        named: Topics with an entry of any kind.
        refuses: Error of a request that adds entries, after it has added ``adds``.
        keeps: Error of a request that deletes entries.
    """

    def __init__(self) -> None:
        self.denied: set[str] = set()
        self.named = {"orders", "parcels"}
        self.refuses: MirrorError | None = None
        self.keeps: MirrorError | None = None
        self.adds: set[str] = set()
        self.silent = False

    def cluster_id(self) -> str:
        return "east"

    def existing(self) -> frozenset[str]:
        if self.silent:
            raise UnreachableError("no broker answers")
        return frozenset(self.denied)

    def bare(self, topics: set[str]) -> frozenset[str]:
        return frozenset(set(topics) - self.named - self.denied)

    def deny(self, topics: tuple[str, ...]) -> None:
        self.denied |= set(topics) if self.refuses is None else self.adds
        if self.refuses is not None:
            self.silent = isinstance(self.refuses, UnreachableError)
            raise self.refuses

    def allow(self, topics: set[str]) -> None:
        if self.keeps is not None:
            raise self.keeps
        self.denied -= set(topics)

    def close(self) -> None:
        """Nothing to close."""


class World:
    """A link, its control topic, and the fences of other links by state name."""

    def __init__(self) -> None:
        self.source = Source()
        self.fence: Fence | None = None
        self.written: list[Fence] = []
        self.settings: Mapping[str, ConfigValue] | None = {}
        self.others: dict[str, Fence] = {}
        self.away = False
        self.looks = 0

    def write(self, fence: Fence) -> None:
        self.fence = fence
        self.written.append(fence)

    def history(self) -> PromotionHistory:
        return PromotionHistory(fences={} if self.fence is None else {self.fence.number: self.fence})

    def made(self, method: FenceMethod = ACL) -> LinkWriterFence:
        return LinkWriterFence(CONFIG, LINK, method, clock=PlayedClock())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two topics, `orders` and `parcels`, that entries ALLOW name."""
    found = World()
    session = SimpleNamespace(close=lambda: None)

    class Others:
        def __init__(self, *_: object, **__: object) -> None:
            found.looks += 1
            if found.away:
                raise UnreachableError("west does not answer")

        def fences(self, *, but: str) -> Iterator[tuple[str, Fence]]:
            assert but == LINK.state_name
            yield from found.others.items()

    monkeypatch.setattr(writer_fence, "history_of", lambda *_: found.history())
    monkeypatch.setattr(writer_fence, "fence", lambda *_, **__: None)
    monkeypatch.setattr(writer_fence, "OtherLinks", Others)
    monkeypatch.setattr(LinkWriterFence, "_target", lambda _: session)
    monkeypatch.setattr(LinkWriterFence, "_topics", lambda *_: ("orders", "parcels"))
    monkeypatch.setattr(LinkWriterFence, "_write", lambda _, __, fence: found.write(fence))
    producer = SimpleNamespace(init=lambda: None, close=lambda: None)
    monkeypatch.setattr(LinkWriterFence, "_producer", lambda _: producer)
    monkeypatch.setattr(LinkWriterFence, "_denials", lambda _: found.source)
    monkeypatch.setattr(LinkWriterFence, "_broker_settings", lambda _: found.settings)
    return found


def setting(value: str | None) -> dict[str, ConfigValue]:
    """A broker's answer; None for a value that it hides."""
    return {SETTING: ConfigValue(value, is_default=False, sensitive=value is None)}


# -- what it asks first ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ""),
        (setting("false"), ""),
        (setting("true"), f"{SETTING} is true: the first one shuts out the mirror and every consumer"),
        (setting(None), "do not tell its value; if it is true"),
        (None, "could not be read; if it is true"),
    ],
    ids=["not set", "false", "true", "hidden", "not readable"],
)
def test_the_first_entry_of_a_topic_must_shut_out_no_reader(world: World, settings: Any, words: str) -> None:
    """The real run and every dry run ask alike; where an entry names each topic, the setting has no effect."""
    world.settings = settings
    world.source.named = {"orders"}
    acts = (lambda: world.made().described(), lambda: world.made().inspect(), lambda: world.made().fence())
    for act in acts if words else ():
        with pytest.raises(NotReadyError, match="no ACL entry names parcels on east") as raised:
            act()
        assert words in raised.value.message
        assert "--operation Read --topic 'parcels'" in raised.value.fix
        assert "--method command" in raised.value.fix
        assert ("--operation DescribeConfigs --cluster" in raised.value.fix) == (settings is None)
        assert (world.written, world.source.denied) == ([], set())
    if words:
        world.source.named.add("parcels")
    world.made().fence()
    assert world.source.denied == {"orders", "parcels"}
    # `unfence --method acl --dry-run` is refused as little as `unfence`
    world.settings, world.source.named, world.source.denied = settings, set(), set()
    standing = world.made().standing()
    assert standing is not None
    assert world.made().lift() == standing


def test_a_cluster_without_authorizer_is_refused_before_anything_is_recorded(world: World) -> None:
    """In the real run as in the dry run."""
    world.source.named = set()
    world.settings = {"authorizer.class.name": ConfigValue("", is_default=True)}
    for act in (world.made().described, world.made().inspect, world.made().fence):
        with pytest.raises(ClusterError, match="has no authorizer") as raised:
            act()
        assert "--method wait" in raised.value.fix
    assert world.written == []


@pytest.mark.parametrize(
    ("name", "pattern", "bare"),
    [
        ("orders", ResourcePatternType.LITERAL, {"orders.eu", "parcels"}),
        ("orders", ResourcePatternType.PREFIXED, {"parcels"}),
        ("orders.", ResourcePatternType.PREFIXED, {"orders", "parcels"}),
        ("*", ResourcePatternType.LITERAL, set()),
        ("other", ResourcePatternType.LITERAL, {"orders", "orders.eu", "parcels"}),
    ],
)
def test_an_entry_names_a_topic_by_its_name_its_prefix_or_a_star(
    name: str, pattern: ResourcePatternType, bare: set[str]
) -> None:
    """As Kafka's authorizer matches them, whatever they allow or deny."""
    found = [SimpleNamespace(name=name, resource_pattern_type=pattern)]
    with denials(acls=found, rights=["DESCRIBE"]) as made:
        assert made.bare({"orders", "orders.eu", "parcels"}) == bare


def test_no_entries_are_believed_only_with_the_right_to_see_them() -> None:
    """The client answers an empty list where brokers refuse the request (librdkafka 2.16)."""
    with denials(acls=[], rights=["DESCRIBE"]) as made:
        assert made.existing() == frozenset()
        with pytest.raises(AuthorizationError, match="lacks Alter on cluster") as raised:
            made.cluster_id()
        assert "--operation Alter --cluster" in raised.value.fix
    for rights in ([], None):
        with denials(acls=[], rights=rights) as made:
            for ask in (made.existing, made.cluster_id, lambda made=made: made.bare({"orders"})):
                with pytest.raises(AuthorizationError, match="lacks Describe on cluster"):
                    ask()


@contextmanager
def denials(*, acls: list[Any], rights: list[str] | None) -> Iterator[WriteDenials]:
    """An adapter whose client answers so."""
    told = None if rights is None else [SimpleNamespace(name=right) for right in rights]
    cluster = SimpleNamespace(cluster_id="east", authorized_operations=told)

    def answering(answer: Any) -> Any:
        return lambda *_, **__: SimpleNamespace(result=lambda _: answer)

    made = WriteDenials(CONFIG.clusters["east"], client_id="test", clock=PlayedClock())
    made._retrying._client = SimpleNamespace(
        poll=lambda _: 0, describe_acls=answering(acls), describe_cluster=answering(cluster)
    )
    try:
        yield made
    finally:
        made.close()


# -- what a refused one leaves ---------------------------------------------------------------------


@pytest.mark.parametrize("refuses", [REFUSED, ClusterError("the controller refuses")], ids=["right", "other"])
@pytest.mark.parametrize("adds", [set(), {"orders"}], ids=["nothing added", "a part added"])
def test_a_refused_fence_leaves_nothing(world: World, refuses: MirrorError, adds: set[str]) -> None:
    """The record of what it was about to add is withdrawn, and what it has added is deleted."""
    world.source.refuses, world.source.adds = refuses, adds
    fence = world.made()
    with pytest.raises(type(refuses)):
        fence.fence()
    assert world.history().fence is None
    assert world.source.denied == set()
    writes = len(world.written)
    fence.undo()
    fence.check()
    assert len(world.written) == writes


def test_what_a_refused_fence_cannot_delete_stays_recorded(world: World) -> None:
    """`unfence` deletes exactly that, once the right is granted; the error says so."""
    world.source.refuses, world.source.keeps, world.source.adds = REFUSED, REFUSED, {"orders"}
    with pytest.raises(
        AuthorizationError, match=r"entries DENY Write on orders .*eomirror unfence CONFIG --link"
    ):
        world.made().fence()
    standing = world.history().fence
    assert standing is not None
    assert (standing.topics, standing.lifting) == (("orders",), False)
    world.source.keeps = None
    world.made().lift()
    assert (world.source.denied, world.history().fence) == (set(), None)


def test_a_fence_that_stood_before_stays_as_it_was(world: World) -> None:
    """Also its undoing is the business of the command that set it."""
    world.fence, world.source.denied = STANDING, {"orders"}
    world.source.refuses, world.source.keeps = REFUSED, REFUSED
    fence = world.made()
    with pytest.raises(AuthorizationError):
        fence.fence()
    fence.undo()
    assert (world.history().fence, world.source.denied) == (STANDING, {"orders"})


def test_an_answer_that_is_missing_is_not_taken_for_a_refusal(world: World) -> None:
    """The entries may be there, so the record stays, and undoing deletes them."""
    world.source.refuses, world.source.keeps = UnreachableError("no answer"), UnreachableError("no answer")
    world.source.adds = {"orders", "parcels"}
    fence = world.made()
    with pytest.raises(UnreachableError):
        fence.fence()
    standing = world.history().fence
    assert standing is not None
    assert standing.topics == ("orders", "parcels")
    world.source.keeps, world.source.silent = None, False
    fence.undo()
    assert (world.source.denied, world.history().fence) == (set(), None)


def test_a_hook_that_cannot_be_started_leaves_no_record(world: World) -> None:
    """One that fails may have stopped some applications, so its record stays."""
    with pytest.raises(UsageError):
        world.made(FenceMethod(name="command", command="/nowhere/hook")).fence()
    assert world.history().fence is None
    with pytest.raises(NotReadyError):
        world.made(FenceMethod(name="command", command="false")).fence()
    assert world.history().fence is not None


# -- several links ---------------------------------------------------------------------------------


def other(**changes: Any) -> dict[str, Fence]:
    return {"east->west2": replace(STANDING, **changes)}


@pytest.mark.parametrize(
    ("others", "kept"),
    [
        ({}, {}),
        (other(), {"orders": "east->west2"}),
        (other(topics=("orders", "parcels", "more")), {"orders": "east->west2", "parcels": "east->west2"}),
        (other(lifting=True), {}),
        (other(source_cluster_id="north"), {}),
        (other(method="command", topics=(), source_cluster_id=""), {}),
    ],
    ids=["none", "one topic", "both", "being lifted", "another source", "a hook"],
)
def test_an_entry_stays_while_the_fence_of_another_link_needs_it(
    world: World, others: dict[str, Fence], kept: dict[str, str]
) -> None:
    """Of two commands that lift both at once, one sees the other, and deletes the entry."""
    world.made().fence()
    world.others = others
    fence = world.made()
    fence.lift()
    assert world.source.denied == set(kept)
    assert fence.kept == kept
    assert world.history().fence is None


@pytest.mark.parametrize("lifting", [False, True])
def test_the_entry_of_another_fence_is_deleted_with_this_one(world: World, *, lifting: bool) -> None:
    """It is recorded as needed here as well; an entry that no fence has added is not."""
    world.source.denied = {"orders", "parcels"}
    world.others = other(lifting=lifting)
    world.made().fence()
    assert world.history().fence is not None
    assert world.written[-1].topics == ("orders",)
    world.others = {}
    world.made().lift()
    assert world.source.denied == {"parcels"}


def test_other_links_are_read_only_if_an_entry_was_there(world: World) -> None:
    """Producers wait meanwhile."""
    world.made().fence()
    assert world.looks == 0


def test_a_target_that_does_not_answer_keeps_no_topic_closed(world: World) -> None:
    """None of its links can record a promotion, and each looks at the entries before it does."""
    world.made().fence()
    world.others, world.away = other(), True
    fence = world.made()
    fence.lift()
    assert (world.source.denied, fence.kept) == (set(), {})


def test_the_entries_themselves_are_looked_at_before_a_promotion(world: World) -> None:
    """One that was there before the fence counts as much as one that it has added."""
    world.source.denied = {"parcels"}
    fence = world.made()
    fence.check()
    fence.fence()
    fence.check()
    # `fence`, then a `cutover --method wait`
    waits = world.made(FenceMethod())
    waits.fence()
    waits.check()
    world.source.denied = {"parcels"}
    with pytest.raises(NotReadyError, match=r"DENY Write for User:\* on orders of east are gone"):
        waits.check()
    for gone in ("orders", "parcels"):
        world.source.denied = {"orders", "parcels"} - {gone}
        with pytest.raises(NotReadyError, match=f"DENY Write for User:\\* on {gone} of east are gone"):
            fence.check()
