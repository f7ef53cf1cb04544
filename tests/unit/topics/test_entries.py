"""Which ACL entries, quotas and copies the target shall have, and what is left to others."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror import load_config
from eomirror.errors import AuthorizationError
from eomirror.kafka.cluster_metadata import AclEntry, QuotaEntry
from eomirror.records.kept_entries import OwnEntry
from eomirror.topics.entries import (
    CopyEntry,
    EntryChange,
    EntryDiff,
    EntryPlan,
    comparison_of,
    entry_changes,
    entry_id,
    first_entries,
    wanted_acls,
    wanted_quotas,
)

NOW = 1_000_000
HOUR = 3_600_000


def link_of(**settings: Any) -> Any:
    """A link from east to west."""
    ends = {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:1"}}
    given = {"source": "east", "target": "west", "topics": ["orders", "pay.*"], **settings}
    return load_config({"clusters": ends, "links": [given]}).links[0]


def acl(name: str, operation: str = "Read", **more: str) -> AclEntry:
    """An entry of an application on a topic."""
    given = {
        "resource": "topic", "pattern": "literal", "principal": "User:app", "host": "*", "permission": "allow", **more,
    }  # fmt: skip
    return AclEntry(name=name, operation=operation, **given)


def carried(
    link: Any, *entries: AclEntry, theirs: Any = (), users: Any = (), known: bool = True
) -> tuple[list[AclEntry], list[str]]:
    """What the target shall have, and the reasons for what it shall not."""
    wanted, left = wanted_acls(link, entries, theirs=theirs, users=users, known=known)
    return list(wanted), [change.reason for change in left]


def test_the_profile_of_mirrormaker_2() -> None:
    """Literal entries of mirrored topics: no write, all as read, denials as they are; none for the mirror itself."""
    given = [
        acl("orders"), acl("orders", "Write"), acl("pay.a", "All"), acl("orders", "All", permission="deny"),
        acl("orders", "Describe", host="10.0.0.1"), acl("other"), acl("pay", pattern="prefixed"), acl("*"),
        acl("orders", resource="group"), acl("orders", principal="User:mirror"),
    ]  # fmt: skip
    assert carried(link_of(acls=True), *given, users=["User:mirror"]) == (
        [
            acl("east.orders"), acl("east.pay.a"), acl("east.orders", "All", permission="deny"),
            acl("east.orders", "Describe", host="10.0.0.1"),
        ],
        [],
    )  # fmt: skip


def test_rules_carry_what_they_name_as_it_is() -> None:
    """Literal and prefixed, topics and groups; a beginning becomes one of the copies' names."""
    link = link_of(
        acls=[
            {
                "type": "topic",
                "name": "(orders|pay.*|[*])",
                "operation": ["read", "WRITE"],
                "permission": "allow",
            },
            {
                "type": "group",
                "name": "app-.*",
                "pattern": "literal",
                "operation": "any",
                "principal": "User:app",
            },
        ]
    )
    given = [
        acl("orders", "Write"), acl("orders", "Describe"), acl("orders", permission="deny"),
        acl("pay", pattern="prefixed"), acl("*"), acl("app-1", resource="group"),
        acl("app-", resource="group", pattern="prefixed"), acl("app-1", resource="group", principal="User:x"),
    ]  # fmt: skip
    assert carried(link, *given) == (
        [
            acl("east.orders", "Write"), acl("east.pay", pattern="prefixed"), acl("east.", pattern="prefixed"),
            acl("app-1", resource="group"),
        ],
        [],
    )  # fmt: skip


def test_what_cannot_be_carried_is_named() -> None:
    """A beginning without a common one on the target, all topics of it, and a denial that would shut out the mirror."""
    rule = [{"type": "topic", "name": ".*", "operation": "any"}]
    equal = link_of(acls=rule, naming="identity")
    found, reasons = carried(
        equal, acl("*"), acl("orders", "Write", permission="deny", principal="User:*"),
        acl("orders", permission="deny", principal="User:mirror"), acl("eomirror.", pattern="prefixed"),
        acl("unmirrored"), users=["User:mirror"],
    )  # fmt: skip
    assert found == []
    assert [reason.split(":")[1].split(";")[0].strip() for reason in reasons] == [
        "with equal names it would be about all topics of the target",
        "it would deny the mirror itself",
        "it would deny the mirror itself",
    ]
    mapped = link_of(acls=rule, topics=["orders"], naming={"map": {"orders": "bills"}})
    found, reasons = carried(mapped, acl("orders"), acl("ord", pattern="prefixed"))
    assert found == [acl("bills")]
    assert "no common beginning" in reasons[0]


def test_what_the_reverse_link_has_added_is_not_carried_back() -> None:
    """Deleted at its origin, it would return for ever."""
    link = link_of(acls=[{"type": "group", "name": ".*", "operation": "any"}])
    entry = acl("app", resource="group")
    assert carried(link, entry)[0] == [entry]
    assert carried(link, entry, theirs={entry_id(entry)})[0] == []
    quota = QuotaEntry((("user", "app"),), "producer_byte_rate")
    assert wanted_quotas({quota: 1.0}, theirs={entry_id(quota)}, users=()) == {}


def test_a_beginning_that_the_links_own_topics_have_is_not_carried() -> None:
    """Who may write all that begins with `eo` on the source may not write control on the target."""
    rules = [{"type": "topic", "name": ".*", "operation": "any"}]
    given = [acl(name, "Write", pattern="prefixed") for name in ("eo", "eo-", "pay")]
    found, reasons = carried(link_of(acls=rules, naming="identity"), *given)
    assert found == given[1:]
    assert ["the link's own topics" in each for each in reasons] == [True]


def test_a_chain_carries_what_another_link_has_added() -> None:
    """The copy of a copy has a name of its own; prefixed entries and equal names would come round."""
    rules = [{"type": "topic", "name": ".*", "operation": "any"}]
    here, prefixed = acl("pay.a"), acl("pay", pattern="prefixed")
    theirs = {entry_id(here), entry_id(prefixed)}
    assert carried(link_of(acls=rules), here, prefixed, theirs=theirs) == ([acl("east.pay.a")], [])
    assert carried(link_of(acls=rules, naming="identity"), here, prefixed, theirs=theirs) == ([], [])


def test_a_denial_that_may_be_of_the_mirror_is_named() -> None:
    """The configuration does not tell the principal of a certificate or a token; what it may do without is carried."""
    denials = [acl("orders", each, permission="deny") for each in ("Read", "Write", "All", "Describe")]
    found, reasons = carried(link_of(acls=True), *denials, acl("orders", "Describe"), known=False)
    assert found == [acl("east.orders", permission="deny"), acl("east.orders", "Describe")]
    assert ["does not tell the mirror's principal" in each for each in reasons] == [True] * 3


def test_the_first_entry_about_a_topic_is_known() -> None:
    """An open topic is closed by it, also one that a beginning is about."""
    wanted = [
        acl("a"), acl("a.b"), acl("a", pattern="prefixed"), acl("c", resource="group"), acl("d", "Write"),
    ]  # fmt: skip
    assert first_entries(wanted, []) == [one for one in wanted if one.resource == "topic"]
    assert first_entries(wanted, [acl("a", "Write"), acl("d", "Write", resource="group")]) == [
        acl("a.b"), acl("a", pattern="prefixed"), acl("d", "Write"),
    ]  # fmt: skip
    assert first_entries(wanted, [acl("a", "Write", pattern="prefixed"), acl("d", "Write")]) == []
    assert first_entries(wanted, [acl("*", principal="User:x")]) == []


def test_quotas_of_addresses_and_of_the_mirror_stay() -> None:
    """An address is another one on another network, and the mirror's own limit is its operator's."""
    app, default = QuotaEntry((("user", "app"),), "r"), QuotaEntry((("client-id", None), ("user", None)), "r")
    given = {
        app: 1.0, default: 2.0, QuotaEntry((("ip", "10.0.0.1"),), "c"): 3.0,
        QuotaEntry((("user", "mirror"),), "r"): 4.0,
    }  # fmt: skip
    assert wanted_quotas(given, theirs=(), users=["User:mirror"]) == {app: 1.0, default: 2.0}


ENTRY = acl("east.orders")
QUOTA = QuotaEntry((("user", "app"),), "producer_byte_rate")


def differences(
    of: str, wanted: Any, found: Any, *own: OwnEntry, deletions: str = "delete", delay_ms: int = HOUR
) -> EntryDiff:
    """The differences of one kind, now."""
    known = {(one.of, one.entry): one for one in own}
    return entry_changes(of, wanted, found, known, deletions=deletions, delay_ms=delay_ms, now_ms=NOW)


def own(entry: Any, *values: str, gone_since: int = 0) -> OwnEntry:
    """The record of an entry."""
    of, key = entry_id(entry)
    return OwnEntry(of=of, entry=key, values=values, gone_since=gone_since, timestamp=1)


def test_a_missing_entry_is_added_and_recorded_first() -> None:
    """One that was there before is left without a record: it is not ours."""
    found = differences("acl", {ENTRY: None}, {})
    assert found.changes == (EntryChange("+", ENTRY),)
    assert found.notes == {entry_id(ENTRY): OwnEntry(of="acl", entry=entry_id(ENTRY)[1], timestamp=NOW)}
    assert differences("acl", {ENTRY: None}, {ENTRY: None}) == EntryDiff()


@pytest.mark.parametrize("deletions", ["ignore", "report", "delete"])
def test_an_entry_of_another_hand_is_never_deleted(deletions: str) -> None:
    """Only a record makes it ours."""
    assert differences("acl", {}, {ENTRY: None}, deletions=deletions) == EntryDiff()


def test_our_entry_leaves_as_the_policy_says() -> None:
    """Ignored, reported, or deleted once it has been gone for the delay; what returns in time stays."""
    there = {ENTRY: None}
    assert differences("acl", {}, there, own(ENTRY), deletions="ignore") == EntryDiff()
    reported = differences("acl", {}, there, own(ENTRY), deletions="report")
    assert (reported.due, [change.sign for change in reported.changes]) == ((), ["-"])

    begun = differences("acl", {}, there, own(ENTRY))
    assert begun.due == ()
    assert begun.notes[entry_id(ENTRY)] == OwnEntry(
        of="acl", entry=entry_id(ENTRY)[1], gone_since=NOW, timestamp=NOW
    )
    assert differences("acl", {}, there, own(ENTRY, gone_since=NOW - HOUR + 1)).due == ()
    assert differences("acl", {}, there, own(ENTRY, gone_since=NOW - HOUR)).due == (EntryChange("-", ENTRY),)
    returned = differences("acl", {ENTRY: None}, there, own(ENTRY, gone_since=5))
    assert returned.changes == ()
    assert getattr(returned.notes[entry_id(ENTRY)], "gone_since", None) == 0
    assert differences("acl", {}, {}, own(ENTRY)).notes == {entry_id(ENTRY): None}


def test_deletions_are_held_and_the_rest_goes_on() -> None:
    """No time of absence begins; what is added is added."""
    gone = acl("east.pay")
    found = differences("acl", {ENTRY: None}, {gone: None}, own(gone), delay_ms=0)
    assert [change.sign for change in found.due] == ["+", "-"]
    held = found.held("it was lost")
    assert held.due == (EntryChange("+", ENTRY),)
    assert held.notes.keys() == {entry_id(ENTRY)}
    assert "it was lost" in held.changes[1].reason


def test_a_copy_is_deleted_at_the_second_look() -> None:
    """A broker that has just come back may list old topics, also without a delay."""
    copy = CopyEntry("east.orders", "orders", "id")
    first = differences("topic", {}, {copy: None}, own(copy), delay_ms=0)
    assert (first.due, [change.sign for change in first.changes]) == ((), ["-"])
    assert getattr(first.notes[entry_id(copy)], "gone_since", 0) == NOW
    assert differences("topic", {}, {copy: None}, own(copy, gone_since=NOW), delay_ms=0).due == (
        EntryChange("-", copy),
    )


def test_a_quota_of_another_hand_stays() -> None:
    """Ours follows the source as long as it has the value that we set, or were about to replace."""
    left = differences("quota", {QUOTA: 2.0}, {QUOTA: 1.0})
    assert [(change.sign, change.due) for change in left.changes] == [("=", False)]
    assert left.notes == {}
    for record in (own(QUOTA, "1.0"), own(QUOTA, "3.0", "1.0")):
        followed = differences("quota", {QUOTA: 2.0}, {QUOTA: 1.0}, record)
        assert followed.due == (EntryChange("~", QUOTA, 2.0, 1.0),)
        assert getattr(followed.notes[entry_id(QUOTA)], "values", ()) == ("2.0", "1.0")
    taken = differences("quota", {}, {QUOTA: 7.0}, own(QUOTA, "1.0", gone_since=1))
    assert (taken.changes, taken.notes) == ((), {entry_id(QUOTA): None})


def test_kinds_do_not_see_each_other() -> None:
    """The record of a quota is no business of the ACL entries."""
    assert differences("acl", {}, {}, own(QUOTA, "1.0")) == EntryDiff()


def test_texts_are_for_people() -> None:
    """Sign, entry, values and reason."""
    assert str(ENTRY) == "allow User:app Read on topic east.orders"
    assert str(acl("p", pattern="prefixed", host="h")) == "allow User:app from h Read on topic p*"
    assert EntryChange("~", QUOTA, 2.0, 1.5).text == "producer_byte_rate of user app: 1.5 -> 2"
    assert EntryChange("-", CopyEntry("east.orders", "orders", "id")).text == "topic east.orders"
    assert str(QuotaEntry((("client-id", None),), "r")) == "r of client-id <default>"


def test_a_comparison_is_recorded_when_it_says_something_new() -> None:
    """What stands, what failed with its command, and when something was changed last."""
    error = AuthorizationError("User:m lacks Alter on cluster", fix="kafka-acls.sh --add")
    error.missing_rights = ({"command": "kafka-acls.sh --add"},)
    change = EntryChange("-", ENTRY, due=False)
    plan = EntryPlan(EntryDiff((change, EntryChange("=", QUOTA, due=False))), {"acls": error})
    first = comparison_of(plan, [("+", "a"), ("+", "b")], before=None, command="run", now_ms=5)
    assert (first.standing, first.changed, first.changed_at) == (1, {"+": 2}, 5)
    assert first.problems == {"acls": "User:m lacks Alter on cluster: kafka-acls.sh --add"}
    assert comparison_of(plan, [], before=first, command="run", now_ms=6) is first
    better = comparison_of(EntryPlan(), [], before=first, command="run", now_ms=7)
    assert (better.standing, better.problems, better.changed_at, better.timestamp) == (0, {}, 5, 7)
