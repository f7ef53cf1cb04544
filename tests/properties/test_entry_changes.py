"""Laws of the differences between the target and what the source calls for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from laws import law

from eomirror.kafka.cluster_metadata import QuotaEntry
from eomirror.records.kept_entries import OwnEntry
from eomirror.topics.entries import EntryDiff, entry_changes, entry_id

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = [QuotaEntry((("user", name),), "rate") for name in "abcd"]
VALUES = [1.0, 2.0, 3.0]
POLICIES = ["ignore", "report", "delete"]

sides = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES))
records = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(
        st.sets(st.sampled_from([repr(value) for value in VALUES]), max_size=2), st.sampled_from([0, 5, 90])
    ),
)


def known(given_: Mapping[QuotaEntry, Any]) -> dict[tuple[str, str], OwnEntry]:
    """Records by the key of their entry."""
    return {
        entry_id(entry): OwnEntry(
            of="quota", entry=entry_id(entry)[1], values=tuple(sorted(values)), gone_since=since, timestamp=1
        )
        for entry, (values, since) in given_.items()
    }


def applied(
    diff: EntryDiff, found: Mapping[Any, Any], own: Mapping[tuple[str, str], OwnEntry]
) -> tuple[dict[Any, Any], dict[tuple[str, str], OwnEntry]]:
    """The target and the records after what is due was carried out."""
    after, noted = dict(found), dict(own)
    for key, note in diff.notes.items():
        if note is None:
            noted.pop(key, None)
        else:
            noted[key] = note
    for change in diff.due:
        if change.sign == "-":
            del after[change.entry]
            noted.pop(entry_id(change.entry), None)
        else:
            after[change.entry] = change.value
    return after, noted


@law(500)
@given(sides, sides, records, st.sampled_from(POLICIES), st.integers(0, 100))
def test_what_was_carried_out_leaves_no_difference(
    wanted: dict[Any, Any], found: dict[Any, Any], given_: dict[Any, Any], policy: str, delay_ms: int
) -> None:
    """Nothing is due after it, and no record changes."""
    own = known(given_)
    how: dict[str, Any] = {"deletions": policy, "delay_ms": delay_ms, "now_ms": 100}

    after, noted = applied(entry_changes("quota", wanted, found, own, **how), found, own)

    again = entry_changes("quota", wanted, after, noted, **how)
    assert (again.due, again.notes) == ((), {})
    for entry, value in wanted.items():
        assert entry in after
        assert after[entry] == value or entry in found


@law(500)
@given(sides, sides, records, st.sampled_from(POLICIES), st.integers(0, 100))
def test_what_is_not_ours_stays(
    wanted: dict[Any, Any], found: dict[Any, Any], given_: dict[Any, Any], policy: str, delay_ms: int
) -> None:
    """An entry of the target without a record that has its value is neither changed nor deleted."""
    own = known(given_)
    diff = entry_changes("quota", wanted, found, own, deletions=policy, delay_ms=delay_ms, now_ms=100)

    after, _ = applied(diff, found, own)

    for entry, value in found.items():
        record = own.get(entry_id(entry))
        if record is None or repr(value) not in record.values:
            assert after[entry] == value
    if policy != "delete":
        assert found.keys() <= after.keys()
