"""Logins as Kafka's JaasConfig reads them; what it took and refused was asked of it (kafka-clients 4.3)."""

from __future__ import annotations

import pytest

from eomirror.config.jaas import JaasFaultError, parse_jaas
from eomirror.config.mm2_properties import import_mm2

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            'm required password="x username=evil" username="a";',
            {"password": "x username=evil", "username": "a"},
        ),
        ("m REQUIRED;", {}),
        ('m required a = "b" c= d;', {"a": "b", "c": "d"}),
        (r'm required u="\$ConnectionString";', {"u": "$ConnectionString"}),
        (r"m required u='\101\7z\q\n';", {"u": "A\x07zq\n"}),
        ("m required u=a-b.c_d$;", {"u": "a-b.c_d$"}),
        ('m /* c */ required // d\n u="x;y";', {"u": "x;y"}),
        ("m required u='it is;' w=\"it's\";", {"u": "it is;", "w": "it's"}),
        ('"m" required "k"="v";', {"k": "v"}),
        ("m required /\nu=hidden\nv=shown;", {"v": "shown"}),
    ],
)
def test_options_are_those_that_kafka_reads(text: str, options: dict[str, str]) -> None:
    """Quotation marks of either kind, escapes, comments; nothing inside of a value is an option."""
    assert dict(parse_jaas(text).options) == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m;",
        "m required",
        "m bad a=b;",
        "m required a=1234;",
        "m required a=12ab;",
        "m required a=-5;",
        "m required a=b/c;",
        "m required a;",
        "m required a=;",
        "m required a={x};",
        'm required a="un;',
        "m required; m2 required;",
        'm required 5="x";',
    ],
)
def test_what_kafka_does_not_start_with_is_refused(text: str) -> None:
    """The message names no value."""
    with pytest.raises(JaasFaultError):
        parse_jaas(text)


@pytest.mark.parametrize(
    "login",
    [
        f'{PLAIN} required password="x username=evil" username="a";',
        f"{PLAIN} required\tpassword='x username=evil'\tusername = a ;",
        f'{PLAIN} required /* username="evil" */ username=a password="x username=evil";',
    ],
)
def test_a_password_never_gives_another_user(login: str) -> None:
    """The user is the value of `username`, wherever the text occurs."""
    found = import_mm2(f"clusters=a,b\na->b.enabled=true\na.sasl.jaas.config={login}", keep_secrets=True)
    cluster = found.settings["clusters"]["a"]
    assert (cluster["sasl.username"], cluster["sasl.password"]) == ("a", "x username=evil")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('username="u" password="p" tokenauth="true"', "tokenauth"),
        ('username="u" password="p" tokenauth=TRUE', "tokenauth"),
        ('username="u" password="p" other="x"', "'other'"),
        ('username="u"', "password"),
        ('password="p"', "username"),
    ],
)
def test_a_login_that_would_be_another_one_is_refused_with_the_line_to_write(options: str, says: str) -> None:
    """The line that the refusal prints is accepted."""
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    head = "clusters=a,b\na->b.enabled=true\na.sasl.mechanism=SCRAM-SHA-512\n"
    (refused,) = (
        item
        for item in import_mm2(
            f"{head}a.sasl.jaas.config={scram} required {options};", keep_secrets=False
        ).not_honoured
        if item.grave
    )
    assert says in refused.reason
    line = refused.reason[refused.reason.index("a.sasl.jaas.config = ") :]

    followed = import_mm2(head + line, keep_secrets=False)

    assert not any(item.grave for item in followed.not_honoured)
    assert followed.settings["clusters"]["a"]["sasl.password"] == "${env:A_SASL_PASSWORD}"
