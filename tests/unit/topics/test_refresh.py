"""What a link finds when it begins again, and while it runs, from clusters that are played."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from structlog.testing import capture_logs

from eomirror.config import Cluster, Link
from eomirror.errors import AuthorizationError, ClusterError, MirrorError, QuotaError, TopicError
from eomirror.kafka.cluster_metadata import (
    ClusterFacts,
    ConfigValue,
    CreateTopic,
    TopicFacts,
    TopicShape,
)
from eomirror.topics.apply import TargetTopics
from eomirror.topics.diff import AlterConfig
from eomirror.topics.discovery import Discovery
from eomirror.topics.target_entries import TargetEntries
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Iterable

NOWHERE = Cluster("east", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
# without topics for MM2's readers, which would have to be played as well
LINK = Link(
    name="one", source="east", target="west", topics=(".*",), offset_syncs="off", heartbeats="off", groups=()
)
PARTITIONS = {"control": 1, "positions": 8, "offset-map": 8}
COMPACT = ConfigValue("compact", is_default=False)


class Admin:
    """A cluster on which every topic exists; some may not be looked at closely."""

    def __init__(
        self,
        names: Iterable[str] = (),
        *,
        hidden: str = "",
        leaderless: int | None = None,
        said: int = 9,
        brokers: int = 1,
    ) -> None:
        self.brokers = brokers
        self.names = list(names)
        self.said = said
        self.hidden = hidden
        self.leaderless = leaderless
        self.asked = 0
        self.cluster_id = ""
        self.name = "played"

    def topic_names(self) -> list[str]:
        return self.names

    def topic_shapes(self) -> dict[str, None]:
        return dict.fromkeys(self.names)

    def describe_cluster(self) -> ClusterFacts:
        self.asked += 1
        return ClusterFacts(self.cluster_id, self.brokers)

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        self.asked += 1
        silent = frozenset() if self.leaderless is None else frozenset({self.leaderless})
        return {
            name: TopicFacts(name, f"id-of-{name}", PARTITIONS.get(name.rpartition(".")[2], 3), 1, silent)
            for name in names
        }

    def visible_topics(self, names: list[str]) -> tuple[dict[str, TopicFacts], dict[str, AuthorizationError]]:
        return self.describe_topics(names), {}

    def offsets(self, partitions: list[tuple[str, int]], **_: Any) -> dict[tuple[str, int], int]:
        assert partitions == [("eomirror.one.control", 0)]
        return dict.fromkeys(partitions, self.said)

    def topic_configs(self, names: Iterable[str], **_: Any) -> dict[str, dict[str, Any]]:
        self.asked += 1
        asked = list(names)
        if self.hidden in asked:
            raise AuthorizationError(f"lacks DescribeConfigs on topic {self.hidden}", topic=self.hidden)
        return {name: {"cleanup.policy": COMPACT} if name.startswith("eomirror.") else {} for name in asked}

    def topic_rights(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        return dict.fromkeys(names, frozenset({"READ", "WRITE", "ALTER", "ALTER_CONFIGS"}))

    def create_topics(self, topics: list[Any], **_: Any) -> None:
        assert topics == []

    def alter_configs(self, name: str, values: dict[str, str]) -> None:
        raise ClusterError(f"set {', '.join(values)} of topic {name}: policy")

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records in control are those of a run."""
    monkeypatch.setattr(TargetEntries, "begun", lambda _: True)


def discovery(source: Admin, target: Admin, link: Link = LINK) -> Discovery:
    sides: Any = [SimpleNamespace(cluster=NOWHERE, admin=admin) for admin in (source, target)]
    made = Discovery(link, *sides)
    source.cluster_id, target.cluster_id = made.cluster_ids = ("a", "b")
    return made


def test_one_bad_topic_of_a_thousand_costs_few_questions() -> None:
    """Over a slow link a thousand questions take minutes, in which nothing new is seen."""
    names = [f"t{number:03}" for number in range(1000)]
    source, target = Admin(names, hidden="t500"), Admin()

    found = discovery(source, target).refresh()

    assert {item.source.topic for item in found} == set(names) - {"t500"}
    assert source.asked + target.asked < 150


def test_a_listing_tells_whether_topics_have_changed() -> None:
    """Between two refreshes; each change once, and no listing of a source of many topics, which would cost too much."""
    source = Admin(["t"])
    made = discovery(source, Admin())
    made.refresh()
    assert not made.differs()
    source.names = ["new", "t"]
    assert [made.differs(), made.differs()] == [True, False]
    source.names = ["new"]
    assert made.differs()
    source.names = [f"t{number}" for number in range(201)]
    made.refresh()
    source.names = ["t0"]
    assert not made.differs()


def test_a_topic_that_is_left_out_again_is_named_again() -> None:
    """Said once for as long as it lasts: the operator who mended it a month ago must hear of it when it is back."""
    source = Admin(["t"], hidden="t")
    made = discovery(source, Admin())

    def complaints() -> int:
        made._configs_compared = float("-inf")
        with capture_logs() as logged:
            made.refresh()
        return sum(line["event"] == "topic_left_out" for line in logged)

    assert [complaints(), complaints()] == [1, 0]
    source.hidden = ""
    assert complaints() == 0
    source.hidden = "t"
    assert [complaints(), complaints()] == [1, 0]


def test_topics_that_are_left_out_for_their_names_alone_are_told_of() -> None:
    """`sales.west.q1` is no link's copy, and an operator who misses it must find a word about it."""
    made = discovery(Admin(["orders", "sales.west.q1", "__internal.west.x"]), Admin())
    with capture_logs() as logged:
        made.plan()

    told = [line for line in logged if line["event"] == "topics_left_out_by_name"]
    assert {line["reason"].split(",")[0]: (line["count"], line["topics"]) for line in told} == {
        "its name shows that it has passed west already": (1, ["sales.west.q1"]),
        "it is an internal topic of Kafka": (1, ["__internal.west.x"]),
    }


def test_a_topic_that_only_exclude_keeps_out_is_named_once() -> None:
    """Who follows a list of another program finds what it leaves out; a topic that nothing asks for is no news."""
    link = replace(LINK, topics=("pay.*",), exclude=(".*_old",))
    made = discovery(Admin(["pay", "pay_old", "orders", "stock_old"]), Admin(), link)
    with capture_logs() as logged:
        made.plan()
        made.plan()

    (told,) = [line for line in logged if line["event"] == "topics_left_out_by_name"]
    assert (told["topics"], told["reason"]) == (["pay_old"], "`exclude` matches it")


def test_a_pattern_that_matches_internal_topics_alone_is_not_said_to_match_nothing() -> None:
    """They are named with their reason instead."""
    made = discovery(Admin(["orders", "__schemas"]), Admin(), replace(LINK, topics=("orders", "__.*")))
    with capture_logs() as run:
        made.prepare(strict=False)

    assert not [line for line in run if line["event"] == "pattern_matches_no_topic"]
    (told,) = [line for line in run if line["event"] == "topics_left_out_by_name"]
    assert (told["topics"], told["reason"]) == (["__schemas"], "it is an internal topic of Kafka")


def test_a_pattern_that_matches_nothing_is_told_by_the_run_and_not_by_the_plan() -> None:
    """`plan` has it in its own output."""
    made = discovery(Admin(["orders"]), Admin(), replace(LINK, topics=("orders", "pay.*")))
    with capture_logs() as planned:
        made.plan()
    with capture_logs() as run:
        made.prepare(strict=False)

    told = [[line["pattern"] for line in lines if "pattern" in line] for lines in (planned, run)]
    assert told == [[], ["pay.*"]]


@pytest.mark.parametrize(("leaderless", "expected"), [(None, [0, 1, 2]), (1, [0, 2])])
def test_a_partition_without_a_leader_waits_by_itself(leaderless: int | None, expected: list[int]) -> None:
    """Where it begins cannot be asked for, and nothing new would be taken up as long as it is among the others."""
    found = discovery(Admin(["t"], leaderless=leaderless), Admin()).refresh()
    assert [item.source.partition for item in found] == expected


def test_a_link_that_has_run_begins_without_a_topic_that_cannot_be_served() -> None:
    """A restart at night does not fail for a topic that was made in the evening; a run that is to end says so."""
    names = ["good", "newcomer", "other"]

    def begun(**how: bool) -> set[str]:
        made = discovery(Admin(names, hidden="newcomer"), Admin())
        return {item.source.topic for item in made.prepare(**how)}

    assert begun(strict=False) == {"good", "other"}
    with pytest.raises(AuthorizationError, match="newcomer"):
        begun()


def test_a_link_begins_again_without_partitions_that_have_no_leader() -> None:
    """A new one could not be given a first position, and would keep the whole link from starting."""

    def begun(*, strict: bool) -> list[int]:
        found = discovery(Admin(["t"], leaderless=1), Admin()).prepare(strict=strict)
        return [item.source.partition for item in found]

    assert begun(strict=False) == [0, 2]
    assert begun(strict=True) == [0, 1, 2]


def test_a_first_run_is_strict_and_so_is_one_with_nothing_left() -> None:
    """What a configuration got wrong from the start shows at once."""

    class Bare(Admin):
        """A target without a topic of the link's own."""

        def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
            return {name: None for name in names if name.startswith("eomirror.")} | super().describe_topics(  # type: ignore[return-value]
                [name for name in names if not name.startswith("eomirror.")]
            )

    with pytest.raises(AuthorizationError, match="newcomer"):
        discovery(Admin(["good", "newcomer"], hidden="newcomer"), Bare()).prepare(strict=False)
    with pytest.raises(AuthorizationError, match="newcomer"):
        discovery(Admin(["newcomer"], hidden="newcomer"), Admin()).prepare(strict=False)


def test_a_first_run_that_failed_is_none() -> None:
    """It has left the link's topics; what is left out now would begin at its beginning, whatever `start` says."""
    with pytest.raises(AuthorizationError, match="newcomer"):
        discovery(Admin(["good", "newcomer"], hidden="newcomer"), Admin(said=0)).prepare(strict=False)
    found = discovery(Admin(["t"], leaderless=1), Admin(said=0)).prepare(strict=False)
    assert [item.source.partition for item in found] == [0, 1, 2]


def test_the_topic_that_was_mirrored_first_stays_when_a_link_begins_again() -> None:
    """A newcomer whose copy would differ in a dot only waits for a person; its copy is not there."""

    class Target(Admin):
        """A target with a copy of a.b."""

        def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
            found = super().describe_topics(names)
            return {name: None if name == "east.a_b" else facts for name, facts in found.items()}  # type: ignore[misc]

    with pytest.raises(TopicError, match="differ only in"):
        discovery(Admin(["a.b", "a_b", "c"]), Target()).prepare()
    begun = discovery(Admin(["a.b", "a_b", "c"]), Target()).prepare(strict=False)
    assert {item.source.topic for item in begun} == {"a.b", "c"}


def test_a_copy_that_may_not_be_seen_keeps_nothing_else_waiting() -> None:
    """Of two topics that cannot live side by side one copy is there; a right is missing on the other's name."""

    class Target(Admin):
        """A target that does not show us east.a_b."""

        def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
            if "east.a_b" in names:
                raise AuthorizationError("lacks Describe on topic east.a_b")
            return super().describe_topics(names)

        def visible_topics(
            self, names: list[str]
        ) -> tuple[dict[str, TopicFacts], dict[str, AuthorizationError]]:
            seen = [name for name in names if name != "east.a_b"]
            return self.describe_topics(seen), {"east.a_b": AuthorizationError("lacks Describe")}

    found = discovery(Admin(["a.b", "a_b", "c"]), Target()).refresh()
    assert {item.source.topic for item in found} == {"a.b", "c"}


@pytest.mark.parametrize(
    ("source", "target", "configured", "replicas"),
    [
        (3, 1, None, 1),
        (3, 2, None, 2),
        (5, 3, None, None),
        (1, 1, None, None),
        (2, 3, None, None),
        (3, 1, 1, None),
    ],
)
def test_fewer_replicas_for_want_of_brokers_are_told_of(
    source: int, target: int, configured: int | None, replicas: int | None
) -> None:
    """Redpanda warns of a smaller target as well; a factor that the file sets is meant."""
    made = discovery(
        Admin(["orders"], brokers=source),
        Admin(brokers=target),
        replace(LINK, replication_factor=configured),
    )
    with capture_logs() as logged:
        made.plan()

    told = [line for line in logged if line["event"] == "target_has_fewer_brokers"]
    assert [(line["source"], line["target"], line["replicas"]) for line in told] == (
        [] if replicas is None else [(source, target, replicas)]
    )


def test_a_topic_that_is_listed_by_name_and_missing_keeps_no_other_from_starting() -> None:
    """Waited for like a pattern that matches nothing; quotation marks are no name that a broker could be asked for."""

    class Source(Admin):
        """A source that has only the topics that it names."""

        def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
            assert '"audit"' not in names
            found = super().describe_topics(names)
            return {name: facts if name in self.names else None for name, facts in found.items()}  # type: ignore[misc]

    link = replace(LINK, topics=("orders", "pay.in", "old\\.one", '"audit"', "gone"), exclude=("gone",))
    for strict in (True, False):
        source = Source(["orders"])
        made = discovery(source, Admin(), link)
        with capture_logs() as logged:
            begun = made.prepare(strict=strict)

        assert {item.source.topic for item in begun} == {"orders"}
        awaited = [line["topic"] for line in logged if line["event"] == "topic_awaited"]
        assert awaited == ["old.one", "pay.in"]
        assert [line["topic"] for line in logged if line["event"] == "topic_never_mirrored"] == ["gone"]
        assert [line["pattern"] for line in logged if "pattern" in line] == ['"audit"']

        source.names.append("pay.in")
        assert {item.source.topic for item in made.refresh()} == {"orders", "pay.in"}


def test_a_copy_that_is_deleted_under_a_running_link_is_not_created_again() -> None:
    """Its topic is left out by name at the second look; it runs again as soon as the copy is back."""
    gone: set[str] = set()

    class Target(Admin):
        """A target whose copies are deleted; nothing may be created on it."""

        def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
            found = super().describe_topics(names)
            return {name: None if name in gone else facts for name, facts in found.items()}  # type: ignore[misc]

    made = discovery(Admin(["kept", "lost"]), Target())

    def looked() -> tuple[set[str], set[str]]:
        made._configs_compared = float("-inf")
        return {item.source.topic for item in made.refresh()}, set(made.left_out())

    assert looked() == ({"kept", "lost"}, set())
    gone.add("east.lost")
    assert looked() == ({"kept"}, set())
    assert looked() == ({"kept"}, {"lost"})
    assert "--resume-at lost-0=0 --resume-at lost-1=0 --resume-at lost-2=0" in made.left_out()["lost"].fix
    gone.clear()
    assert looked() == ({"kept", "lost"}, set())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("others", [("kept",), ()])
def test_a_copy_that_was_deleted_at_rest_is_not_created_again(strict: bool, others: tuple[str, ...]) -> None:
    """A position shows that it was there; without one, or for a new topic of the same name, it is created."""

    class Target(Admin):
        """A target that lacks copies until they are created."""

        def __init__(self) -> None:
            super().__init__()
            self.missing = {"east.lost", "east.new", "east.again"}

        def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
            found = super().describe_topics(names)
            return {name: None if name in self.missing else facts for name, facts in found.items()}  # type: ignore[misc]

        def create_topics(self, topics: list[Any], *, validate_only: bool = False, **_: Any) -> None:
            if not validate_only:
                self.missing -= {topic.name for topic in topics}

    ids = {"lost": "id-of-lost", "again": "an older id", "kept": "id-of-kept"}
    positions: Any = {
        (topic, 0): SimpleNamespace(topic=topic, topic_id=topic_id, target_topic=f"east.{topic}")
        for topic, topic_id in ids.items()
    }
    new = ("new", "again") if others else ()
    target = Target()
    made = discovery(Admin(["lost", *new, *others]), target)
    made._copies._read_positions = lambda: positions

    begun = made.prepare(strict=strict)

    assert {item.source.topic for item in begun} == {*new, *others}
    assert "--resume-at lost-0=0 --resume-at lost-1=0 --resume-at lost-2=0" in made.left_out()["lost"].fix
    for _ in range(2):
        made._configs_compared = float("-inf")
        assert {item.source.topic for item in made.refresh()} == {*new, *others}
        assert set(made.left_out()) == {"lost"}
    assert target.missing & {"east.lost", *(f"east.{topic}" for topic in new)} == {"east.lost"}

    adopted = discovery(Admin(["lost"]), target)
    adopted._copies._read_positions = dict
    assert {item.source.topic for item in adopted.prepare(strict=strict)} == {"lost"}


def test_a_refused_setting_is_named_and_takes_no_other_with_it() -> None:
    """An alter policy refuses one of two; the topic flows, and the event names the setting."""

    class Target(Admin):
        """A target with a policy on retention."""

        done: ClassVar[list[str]] = []

        def alter_configs(self, name: str, values: dict[str, str]) -> None:
            if "retention.ms" in values:
                super().alter_configs(name, values)
            self.done += values

    target: Any = Target()
    change = AlterConfig("t", {"retention.ms": "1", "cleanup.policy": "compact"}, {})
    with capture_logs() as logged:
        TargetTopics(target, link="one").apply([change])

    assert Target.done == ["cleanup.policy"]
    (told,) = [line for line in logged if line["event"] == "topic_setting_refused"]
    assert (told["topic"], told["setting"]) == ("t", "retention.ms")
    assert "exclude_configs" in told["fix"]


class Policed(Admin):
    """A target without the copies, whose brokers refuse some settings and hold topics back."""

    def __init__(self, refuses: dict[str, str] | None = None, *, most: int = 1_000) -> None:
        super().__init__()
        self.refuses = refuses or {}
        self.most = most
        self.made: dict[str, Any] = {}
        self.validated = 0
        self.seconds = 5.0

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        found = super().describe_topics(names)
        return {
            name: facts if name.startswith("eomirror.") or name in self.made else None  # type: ignore[misc]
            for name, facts in found.items()
        }

    def create_topics(
        self, topics: list[Any], *, validate_only: bool = False, refused: Any = None, **_: Any
    ) -> None:
        self.validated += len(topics) if validate_only else 0
        left = self.most
        for topic in topics:
            bad = [
                words for name, words in self.refuses.items() if name in topic.configs or name in topic.name
            ]
            if bad:
                refused.append(
                    TopicError(
                        f"could not create topic {topic.name} on cluster b: {bad[0]}", topic=topic.name
                    )
                )
            elif left <= 0:
                refused.append(
                    QuotaError(
                        "the quota on topic changes of cluster b holds us back",
                        seconds=self.seconds,
                        topic=topic.name,
                    )
                )
            elif not validate_only:
                self.made[topic.name] = topic
                left -= 1


@pytest.mark.parametrize(
    ("settings", "refuses", "made"),
    [
        ({"retention.ms": "1", "segment.ms": "2"}, {"retention.ms": "retention.ms: too much"}, {"segment.ms": "2"}),
        ({"retention.ms": "1", "segment.ms": "2"}, {"retention.ms": "Value of 'retention.ms'."}, {"segment.ms": "2"}),
        ({"retention.ms": "1", "segment.ms": "2"},
         {"retention.ms": "retention.ms", "segment.ms": "segment.ms"}, {}),
        ({"retention.ms": "1", "segment.ms": "2"}, {"retention.ms": "a policy of this cluster"}, None),
        ({"retention.ms": "1"}, {"retention.ms": "delete.retention.ms or retention.ms.x"}, None),
        ({"retention.ms": "1"}, {"east.retention.ms": "no name like east.retention.ms here"}, None),
    ],
)  # fmt: skip
def test_a_topic_is_created_without_a_setting_that_its_refusal_names(
    settings: dict[str, str], refuses: dict[str, str], made: dict[str, str] | None
) -> None:
    """Told by name; where the brokers name none, the topic is left out as a whole, and the others are created."""
    target: Any = Policed(refuses)
    name = "east.retention.ms" if "east.retention.ms" in refuses else "east.t"
    changes = [CreateTopic(name, 1, 1, settings), CreateTopic("east.other", 1, 1, {})]
    topics = TargetTopics(target, link="one")
    refused: list[MirrorError] = []
    with capture_logs() as logged:
        topics.apply(changes, refused=refused)

    assert "east.other" in target.made
    assert [error.topic for error in refused] == ([name] if made is None else [])
    assert (dict(target.made[name].configs) if name in target.made else None) == made
    told = {(line["setting"], line["wanted"]) for line in logged if line["event"] == "topic_setting_refused"}
    assert told == (set() if made is None else settings.items() - made.items())
    with pytest.raises(TopicError):
        TargetTopics(target, link="one").apply(changes)


def test_topics_that_a_quota_holds_back_follow_while_the_others_flow() -> None:
    """One line for all of them, with numbers; they are left out until their turn, and nothing is validated again."""
    names = [f"t{number}" for number in range(6)]
    target = Policed(most=2)
    target.seconds = 0.0
    made = discovery(Admin(names), target)
    with capture_logs() as logged:
        begun = made.prepare(strict=False, patient=False)
        seen = [{item.source.topic for item in begun}]
        reasons = [{error.message for error in made.left_out().values()}]
        for _ in range(2):
            seen.append({item.source.topic for item in made.refresh()})
            reasons.append({error.message for error in made.left_out().values()})
    assert [len(each) for each in seen] == [2, 4, 6]
    held = "the quota on topic changes of cluster b holds us back: {} of 6 topics created"
    assert reasons == [{held.format(2)}, {held.format(4)}, set()]
    assert [line["reason"] for line in logged if line["event"] == "topics_held_back"] == [
        held.format(2),
        held.format(4),
    ]
    assert not [line for line in logged if line["event"] == "topic_left_out"]
    assert target.validated == 0

    slow = discovery(Admin(names), Policed(most=2))
    slow.prepare(strict=False, patient=False)
    slow._configs_compared = slow._clock.monotonic()
    assert len({item.source.topic for item in slow.refresh()}) == 2
    slow._held_until = 0.0
    assert len({item.source.topic for item in slow.refresh()}) == 4


@pytest.mark.parametrize(("strict", "start", "said"), [(True, "earliest", 9), (False, "latest", 0)])
def test_a_link_that_must_begin_with_all_topics_waits_for_the_quota(
    strict: bool, start: str, said: int
) -> None:
    """A run that ends when it has caught up, and a first run that does not begin at the beginning."""
    names = [f"t{number}" for number in range(6)]
    source, target = Admin(names), Policed(most=2)
    target.said = said
    made = discovery(source, target, replace(LINK, start=start))
    for count in (2, 4):
        with pytest.raises(QuotaError, match=f": {count} of 6 topics created") as raised:
            made.prepare(strict=strict, patient=False)
        assert raised.value.seconds == 5
    assert len({item.source.topic for item in made.prepare(strict=strict, patient=False)}) == 6

    clock = PlayedClock()
    sides: Any = [SimpleNamespace(cluster=NOWHERE, admin=admin) for admin in (source, Policed(most=2))]
    sides[1].admin.said = said
    patient = Discovery(replace(LINK, start=start), *sides, clock=clock)
    source.cluster_id, sides[1].admin.cluster_id = "a", "b"
    assert len({item.source.topic for item in patient.prepare(strict=strict)}) == 6
    assert clock.now == 10


class Configured(Admin):
    """A cluster whose topics have a retention; it counts the topics whose description was asked for."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names)
        self.retention = dict.fromkeys(self.names, "1")
        self.described = self.compared = 0
        self.altered: dict[str, Any] = {}

    def topic_shapes(self) -> dict[str, TopicShape]:
        return {name: facts.shape for name, facts in super().describe_topics(self.names).items()}

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        self.described += len(names)
        return super().describe_topics(names)

    def topic_configs(self, names: Iterable[str], *, only: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
        asked = list(names)
        self.compared += len(asked)
        assert "retention.ms" in only, "other settings of a copy that exists are not compared"
        return {name: {"retention.ms": ConfigValue(self.retention[name], is_default=False)} for name in asked}

    def alter_configs(self, name: str, values: dict[str, str]) -> None:
        self.altered[name] = values
        self.retention[name] = values["retention.ms"]


def test_a_changed_setting_is_found_by_the_next_look() -> None:
    """Of a thousand topics only that one is compared with its copy, and none is described again."""
    names = [f"t{number:03}" for number in range(1000)]
    source, target = Configured(names), Configured(f"east.{name}" for name in names)
    clock = PlayedClock()
    sides: Any = [SimpleNamespace(cluster=NOWHERE, admin=admin) for admin in (source, target)]
    made = Discovery(LINK, *sides, clock=clock)
    made.cluster_ids = ("a", "b")
    assert len(made.refresh()) == 3000
    assert not target.altered
    source.retention["t007"] = "2"
    source.described = target.described = target.compared = 0
    clock.sleep(5)

    assert len(made.refresh()) == 3000

    assert target.altered == {"east.t007": {"retention.ms": "2"}}
    assert (source.described, target.described, target.compared) == (0, 1, 1)
    # of so many topics, everything is compared every 300 s
    clock.sleep(200)
    made.refresh()
    assert (source.described, target.compared) == (0, 1)
    clock.sleep(100)
    made.refresh()
    assert (source.described, target.compared) == (1000, 1001)


def test_names_that_stay_are_not_matched_again() -> None:
    """The first look makes the copies ready, so the second one is different; the others are not."""
    source, target = Configured(["a", "b"]), Configured(["east.a", "east.b"])
    sides: Any = [SimpleNamespace(cluster=NOWHERE, admin=admin) for admin in (source, target)]
    made = Discovery(LINK, *sides, clock=PlayedClock())
    made.cluster_ids = ("a", "b")
    matched: list[list[str]] = []
    match = made._found.matched

    def noted(names: list[str]) -> list[str]:
        matched.append(names)
        return match(names)

    made._found.matched = noted  # type: ignore[method-assign, assignment]
    for _ in range(4):
        made.refresh()
    assert len(matched) == 2
    assert {item.source.topic for item in made.refresh()} == {"a", "b"}
