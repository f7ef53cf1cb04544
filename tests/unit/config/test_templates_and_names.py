"""References and templates in values, and signs in patterns that no name can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror import load_config
from eomirror.config.secret import Secret
from eomirror.config.values import foreign_sign, without_look_around
from eomirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def settings(cluster: dict[str, str] | None = None, **link: Any) -> dict[str, Any]:
    a = {"bootstrap.servers": "x:1", **(cluster or {})}
    return {
        "clusters": {"a": a, "b": {"bootstrap.servers": "y:1"}},
        "links": [{"source": "a", "target": "b", "topics": [".*"], **link}],
    }


@pytest.mark.parametrize("key", ["bootstrap.servers", "sasl.username", "ssl.ca.location", "sasl.password"])
@pytest.mark.parametrize(
    ("template", "fix"),
    [
        ("${REGION}", "${env:REGION}"),
        ("${REGION:-eu}", "${env:REGION}"),
        ("${vault:secret/x:pw}", "${env:NAME}"),
        ("${.Values.user}", "${env:NAME}"),
    ],
)
def test_a_template_that_was_not_filled_in_is_refused(key: str, template: str, fix: str) -> None:
    """Sent as it is, it would be a host that never answers, or a user that does not exist."""
    value = f"{template}-x:9092" if key == "bootstrap.servers" else f"x{template}"
    with pytest.raises(ConfigError) as refused:
        load_config(settings({key: value}))
    (fault,) = refused.value.faults
    assert fault.path == f"clusters.a.{key}"
    assert fix in fault.fix
    assert "$${...}" in fault.fix
    assert (template in fault.message) is (key != "sasl.password")


@pytest.mark.parametrize("text", ["${REGION}", "${env:HOME}", "${vault:x}"])
def test_two_dollar_signs_stand_for_the_characters(text: str) -> None:
    """What the refusal says to write for a literal is one."""
    loaded = load_config(settings({"sasl.username": f"a${text}b"}))
    assert loaded.clusters["a"].properties["sasl.username"] == f"a{text}b"


@pytest.mark.parametrize(
    "host", ["$HOST", "@HOST@", "{{ host }}", "<host>", "%HOST%", "#{host}", "__HOST__", "((host))"]
)
def test_a_host_of_another_template_is_warned_of(host: str) -> None:
    """No name of a host has these signs."""
    loaded = load_config(settings({"bootstrap.servers": f"ok:9092,{host}:9092"}))
    assert any("template" in warning.message for warning in loaded.warnings)


@pytest.mark.parametrize(
    "host", ["kafka-1.example.com", "10.0.0.1", "[::1]", "[fe80::1%eth0]", "kafka_1", "LOCALHOST"]
)
def test_hosts_are_not_warned_of(host: str) -> None:
    """Names with underscores are usual in containers."""
    loaded = load_config(settings({"bootstrap.servers": f"{host}:9092"}))
    assert loaded.warnings == ()


def test_a_key_of_a_property_file_is_read(tmp_path: Path) -> None:
    """As by Kafka's FileConfigProvider; a missing key is named, and never the content."""
    path = tmp_path / "kafka.properties"
    path.write_text("user = me\npassword = se:cret=1\n")
    path.chmod(0o600)
    given = {"sasl.username": f"${{file:{path}:user}}", "sasl.password": f"${{file:{path}:password}}"}
    password = load_config(settings(given)).clusters["a"].properties["sasl.password"]
    assert isinstance(password, Secret)
    assert password.reveal() == "se:cret=1"
    with pytest.raises(ConfigError, match="has no key 'pw'") as refused:
        load_config(settings({"sasl.password": f"${{file:{path}:pw}}"}))
    assert "se:cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("pattern", "sign"),
    [
        ("payments # only these", " "),
        ('"audit"', '"'),
        (r"\"audit\"", '"'),
        ("'audit'", "'"),
        ("orders ", " "),
        (" orders", " "),
        ("orders;", ";"),
        ("a|b c", " "),
        ("caf\u00e9", "\u00e9"),
        ("topic:orders", ":"),
        (r"a\ b", " "),
        ("pay.*", ""),
        (r"pay\.[a-z ]+", ""),
        (r"(?:a|b){2,3}\d+\w*", ""),
        (r"(?i)orders_[^;]*", ""),
        (r"(?P<name>a)b$", ""),
    ],
)
def test_signs_that_no_topic_has_are_found(pattern: str, sign: str) -> None:
    """Outside of classes; markup of an expression is no sign."""
    assert foreign_sign(pattern, "topic") == sign


@pytest.mark.parametrize("key", ["topics", "exclude", "groups", "exclude_groups", "exclude_configs"])
@pytest.mark.parametrize("slip", ["{} # remark", '"{}"', "{} ", "{};"])
def test_a_pattern_with_a_slip_is_warned_of_and_the_advice_is_followed(key: str, slip: str) -> None:
    """In `exclude` the topic that was to stay out would be copied."""
    loaded = load_config(settings(**{key: [slip.format("audit")]}))
    (warning,) = loaded.warnings
    assert warning.path == f"links[0].{key}[0]"
    assert warning.fix == "write 'audit'"
    assert load_config(settings(**{key: ["audit"]})).warnings == ()


def test_groups_may_have_signs_that_topics_cannot_have() -> None:
    """A group's id is any text."""
    assert load_config(settings(groups=["my group", "app#1", "caf\u00e9", "x:y"])).warnings == ()


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("(?!secret).*", (".*", ["secret.*"])),
        ("^(?!a|b)(?!c$).+$", (".+$", ["(a|b).*", "c"])),
        (r".*(?<!-old)$", (".*", [".*-old"])),
        ("(?!(x)y[)]).*", (".*", ["(x)y[)].*"])),
        ("ord(?=er).*", None),
        ("a(?!b).*", None),
        ("plain.*", None),
    ],
)
def test_look_around_is_divided_where_that_means_the_same(pattern: str, parts: Any) -> None:
    """At the start or the end of an expression that matches whole names."""
    assert without_look_around(pattern) == parts


def test_the_fix_for_groups_names_their_own_list() -> None:
    """There is no `exclude` for groups."""
    with pytest.raises(ConfigError, match="exclude_groups"):
        load_config(settings(groups=["(?!console-).*"]))


@pytest.mark.parametrize("key", ["compression.type", "compression.codec", "compression.level"])
@pytest.mark.parametrize("section", ["", "producer"])
def test_a_codec_that_chooses_the_slow_plane_is_warned_of_with_its_price(section: str, key: str) -> None:
    """`check`, `import` and `run` show the warning, `plan` and `status` the remark of the link."""
    given = settings()
    properties = given["clusters"]["b"]
    (properties.setdefault(section, {}) if section else properties)[key] = (
        "1" if key.endswith("level") else "zstd"
    )
    loaded = load_config(given)
    (warning,) = loaded.warnings
    assert warning.path == f"clusters.b.{section + '.' if section else ''}{key}"
    assert "client plane" in warning.message
    assert "CPU" in warning.message
    assert warning.message in loaded.links[0].remark


@pytest.mark.parametrize("plane", ["client", "native"])
def test_who_chooses_a_plane_is_not_warned_of_it(plane: str) -> None:
    """And a codec of the source has no effect."""
    given = settings(plane=plane)
    given["clusters"]["b"]["compression.type"] = "zstd"
    assert load_config(given).links[0].remark == ""
    assert load_config(settings({"compression.type": "zstd"})).warnings == ()
