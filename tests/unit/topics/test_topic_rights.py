"""A start that is refused for one right names all that are missing."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.config.rights import ClusterUser, NeededRight, Right, lacking
from eomirror.errors import AuthorizationError, MirrorError, UnreachableError
from eomirror.topics import rights as rights_module
from eomirror.topics.rights import with_all_missing

EAST, WEST = ClusterUser("east", "e:1", "m"), ClusterUser("west", "w:1", "m")
READ, WRITE = Right("Read", "topic", "orders"), Right("Write", "topic", "east.", prefixed=True)
NEEDED = (NeededRight(EAST, READ, "read"), NeededRight(WEST, WRITE, "write"))


def completed(monkeypatch: pytest.MonkeyPatch, first: AuthorizationError, found: Any) -> MirrorError:
    """The error of the start, if `plan` would find this."""

    def find(*_: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(rights_module, "missing_rights", find)
    link: Any = type("Link", (), {"name": "l"})
    anything: Any = None
    return with_all_missing(anything, first, link, anything)


@pytest.mark.parametrize(
    ("account", "first", "others"),
    [
        # what one of the missing rights implies needs no line of its own
        (EAST, Right("Describe", "topic", "orders"), []),
        (WEST, Right("Write", "topic", "east.orders"), []),
        # one that `plan` does not look for keeps its own
        (WEST, Right("Alter", "cluster"), [Right("Alter", "cluster")]),
        (WEST, Right("Describe", "topic", "orders"), [Right("Describe", "topic", "orders")]),
    ],
)
def test_the_error_of_a_start_names_all_missing_rights(
    monkeypatch: pytest.MonkeyPatch, account: ClusterUser, first: Right, others: list[Right]
) -> None:
    """The first one stays in front, with what it was for."""
    told = completed(monkeypatch, lacking("could not begin; ", account, [first]), NEEDED)

    assert told.message.startswith(f"could not begin; User:m lacks {first} of cluster")
    assert "User:m lacks Read on topic orders of cluster east (e:1)" in told.message
    assert "User:m lacks Write on topic east.* of cluster west (w:1)" in told.message
    lines = [READ.acl(EAST), WRITE.acl(WEST), *(right.acl(account) for right in others)]
    assert told.fix.splitlines() == lines
    assert [right["command"] for right in told.missing_rights] == lines


@pytest.mark.parametrize("found", [(), NEEDED[:1], UnreachableError("east does not answer")])
def test_an_error_that_says_all_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    """Also where the clusters cannot be asked for the others."""
    first = lacking("", EAST, [READ])
    assert completed(monkeypatch, first, found) is first


def test_refused_credentials_ask_for_no_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """No right would help."""
    first = AuthorizationError("the credentials are refused", fix="check sasl.password")
    assert completed(monkeypatch, first, AssertionError("asked")) is first
