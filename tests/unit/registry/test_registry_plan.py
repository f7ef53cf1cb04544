"""The difference of two registries: operations in their order, and what is left alone."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from eomirror.cli.app import main
from eomirror.cli.plan import Planned
from eomirror.registry.diff import RegistryPlan, SchemaPolicy, registry_plan
from eomirror.registry.state import (
    IMPORT,
    RegisteredVersion,
    RegistryState,
    SchemaContent,
    SubjectState,
    qualified,
    unqualified,
)
from eomirror.topics.plan import Plan
from support.clusters.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def content(text: str, *uses: tuple[str, int], kind: str = "AVRO", **more: Any) -> SchemaContent:
    """A content, with references to subjects and versions."""
    references = [{"name": name, "subject": name, "version": number} for name, number in uses]
    return SchemaContent.of({"schema": text, "schemaType": kind, "references": references, **more})


def subject(*versions: tuple[int, int, str], deleted: tuple[int, ...] = (), **more: Any) -> SubjectState:
    """A subject with number, id and text of each version."""
    return SubjectState(
        {
            number: RegisteredVersion(schema_id, content(text), deleted=number in deleted)
            for number, schema_id, text in versions
        },
        **more,
    )


def state(**more: Any) -> RegistryState:
    """A registry with these subjects; ``mode``, ``level`` and ``ids`` are those of the registry."""
    own = {key: more.pop(key) for key in ("mode", "level", "ids") if key in more}
    return RegistryState(more, **own)


def plan(source: RegistryState, target: RegistryState, **policy: Any) -> RegistryPlan:
    return registry_plan(source, target, SchemaPolicy(**policy))


def steps(found: RegistryPlan) -> list[str]:
    """Action, subject and version of each operation."""
    return [
        f"{one.action} {one.subject}{'' if one.version is None else one.version}" for one in found.operations
    ]


def test_an_empty_target_gets_mode_then_versions_then_deletions_then_level() -> None:
    """The mode is set while the subject is empty; its level, which deletions may remove, at last."""
    found = plan(state(a=subject((1, 7, "int"), (3, 9, "long"), deleted=(1,), level="FULL")), state())
    assert steps(found) == ["mode a", "register a1", "register a3", "delete a1", "level a"]
    assert found.lines == [
        "~ mode of a: IMPORT, so that only a mirror registers",
        "+ schema a version 1, id 7",
        "+ schema a version 3, id 9",
        "- schema a version 1, deleted softly",
        "~ compatibility of a: FULL",
    ]


def test_equal_registries_need_nothing() -> None:
    """Neither where the copy takes registrations of applications: it is not touched."""
    equal = subject((1, 7, '{"type": "int", "a": 1}'))
    there = subject((1, 7, '{"a":1,"type":"int"}'))
    assert plan(state(a=equal), state(a=there)) == RegistryPlan()


def test_references_decide_about_the_order() -> None:
    """What others refer to is registered first, and deleted last."""
    base, user = RegisteredVersion(9, content("base")), RegisteredVersion(3, content("user", ("z", 1)))
    source = state(a=SubjectState({1: user}), z=SubjectState({1: base}))
    assert [one for one in steps(plan(source, state())) if "register" in one] == [
        "register z1",
        "register a1",
    ]
    there = state(a=SubjectState({1: user}, mode=IMPORT), z=SubjectState({1: base}, mode=IMPORT))
    gone = state(
        a=SubjectState({1: RegisteredVersion(3, user.content, deleted=True)}),
        z=SubjectState({1: RegisteredVersion(9, base.content, deleted=True)}),
    )
    assert steps(plan(gone, there)) == ["delete a1", "delete z1"]


def test_a_schema_whose_reference_is_not_mirrored_is_a_conflict() -> None:
    """And so is one that refers to that one."""
    source = state(
        a=SubjectState({1: RegisteredVersion(3, content("a", ("missing", 1)))}),
        b=SubjectState({1: RegisteredVersion(4, content("b", ("a", 1)))}),
    )
    found = plan(source, state())
    assert found.operations == ()
    assert [str(one) for one in found.conflicts] == [
        "a version 1: it refers to missing version 1, which is no copy on the target",
        "b version 1: it refers to a version 1, which is no copy on the target",
    ]


def test_a_schema_does_not_refer_to_another_schema_than_on_the_source() -> None:
    """Text and references would be equal, and its meaning another one, for a reader of records too."""
    user = SubjectState({1: RegisteredVersion(8, content("user", ("x", 1)))})
    found = plan(state(x=subject((1, 7, "int")), a=user), state(x=subject((1, 3, "bytes"))))
    assert found.operations == ()
    assert [one.subject for one in found.conflicts] == ["a", "x"]
    unmirrored = state(x=subject((1, 3, "bytes"), mode=IMPORT))
    assert plan(state(a=user), unmirrored, mirrors=lambda name: name == "a").operations == ()
    equal = plan(state(x=subject((1, 7, "int")), a=user), state(x=subject((1, 7, "int"))))
    assert steps(equal) == ["mode a", "register a1"]


@pytest.mark.parametrize("where", ["subject", "unlisted"])
def test_an_id_that_stands_for_another_schema_is_named_before_anything_is_written(where: str) -> None:
    """Also if the login cannot list the subject that has it; the other versions of the subject wait."""
    source = state(a=subject((1, 6, "int"), (2, 7, "long")), b=subject((1, 8, "float")))
    there = state(x=subject((1, 7, "bytes"))) if where == "subject" else state(ids={7: content("bytes")})
    found = plan(source, there)
    assert [str(one) for one in found.conflicts] == [
        "a version 2: id 7 stands for another schema on the target"
    ]
    assert steps(found) == ["mode b", "register b1"]
    assert found.lines[-1].startswith("! a version 2")


def test_a_version_that_differs_is_a_conflict_or_is_replaced() -> None:
    """A registry answers 200 to it and changes nothing, so it is deleted for good first, if it is ours to delete."""
    source = state(a=subject((1, 8, "long")))
    there = state(a=subject((1, 7, "int"), mode=IMPORT))
    assert "id 8 on the source and id 7 on the target" in str(plan(source, there).conflicts[0])
    found = plan(source, there, deletions="delete")
    assert steps(found) == ["delete a1", "purge a1", "mode a", "register a1"]
    assert not found.operations[2].force
    others = state(a=subject((1, 7, "int")))
    assert plan(source, others, deletions="delete").operations == ()


def test_a_subject_that_takes_registrations_is_left_alone() -> None:
    """IMPORT would take them from its applications: only a user may decide that."""
    source = state(a=subject((1, 7, "int"), (2, 8, "long")))
    found = plan(source, state(a=subject((1, 7, "int"))))
    assert found.operations == ()
    assert "takes registrations of applications" in found.conflicts[0].reason
    assert "PUT /mode/a?force=true" in found.conflicts[0].fix


def test_a_copy_without_a_live_version_gets_its_mode_by_force() -> None:
    """A registry drops the mode with the last version; without force it removes the deleted ones."""
    source = state(a=subject((1, 7, "int"), (2, 8, "long"), deleted=(1,)))
    found = plan(source, state(a=subject((1, 7, "int"), deleted=(1,))))
    assert steps(found) == ["mode a", "register a2"]
    assert found.operations[0].force


def test_what_the_source_deleted_for_good() -> None:
    """It is reported, deleted or ignored; never in a subject that is not ours."""
    source = state(a=subject((2, 9, "long")))
    there = subject((1, 7, "int"), (2, 9, "long"), mode=IMPORT)
    assert [(one.subject, one.version) for one in plan(source, state(a=there)).kept] == [("a", 1)]
    assert steps(plan(source, state(a=there), deletions="delete")) == ["delete a1", "purge a1"]
    assert plan(source, state(a=there), deletions="ignore") == RegistryPlan()
    apps = state(a=subject((1, 7, "int"), (2, 9, "long")))
    assert plan(source, apps, deletions="delete") == RegistryPlan()
    unlisted = plan(state(b=subject((1, 9, "long"))), state(a=there), deletions="delete", mirrors="b".__eq__)
    assert "a" not in {one.subject for one in unlisted.operations}


def test_after_a_failover_nothing_of_an_application_is_deleted() -> None:
    """The run knows the subject as its copy, and its mode has been taken back: version 2 is an application's."""
    source, known = state(a=subject((1, 7, "int"))), {("a", 1), ("b", 1)}
    used = state(a=subject((1, 7, "int"), (2, 8, "long")))
    assert plan(source, used, deletions="delete", known=known) == RegistryPlan()
    dead = state(
        b=subject((1, 9, "long"), deleted=(1,)),
        a=subject((1, 7, "int"), mode=IMPORT),
        z=subject((1, 99, "z")),
    )
    assert steps(plan(source, dead, deletions="delete", known=known)) == ["purge b1"]
    assert plan(source, dead, deletions="delete", known={("a", 1)}) == RegistryPlan()


def test_a_soft_deletion_of_the_source_concerns_copies_only() -> None:
    """A subject of applications with equal versions keeps them; it is named."""
    source = state(a=subject((1, 7, "int"), (2, 8, "long"), deleted=(1,)))
    both = ((1, 7, "int"), (2, 8, "long"))
    found = plan(source, state(a=subject(*both)))
    assert found.operations == ()
    assert str(found.conflicts[0]).startswith("a version 1: the subject is no copy")
    assert steps(plan(source, state(a=subject(*both, mode=IMPORT)))) == ["delete a1"]


def test_a_mode_that_others_have_set_stays() -> None:
    """Also that of a subject without versions."""
    found = plan(state(a=subject((1, 7, "int"))), state(a=subject(mode="READONLY")))
    assert found.operations == ()
    assert "has the mode READONLY" in found.conflicts[0].reason


def test_the_highest_id_is_not_deleted_for_good() -> None:
    """The target would give it to another schema after a failover."""
    source, there = state(a=subject((1, 7, "int"))), subject((1, 7, "int"), (2, 9, "long"), mode=IMPORT)
    found = plan(source, state(a=there), deletions="delete")
    assert steps(found) == ["delete a2"]
    assert "id 9" in found.kept[0].reason


def test_an_empty_source_deletes_nothing() -> None:
    """A registry that lost its topic looks empty, and so does a wrong address."""
    there = state(a=subject((1, 7, "int"), mode=IMPORT))
    found = plan(state(), there, deletions="delete", context="east")
    assert found.operations == ()
    assert len(found.kept) == 1


def test_the_level_of_the_registry_belongs_to_the_target() -> None:
    """Subjects that inherit another one get the source's as their own; in a context of copies, the context gets it."""
    source = state(a=subject((1, 7, "int")), level="FULL")
    there = state(a=subject((1, 7, "int"), mode=IMPORT))
    found = plan(source, there)
    assert [(one.action, one.subject, one.value) for one in found.operations] == [("level", "a", "FULL")]
    copies = state(a=subject((1, 7, "int")), mode=IMPORT)
    found = plan(source, copies, context="east")
    assert [(one.action, one.subject, one.value) for one in found.operations] == [("level", "", "FULL")]
    equal = state(a=subject((1, 7, "int"), mode=IMPORT, level="NONE"))
    found = plan(state(a=subject((1, 7, "int"))), equal)
    assert [(one.action, one.value) for one in found.operations] == [("level", None)]


def test_a_context_takes_the_mode_once() -> None:
    """With subjects of applications in it, it is another one's."""
    source = state(a=subject((1, 7, "int")), b=subject((1, 8, "long")))
    assert steps(plan(source, state(), context="east")) == ["mode ", "register a1", "register b1"]
    assert steps(plan(source, state(mode=IMPORT), context="east")) == ["register a1", "register b1"]
    used = plan(source, state(x=subject((1, 3, "int"))), context="east")
    assert "register" not in " ".join(steps(used))
    assert "context :.east: has subjects" in used.conflicts[0].reason


@pytest.mark.parametrize("policy", [{}, {"context": "east"}])
@pytest.mark.parametrize("deleted", [(), (1,), (1, 2)])
@pytest.mark.parametrize("level", ["NONE", None])
def test_a_level_follows_whether_versions_live_or_not(
    deleted: tuple[int, ...], level: str | None, policy: dict[str, str]
) -> None:
    """It can be set while all versions are soft-deleted, and is that of the subject when it is registered again."""
    versions = ((1, 7, "int"), (2, 8, "long"))
    source = state(a=subject(*versions, deleted=deleted, level=level))
    found = plan(source, state(), **policy)
    assert [one.value for one in found.operations if one.action == "level"] == ([level] if level else [])
    for before in ("FULL", None):
        copies = state(a=subject(*versions, deleted=deleted, level=before, mode=IMPORT), mode=IMPORT)
        found = plan(source, copies, **policy)
        changes = [("level", level)] if level != before else []
        assert [(one.action, one.value) for one in found.operations] == changes
    others = state(a=subject(*versions, deleted=deleted, level="FULL"))
    assert plan(source, others, **policy).operations == ()
    known = {("a", 1), ("a", 2)}
    assert bool(plan(source, others, known=known, **policy).operations) == (deleted == (1, 2))


def test_mode_and_level_that_deletions_drop_are_set_again() -> None:
    """
    Of a subject without a live version, as older releases do, or without any.

    A version that lives meanwhile keeps both.
    """
    source = state(a=subject((1, 7, "int"), deleted=(1,), level="NONE"))
    found = plan(source, state(a=subject((1, 7, "int"), mode=IMPORT, level="NONE")))
    assert steps(found) == ["delete a1", "level a"]
    source = state(a=subject((1, 7, "int"), (2, 8, "long"), deleted=(1,), level="NONE"))
    found = plan(source, state(a=subject((1, 7, "int"), mode=IMPORT, level="NONE")))
    assert steps(found) == ["register a2", "delete a1"]

    source = state(a=subject((1, 9, "bytes"), (2, 8, "long"), deleted=(2,), level="NONE"))
    there = subject((1, 7, "int"), (2, 8, "long"), deleted=(2,), mode=IMPORT, level="NONE")
    found = plan(source, state(a=there), deletions="delete")
    assert steps(found) == ["delete a1", "purge a1", "mode a", "register a1", "level a"]
    # without it a registry removes version 2
    assert found.operations[2].force
    copies = state(a=subject((1, 7, "int"), (2, 8, "long"), deleted=(2,), level="NONE"), mode=IMPORT)
    found = plan(source, copies, deletions="delete", context="east")
    assert steps(found) == ["delete a1", "purge a1", "register a1", "level a"]
    source = state(a=subject((1, 9, "bytes"), (2, 8, "long"), level="NONE"))
    there = subject((1, 7, "int"), (2, 8, "long"), mode=IMPORT, level="NONE")
    found = plan(source, state(a=there), deletions="delete")
    assert steps(found) == ["delete a1", "purge a1", "register a1"]


def test_a_level_goes_with_the_last_version() -> None:
    """Of what the source has deleted for good; a copy that stays keeps it."""
    source = state(b=subject((1, 9, "bytes")), level="FULL")
    there = {"a": subject((1, 7, "int"), mode=IMPORT, level="NONE"), "b": subject((1, 9, "bytes"))}
    found = plan(source, state(**there), deletions="delete")
    assert steps(found) == ["delete a1", "purge a1", "level a"]
    assert found.operations[-1].value is None
    for deletions in ("report", "ignore"):
        assert plan(source, state(**there), deletions=deletions).operations == ()
    # the version with the highest id stays, without what the source has no more
    there["a"] = subject((1, 11, "int"), deleted=(1,), mode=IMPORT, level="NONE")
    assert steps(plan(source, state(**there), deletions="delete")) == ["level a"]
    assert plan(state(level="FULL"), state(**there), deletions="delete").operations == ()
    # a level that was set before the first version is another one's
    preset = state(a=subject(level="NONE"), b=subject((1, 9, "bytes")))
    assert plan(source, preset, deletions="delete").operations == ()


@pytest.mark.parametrize("deleted", [(), (1,)])
def test_a_context_of_applications_is_not_touched(deleted: tuple[int, ...]) -> None:
    """Neither its mode, its level nor its subjects, deleted and unmirrored ones included."""
    source = state(a=subject((1, 7, "int")), level="FULL")
    there = state(x=subject((1, 3, "int"), deleted=deleted))
    for mirrors in ((lambda _: True), (lambda name: name == "a")):
        found = plan(source, there, context="east", deletions="delete", mirrors=mirrors)
        assert found.operations == ()
        assert [one.subject for one in found.conflicts] == ["a"]


@pytest.fixture
def registries(tmp_path: Path) -> Iterator[tuple[SchemaRegistry, SchemaRegistry, str]]:
    """Registries of both ends, closed at the latest behind the test; and the file of a link that mirrors them."""
    source, target = SchemaRegistry(), SchemaRegistry()
    file = tmp_path / "mirror.yaml"
    file.write_text(
        "clusters: {east: {bootstrap.servers: '127.0.0.1:1'}, west: {bootstrap.servers: '127.0.0.1:2'}}\n"
        "links: [{source: east, target: west, topics: [t], schemas: "
        f"{{source: '{source.url}', target: '{target.url}'}}}}]\n"
    )
    yield source, target, str(file)
    source.close()
    target.close()
    structlog.reset_defaults()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    """Exit code and output of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code, " ".join(capsys.readouterr().out.split())


def kept_alike() -> Plan:
    """The plan of clusters that do not differ."""
    return Plan(("a", "b"), {}, (), (), (), (), {}, first_run=False)


def test_plan_shows_changes_conflicts_and_a_registry_that_is_away(
    registries: tuple[SchemaRegistry, SchemaRegistry, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    What differs is exit code 3, also if it is a conflict only.

    A registry that is away does not pass for an equal one: the exit code is 1, and the reason stands where the changes
    would.
    """
    source, target, file = registries
    monkeypatch.setattr(
        "eomirror.cli.plan.planned",
        lambda _, chosen, *__, **___: ((one, Planned(kept_alike())) for one in chosen),
    )
    code, text = run(capsys, "plan", file, "-o", "json")
    (link,) = json.loads(text)["links"]
    assert (code or 0, link["differs"]) == (0, False)

    source.add("a[b]", '"int"')
    target.add("x", '"bytes"')
    code, text = run(capsys, "plan", file, "-o", "json")
    (link,) = json.loads(text)["links"]
    assert (code, link["differs"], link["schemas"]["operations"]) == (3, True, [])

    source.add("c", '"long"')
    code, text = run(capsys, "plan", file, "-o", "table")
    assert code == 3
    assert "schemas: 2 changes, 1 conflicts" in text
    assert "+ schema c version 1, id 2" in text
    assert "! a[b] version 1: id 1 stands for another schema on the target fix: mirror" in text

    source.close()
    code, text = run(capsys, "plan", file, "-o", "table")
    assert code == 1
    assert "schemas: not known: schema registry of east" in text
    code, text = run(capsys, "plan", file, "-o", "json")
    assert code == 1
    assert "does not answer" in text


def test_apply_mirrors_the_schemas_once(
    registries: tuple[SchemaRegistry, SchemaRegistry, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its changes stand among the others, also in the link's events; what stands is exit code 3, an absence 1."""
    source, target, file = registries
    recorded: list[tuple[str, str]] = []
    entries = SimpleNamespace(
        taken=lambda: [("~", "topic t")], record=lambda changed, _: recorded.extend(changed), stands=None
    )
    site = SimpleNamespace(apply=lambda: None, plan=kept_alike, entries=entries)
    monkeypatch.setattr(
        "eomirror.cli.apply.planned",
        lambda _, chosen, ask: [(one, Planned(ask(site, SimpleNamespace(target=None)))) for one in chosen],
    )
    monkeypatch.setattr("eomirror.link.state.refuse_ended", lambda *_: None)

    source.add("a", '"int"')
    code, text = run(capsys, "apply", file, "-o", "json")
    (link,) = json.loads(text)["links"]
    assert (code or 0, link["differs"], link["schemas"]["state"]) == (0, False, "mirrored")
    changes = [
        ("~", "topic t"),
        ("~", "mode of a: IMPORT, so that only a mirror registers"),
        ("+", "schema a version 1, id 1"),
    ]
    assert recorded == changes
    assert [(one["sign"], one["text"]) for one in link["changed"]] == changes
    assert target.shown() == source.shown()

    target.add("x", '"bytes"')
    source.add("c", '"long"')
    code, text = run(capsys, "apply", file, "-o", "table")
    assert code == 3
    assert "schemas: conflict: c version 1: id 2 stands for another schema on the target fix: mirror" in text

    target.close()
    code, text = run(capsys, "apply", file, "-o", "table")
    assert code == 1
    assert "schemas: away: schema registry of west" in text


def test_names_in_contexts() -> None:
    """`qualified` and `unqualified` are inverse; subjects of other contexts are none of a context's."""
    assert qualified("a-value", "east") == ":.east:a-value"
    assert [unqualified(name, "east") for name in (":.east:a", "a", ":.west:a")] == ["a", None, None]
    assert [unqualified(name, "") for name in ("a", ":.:a", ":.east:a")] == ["a", "a", None]


def test_contents_that_are_equal() -> None:
    """JSON is compared by its meaning, other texts as they are; references, metadata and rules belong to it."""
    assert content('{"a": 1, "b": 2}') == content('{"b":2,"a":1}')
    assert content('{"a": 1}') != content('{"a": 1.0}')
    assert content("message A {}", kind="PROTOBUF") != content("message  A {}", kind="PROTOBUF")
    assert content("int") != content("int", ("a", 1))
    assert content("int") != content("int", metadata={"properties": {"owner": "x"}})
    assert content("[" * 100_000) != content("int")
