"""The setting `schemas`: its forms, and that no secret of it is shown or leaves the driver."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

from eomirror.config import inspect_config, load_config, masked
from eomirror.config.carried import carried_link

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.config.schemas import SchemaMirror

TEXT = """
clusters:
  east: {bootstrap.servers: "127.0.0.1:19092"}
  west: {bootstrap.servers: "127.0.0.1:29092"}
links:
  - source: east
    target: west
    topics: [a]
    schemas:
      source: http://127.0.0.1:1
      target: {url: "https://127.0.0.1:2, https://127.0.0.1:3/", basic.auth.user.info: LOGIN}
      context: .east
      deletions: delete
      interval: 1m
"""


def written(folder: Path, login: str) -> Path:
    path = folder / "mirror.yaml"
    path.write_text(TEXT.replace("LOGIN", login))
    path.chmod(0o644)
    return path


def settings(path: Path, **environ: str) -> SchemaMirror:
    found = load_config(path, environ=environ).links[0].schemas
    assert found is not None
    return found


def test_an_address_is_enough(tmp_path: Path) -> None:
    """Several are split, the dot of a context may be written, and a login is revealed to the client alone."""
    found = settings(written(tmp_path, "mirror:s3cret"))
    assert (found.source.urls, found.target.urls) == (
        ("http://127.0.0.1:1",), ("https://127.0.0.1:2", "https://127.0.0.1:3"),
    )  # fmt: skip
    assert (found.context, found.deletions, found.interval, found.subjects) == (
        "east",
        "delete",
        60.0,
        (".*",),
    )
    assert found.target.get("basic.auth.user.info") == "mirror:s3cret"
    assert "s3cret" not in repr(found)


def test_a_secret_may_be_a_reference(tmp_path: Path) -> None:
    """As those of clusters."""
    found = settings(written(tmp_path, "'${env:REGISTRY}'"), REGISTRY="a:b")
    assert found.target.get("basic.auth.user.info") == "a:b"


def test_no_output_shows_the_login(tmp_path: Path) -> None:
    """Neither the masked configuration nor its faults; and a file that others can read is warned of."""
    path = written(tmp_path, "mirror:s3cret")
    loaded = load_config(path)
    shown = json.dumps(masked(loaded))
    assert "s3cret" not in shown
    assert masked(loaded)["links"][0]["schemas"]["target"]["basic.auth.user.info"] == "***"
    assert any(one.path == "links[0].schemas.target.basic.auth.user.info" for one in loaded.warnings)
    assert not any("s3cret" in str(one) for one in inspect_config(written(tmp_path, "s3cret")).faults)


def test_a_login_without_encryption_is_warned_of(tmp_path: Path) -> None:
    """But not on this machine."""
    path = written(tmp_path, "a:b")
    path.write_text(path.read_text().replace("https://127.0.0.1:2", "http://registry:2"))
    assert any("unencrypted" in one.message for one in load_config(path).warnings)
    assert not any("unencrypted" in one.message for one in load_config(written(tmp_path, "a:b")).warnings)


def test_no_registry_leaves_the_driver(tmp_path: Path) -> None:
    """A task of a Spark cluster asks none."""
    link = load_config(written(tmp_path, "mirror:s3cret")).links[0]
    assert b"s3cret" not in pickle.dumps(carried_link(link))


def links(*pairs: str, **schemas: object) -> list[str]:
    """Faults and warnings of links from and to these aliases, all with these registries."""
    told = {"source": "http://127.0.0.1:1", "target": "http://127.0.0.1:2", **schemas}
    found = inspect_config(
        {
            "clusters": {one: {"bootstrap.servers": f"127.0.0.1:{n}"} for n, one in enumerate("abc", 1)},
            "links": [
                {"source": one, "target": two, "topics": [topics], "schemas": told}
                for one, two, topics in (pair.split() for pair in pairs)
            ],
        }
    )
    return [str(one) for one in (*found.faults, *(found.config.warnings if found.config else ()))]


def test_two_links_do_not_mirror_into_one_context() -> None:
    """Each would delete what the other registers."""
    (fault,) = links("a c orders", "b c other")
    assert "links[1].schemas" in fault
    assert "the same context" in fault


def test_a_topic_of_a_registry_beside_its_api_is_warned_of() -> None:
    """A pattern such as .* matches _schemas: it is no internal topic."""
    (warning,) = links("a b .*")
    assert "_schemas" in warning
    assert links("a b orders") == []


def mirrors(*ways: tuple[str, str, dict[str, object]]) -> list[str]:
    """Faults of links between registries, each with a registry for its alias."""
    ports = {one: n for n, one in enumerate("abc", 1)}
    found = inspect_config(
        {
            "clusters": {one: {"bootstrap.servers": f"127.0.0.1:{n}"} for one, n in ports.items()},
            "links": [
                {
                    "source": one,
                    "target": two,
                    "topics": [f"orders{n}"],
                    "schemas": {
                        "source": f"http://127.0.0.1:{ports[one]}",
                        "target": f"http://127.0.0.1:{ports[two]}",
                        **more,
                    },
                }
                for n, (one, two, more) in enumerate(ways)
            ],
        }
    )
    return [str(one) for one in found.faults]


def test_subjects_do_not_come_back_to_their_source() -> None:
    """A mirror would set the mode IMPORT where the applications of the source register; contexts keep them apart."""
    (fault,) = mirrors(("a", "b", {}), ("b", "a", {}))
    assert "links[1].schemas" in fault
    assert "come back" in fault
    (fault,) = mirrors(("a", "b", {}), ("b", "c", {}), ("c", "a", {}))
    assert "links[2].schemas" in fault
    assert mirrors(("a", "b", {}), ("b", "c", {})) == []
    assert mirrors(("a", "b", {"context": "a"}), ("b", "a", {"context": "b"})) == []
    assert mirrors(("a", "b", {}), ("b", "a", {"context": "b"})) == []


def test_a_link_that_deletes_shares_no_context() -> None:
    """Other patterns may match the same subjects, and what one link mirrors is deleted by the other."""
    shared: dict[str, object] = {"subjects": ["x.*"], "deletions": "delete"}
    (fault,) = mirrors(("a", "c", {}), ("b", "c", shared))
    assert "deletions: delete" in fault
    assert mirrors(("a", "c", {}), ("b", "c", {"subjects": ["x.*"]})) == []
    assert mirrors(("a", "c", {"context": "a"}), ("b", "c", shared)) == []
