"""What is deleted by its id, and what the brokers' answers mean; the extension is played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from eomirror.config.rights import ClusterUser
from eomirror.errors import AuthorizationError, ClusterError
from eomirror.topics import native_admin
from eomirror.topics.native_admin import delete_topics

if TYPE_CHECKING:
    import pytest

# librdkafka writes plain base64, and the extension the URL-safe one
IDS = {"a": "id+a", "b": "id/b"}


class Target:
    """
    The session of a cluster, its admin client, and the extension's answer.

    Attributes:
        refused: Error of each id.
        by_id: Ids that were asked for.
        by_name: Topics that were deleted by name.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: dict[str, str]) -> None:
        self.admin, self.name = self, "west (w:1)"
        self.account = ClusterUser("west", "w:1", "mirror")
        self.cluster, self.client_id = SimpleNamespace(), "test"
        self.by_id: list[str] = []
        self.by_name: list[str] = []
        self.forgotten: list[str] = []
        monkeypatch.setattr(native_admin, "native_properties", lambda _: ({}, None))

        def asked(_properties: Any, _tokens: Any, ids: list[str], _seconds: float) -> list[tuple[str, str]]:
            self.by_id += ids
            return [*refused.items()]

        monkeypatch.setattr(native_admin, "delete_topics_by_id", asked)

    def delete_topics(self, names: list[str]) -> None:
        """Plays the admin client."""
        self.by_name += names

    def deleted(self, names: list[str]) -> None:
        """Plays the admin client."""
        self.forgotten += names


def test_topics_are_deleted_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(monkeypatch, {})
    assert delete_topics(target, IDS) == {}
    assert (target.by_id, target.by_name, target.forgotten) == (["id-a", "id_b"], [], ["a", "b"])


def test_each_refusal_is_the_error_of_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing right names the command that grants it."""
    refused = {"id-a": "TOPIC_AUTHORIZATION_FAILED", "id_b": "TOPIC_DELETION_DISABLED"}
    errors = delete_topics(Target(monkeypatch, refused), IDS)
    assert errors.keys() == IDS.keys()
    assert isinstance(errors["a"], AuthorizationError)
    assert "--operation Delete --topic 'a'" in errors["a"].fix
    assert isinstance(errors["b"], ClusterError)
    assert "topic b is not deleted: TOPIC_DELETION_DISABLED" in errors["b"].message


def test_brokers_that_do_not_pass_it_to_the_controller_are_asked_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with a ZooKeeper."""
    target = Target(monkeypatch, {"id_b": "NOT_CONTROLLER"})
    assert delete_topics(target, IDS) == {}
    assert target.by_name == ["b"]


def test_a_login_that_the_extension_lacks_deletes_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(monkeypatch, {})

    def unsupported(_: Any) -> Any:
        raise ClusterError("sasl.mechanism: GSSAPI")

    monkeypatch.setattr(native_admin, "native_properties", unsupported)
    assert delete_topics(target, IDS) == {}
    assert (target.by_id, target.by_name) == ([], ["a", "b"])


def test_a_topic_of_brokers_without_ids_is_deleted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them have the same one."""
    target = Target(monkeypatch, {})
    ids = {**IDS, "c": "A" * 22, "d": ""}
    assert delete_topics(target, ids) == {}
    assert (target.by_id, target.by_name) == (["id-a", "id_b"], ["c", "d"])
