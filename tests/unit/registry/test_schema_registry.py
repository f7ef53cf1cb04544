"""The published rules of Confluent's registry, which the registry of the tests keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.clusters.schema_registry import Refusal, SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[7, 8])
def registry(request: pytest.FixtureRequest) -> Iterator[SchemaRegistry]:
    """A registry of either release."""
    made = SchemaRegistry(release=request.param)
    yield made
    made.close()


def put(registry: SchemaRegistry, subject: str, schema_id: int, version: int, schema: str) -> Any:
    """Registers with id and version."""
    body = {"schema": schema, "id": schema_id, "version": version}
    return registry.call("POST", f"/subjects/{subject}/versions", body)


def code(registry: SchemaRegistry, method: str, path: str, body: Any = None) -> int:
    """Returns the error code of a request."""
    with pytest.raises(Refusal) as refused:
        registry.call(method, path, body)
    return refused.value.code


def has_own(registry: SchemaRegistry, kind: str, subject: str) -> bool:
    """Returns True if a subject has a mode or a level of its own."""
    if registry.call("GET", f"/{kind}/{subject}?defaultToGlobal=true") in (
        {"mode": "READWRITE"},
        {"compatibilityLevel": "BACKWARD"},
    ):
        assert code(registry, "GET", f"/{kind}/{subject}") in (40408, 40409)
        return False
    return True


IMPORT = {"mode": "IMPORT"}


def test_ids_belong_to_contents_and_versions_to_subjects(registry: SchemaRegistry) -> None:
    """The same schema under another subject has the same id; registering it again changes nothing."""
    assert [registry.add("a", '"int"'), registry.add("b", '"int"'), registry.add("a", '"long"')] == [1, 1, 2]
    assert registry.add("a", '"int"') == 1
    assert registry.call("GET", "/subjects/a/versions") == [1, 2]
    assert registry.call("GET", "/schemas/ids/2") == {"schema": '"long"'}


def test_import_is_refused_while_subjects_exist(registry: SchemaRegistry) -> None:
    """A subject, a context and the whole registry take the mode only while they are empty, or by force."""
    registry.add("a", '"int"')
    assert code(registry, "PUT", "/mode/a", IMPORT) == 42205
    assert code(registry, "PUT", "/mode", IMPORT) == 42205
    assert registry.call("PUT", "/mode/b", IMPORT) == IMPORT
    assert registry.call("PUT", "/mode/:.east:", IMPORT) == IMPORT
    assert registry.call("PUT", "/mode/a?force=true", IMPORT) == IMPORT


def test_soft_deleted_versions_and_the_mode(registry: SchemaRegistry) -> None:
    """They do not count as existing where the mode becomes IMPORT: they are removed for good, but not by force."""
    for subject in "ab":
        registry.add(subject, '"int"')
        registry.call("DELETE", f"/subjects/{subject}/versions/1")
    registry.call("PUT", "/mode/a?force=true", IMPORT)
    assert registry.call("GET", "/subjects/a/versions?deleted=true") == [1]
    registry.call("PUT", "/mode/b", IMPORT)
    assert code(registry, "GET", "/subjects/b/versions?deleted=true") == 40401


def test_a_mode_takes_ids_or_refuses_them(registry: SchemaRegistry) -> None:
    """IMPORT needs an id, READWRITE refuses one, READONLY refuses both."""
    registry.call("PUT", "/mode/a", IMPORT)
    assert code(registry, "POST", "/subjects/a/versions", {"schema": '"int"'}) == 42205
    assert put(registry, "a", 17, 3, '"int"') == {"id": 17}
    body = {"schema": '"int"', "id": 18, "version": 1}
    assert code(registry, "POST", "/subjects/b/versions", body) == 42205
    registry.call("PUT", "/mode/b", {"mode": "READONLY"})
    assert code(registry, "POST", "/subjects/b/versions", {"schema": '"int"'}) == 42205


def test_versions_may_have_gaps_and_come_in_any_order(registry: SchemaRegistry) -> None:
    """Ids continue after the highest imported one."""
    registry.call("PUT", "/mode/a", IMPORT)
    put(registry, "a", 30, 5, '"int"')
    put(registry, "a", 20, 2, '"long"')
    assert registry.call("GET", "/subjects/a/versions") == [2, 5]
    assert registry.add("b", '"string"') == 31


def test_an_id_stands_for_one_content(registry: SchemaRegistry) -> None:
    """With the same content it may stand under other subjects."""
    registry.call("PUT", "/mode/a", IMPORT)
    registry.call("PUT", "/mode/b", IMPORT)
    put(registry, "a", 5, 1, '"int"')
    put(registry, "b", 5, 1, '"int"')
    assert (
        code(registry, "POST", "/subjects/b/versions", {"schema": '"long"', "id": 5, "version": 2}) == 42205
    )


def test_the_same_version_again_with_another_schema_answers_200_and_changes_nothing(
    registry: SchemaRegistry,
) -> None:
    """The reason that a mirror reads back what it wrote."""
    registry.call("PUT", "/mode/a", IMPORT)
    put(registry, "a", 5, 1, '"int"')
    assert put(registry, "a", 6, 1, '"long"') == {"id": 6}
    assert registry.call("GET", "/subjects/a/versions/1")["id"] == 5


def test_deletions_have_two_steps(registry: SchemaRegistry) -> None:
    """A soft-deleted version keeps its id; a permanent deletion needs the soft one first."""
    registry.add("a", '"int"')
    assert code(registry, "DELETE", "/subjects/a/versions/1?permanent=true") == 40407
    registry.call("DELETE", "/subjects/a/versions/1")
    assert code(registry, "GET", "/subjects/a/versions/1") == 40402
    assert registry.call("GET", "/subjects/a/versions/1?deleted=true")["id"] == 1
    assert registry.call("GET", "/subjects") == []
    assert registry.call("GET", "/subjects?deleted=true") == ["a"]
    assert registry.call("GET", "/schemas/ids/1") == {"schema": '"int"'}
    registry.call("DELETE", "/subjects/a/versions/1?permanent=true")
    assert code(registry, "GET", "/schemas/ids/1") == 40403
    assert registry.add("a", '"long"') == 2


def test_what_others_refer_to_cannot_be_deleted(registry: SchemaRegistry) -> None:
    """Nor registered before it exists."""
    reference = {"name": "x", "subject": "a", "version": 1}
    assert (
        code(registry, "POST", "/subjects/b/versions", {"schema": "{}", "references": [reference]}) == 42201
    )
    registry.add("a", '"int"')
    registry.add("b", "{}", references=[reference])
    assert code(registry, "DELETE", "/subjects/a/versions/1") == 42206
    registry.call("DELETE", "/subjects/b/versions/1")
    registry.call("DELETE", "/subjects/a/versions/1")


def test_contexts_have_their_own_ids(registry: SchemaRegistry) -> None:
    """A reference in a context means the same context."""
    registry.add("a", '"int"')
    assert registry.add(":.east:a", '"string"') == 1
    assert registry.call("GET", "/schemas/ids/1?subject=:.east:") == {"schema": '"string"'}
    assert registry.call("GET", "/subjects?subjectPrefix=:.east:") == [":.east:a"]
    registry.add(":.east:b", "{}", references=[{"name": "x", "subject": "a", "version": 1}])


def test_levels_and_modes_are_inherited(registry: SchemaRegistry) -> None:
    """A subject has its own, that of its context, or that of the registry."""
    assert code(registry, "GET", "/config/a") == 40408
    assert code(registry, "GET", "/mode/a") == 40409
    registry.call("PUT", "/config/:.east:", {"compatibility": "FULL"})
    assert registry.call("GET", "/config/:.east:a?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
    assert registry.call("GET", "/config/a?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    registry.call("PUT", "/config/a", {"compatibility": "NONE"})
    assert registry.call("GET", "/config/a") == {"compatibilityLevel": "NONE"}
    registry.call("DELETE", "/config/a")
    assert code(registry, "GET", "/config/a") == 40408


@pytest.mark.parametrize("path", ["/subjects/a/versions/1", "/subjects/a"])
def test_a_subject_loses_mode_and_level_with_its_last_version(registry: SchemaRegistry, path: str) -> None:
    """
    With a permanent deletion; in older releases with a soft one, and only with that.

    Both can be set again for a subject that is deleted, or has never been; it is not listed for that.
    """

    def own() -> list[str]:
        return [kind for kind in ("mode", "config") if has_own(registry, kind, "a")]

    def set_both() -> None:
        registry.call("PUT", "/mode/a?force=true", IMPORT)
        registry.call("PUT", "/config/a", {"compatibility": "NONE"})
        assert own() == ["mode", "config"]

    older = registry._release < 8
    set_both()
    assert registry.call("GET", "/subjects?deleted=true") == []
    put(registry, "a", 5, 1, '"int"')
    registry.call("DELETE", path)
    assert own() == ([] if older else ["mode", "config"])
    set_both()
    registry.call("DELETE", f"{path}?permanent=true")
    assert own() == (["mode", "config"] if older else [])
    assert registry.call("GET", "/subjects?deleted=true") == []


def test_versions_that_stay_keep_mode_and_level(registry: SchemaRegistry) -> None:
    """A deletion for good beside a live version drops neither."""
    registry.call("PUT", "/mode/a", IMPORT)
    registry.call("PUT", "/config/a", {"compatibility": "NONE"})
    put(registry, "a", 5, 1, '"int"')
    put(registry, "a", 6, 2, '"long"')
    registry.call("DELETE", "/subjects/a/versions/1")
    registry.call("DELETE", "/subjects/a/versions/1?permanent=true")
    assert registry.call("GET", "/mode/a") == IMPORT
    assert registry.call("GET", "/config/a") == {"compatibilityLevel": "NONE"}
