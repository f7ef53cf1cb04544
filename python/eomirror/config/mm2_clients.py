"""
Converts client properties of Java, as MirrorMaker 2's file has them, to librdkafka's. Pure.

Logins come from ``sasl.jaas.config``, which `eomirror.config.jaas` parses as Kafka does.  What is refused says which
line to write in place of it, in the same file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eomirror.config.jaas import JaasFaultError, LoginModule, parse_jaas
from eomirror.config.nodes import quoted
from eomirror.config.rules import MSK_MECHANISM, MSK_TOKEN_FUNCTION
from eomirror.config.secret import is_secret_key, shows_secret, unfilled
from eomirror.config.token_function import OAUTH_CB

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ClientProperties", "NotHonoured", "PropertyKeys", "broker_list"]

# properties that mean the same to both clients
_SAME = frozenset(
    {
        "batch.size",
        "bootstrap.servers",
        "client.dns.lookup",
        "client.rack",
        "compression.type",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "linger.ms",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "security.protocol",
        "ssl.key.password",
        "ssl.keystore.password",
    }
)
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
# properties of Kafka's OIDC login beside its options, and librdkafka's
_OIDC = {
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
# options of Kafka's and of Strimzi's login module for OIDC
_OIDC_OPTIONS = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "oauth.client.id": "sasl.oauthbearer.client.id",
    "oauth.client.secret": "sasl.oauthbearer.client.secret",
    "oauth.scope": "sasl.oauthbearer.scope",
    "oauth.token.endpoint.uri": _ENDPOINT,
    "ssl.truststore.location": "https.ca.location",
    "oauth.ssl.truststore.location": "https.ca.location",
}
_OIDC_NEEDED = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", _ENDPOINT)
_EXTENSION = "extension_"
# options that change no token
_OIDC_TUNING = re.compile(
    r"(oauth\.)?(ssl\.truststore\.type|ssl\.protocol)|oauth\.(connect|read)\.timeout\.seconds|oauth\.enable\.metrics"
    r"|oauth\.http\.retr.*|oauth\.access\.token\.is\.jwt|oauth\.include\.accept\.header"
)
_OIDC_CLASSES = re.compile(
    r"(org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearerLoginCallbackHandler"
    r"|io\.strimzi\.kafka\.oauth\.client\.JaasClientOauthLoginCallbackHandler"
    r"|org\.apache\.kafka\.common\.security\.oauthbearer\.ClientCredentialsJwtRetriever)"
)
_OIDC_HANDLERS = ("sasl.login.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class")
_UNSECURED = {"unsecuredLoginStringClaim_sub": "principal", "unsecuredLoginLifetimeSeconds": "lifeSeconds"}
_IAM = "software.amazon.msk.auth.iam."
_MSK_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_OF_IAM = ("sasl.mechanism", "sasl.jaas.config")
# options of IAMLoginModule, and those of our token function
_IAM_OPTIONS = {
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session_name",
}
_PROVIDERS = {
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "directory",
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
}
# ConfigTransformer.java: ${PROVIDER:[PATH:]KEY}
_REFERENCE = re.compile(r"(?<!\$)\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
_ONE_REFERENCE = re.compile(r"\$?\$\{[^{}]+\}")
# also with a default, as in a shell
_TEMPLATE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?[-?=+][^}]*)?\}", re.ASCII)
# ClientUtils.java and Utils.java: what stands before the host is ignored
_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*://")
_JAVA_BLANKS = "".join(map(chr, range(33)))
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True, slots=True)
class NotHonoured:
    """
    A key that is not carried over.

    Attributes:
        key: Key in the file.
        reason: Reason why not.
        line: Line in the file; 0 for a default of MM2.
        weight: ``refused`` if other records would be mirrored without it, or a cluster could not be reached: the file
            is then refused in place of a configuration.  ``lost``: the mirror does less.  ``look``: a person should
            look at it.  ``harmless`` otherwise.
    """

    key: str
    reason: str
    line: int
    weight: str = "harmless"

    @property
    def grave(self) -> bool:
        """True if the file is refused."""
        return self.weight == "refused"


class PropertyKeys:
    """
    Keys of a property file, and what became of each.

    Attributes:
        given: Value and line of each key.
        honoured: Path in our configuration of each key that is carried over.
        refused: All other keys that were looked at.
        places: Key of each path.
    """

    def __init__(self, given: Mapping[str, tuple[str, int]]) -> None:
        self.given = given
        self.honoured: dict[str, str] = {}
        self.refused: dict[str, NotHonoured] = {}
        self.places: dict[str, str] = {}

    def value(self, key: str) -> str:
        """Returns the value of a key without blanks at its ends; empty if there is no such key."""
        # String.trim() of Java, which keeps other blanks of Unicode
        return self.given[key][0].strip(_JAVA_BLANKS) if key in self.given else ""

    def honour(self, key: str, place: str) -> None:
        """Records where a key is carried over."""
        if key in self.given:
            self.places[place] = key
            # a key that one flow cannot carry over is reported, even if another flow can
            if key not in self.refused:
                self.honoured[key] = place

    def refuse(self, key: str, reason: str, *, grave: bool = False, weight: str = "harmless") -> None:
        """Records why a key is not carried over."""
        self.honoured.pop(key, None)
        self.refused[key] = NotHonoured(key, reason, self.given[key][1], "refused" if grave else weight)


def broker_list(text: str) -> tuple[list[str], bool]:
    """Returns the brokers of a list as Java's client reads it, and True if it ignores what stands before a host."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return [_PROTOCOL.sub("", part, count=1) for part in parts], any(map(_PROTOCOL.match, parts))


@dataclass(slots=True)
class ClientProperties:
    """
    Converts the properties of clients.

    Attributes:
        keys: Keys of the file.
        keep_secrets: Keep secrets; otherwise they become references to variables.
        variables: Key whose secret each environment variable must hold.
    """

    keys: PropertyKeys
    keep_secrets: bool
    variables: dict[str, str] = field(default_factory=dict)
    _providers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Finds the config providers with a counterpart, by their names in the file."""
        self._providers = {"env": "env", "file": "file"}
        for key in self.keys.given:
            if name := re.fullmatch(r"config\.providers\.([^.]+)\.class", key):
                self._providers[name[1]] = _PROVIDERS.get(self.keys.value(key), "")

    def knows_provider(self, name: str) -> bool:
        """Returns True if a config provider has a counterpart."""
        return bool(self._providers.get(name))

    def convert(self, scope: str, path: str, names: Mapping[str, str], into: dict[str, Any]) -> None:
        """
        Converts one client's properties.

        Args:
            scope: Beginning of the names of variables.
            path: Path of the properties in our configuration.
            names: Key in the file of each of Java's names.
            into: Receives librdkafka's properties.
        """
        iam = self.keys.value(names.get("sasl.mechanism", "")).upper() == MSK_MECHANISM
        if iam:
            self._iam(path, names, into)
        for name, key in names.items():
            if name in _OF_IAM and iam:
                continue
            if name == "sasl.jaas.config":
                self._jaas(scope, path, names, into)
            elif name.startswith("ssl.") and name.endswith("store.location"):
                self._store(path, name, names, into)
            elif name == "ssl.endpoint.identification.algorithm":
                into[name] = self.keys.value(key).lower() or "none"
                self.keys.honour(key, f"{path}.{name}")
            elif name in ("ssl.truststore.type", "ssl.keystore.type"):
                self.keys.honour(key, path)
            elif name in _SAME or name in _RENAMED:
                self._property(scope, path, _RENAMED.get(name, name), key, into)

    def _property(self, scope: str, path: str, ours: str, key: str, into: dict[str, Any]) -> None:
        """Converts a property with a counterpart."""
        value = self._plain(scope, key)
        if value is None:
            return
        into[ours] = self._hidden(scope, ours, key, value)
        self.keys.honour(key, f"{path}.{ours}")
        if ours == "bootstrap.servers":
            brokers, prefixed = broker_list(value)
            if prefixed or not all(part.strip() for part in value.split(",")):
                into[ours] = ",".join(brokers)
            if prefixed:
                why = (
                    "what stands before the hosts is left out, as by Java's client: security.protocol decides"
                )
                self.keys.refuse(key, why, weight="look")

    # -- references ------------------------------------------------------------------------------

    def _plain(self, scope: str, key: str) -> str | None:
        """Returns a value with references in our form; refuses one with references that have none."""
        value = _REFERENCE.sub(self._ours, self.keys.value(key))
        if (left := unfilled(value)) is None:
            return value
        ref, _ = left
        name = "sasl.password" if key.endswith("jaas.config") else key.partition(".")[2] or key
        known = _TEMPLATE.fullmatch(ref)
        variable = known[1] if known else self._variable(scope, name)
        if key.endswith("jaas.config"):
            line = self._login_line(scope, key, value)
        elif (is_secret_key(key) or shows_secret(value)) and value != ref:
            line = f"${{env:{variable}}} in place of the reference"
        else:
            line = f"{key} = {value.replace(ref, f'${{env:{variable}}}')}"
        provider = ":" in ref and known is None
        what = "nothing: a template that was not filled in"
        if provider:
            what = "a config provider without a counterpart"
        literal = "" if provider else "; or $${...} for these characters"
        self.keys.refuse(key, f"it refers to {what}; write {line} and set that variable{literal}", grave=True)
        return None

    def _ours(self, found: re.Match[str]) -> str:
        kind = self._providers.get(found[1], "")
        folder = found[2] or ""
        if kind == "env" and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", found[3]) and not folder:
            return f"${{env:{found[3]}}}"
        if kind == "directory" and folder.startswith("/"):
            return f"${{file:{folder.rstrip('/')}/{found[3]}}}"
        if kind == "file" and (folder.startswith("/") or (not folder and found[3].startswith("/"))):
            return f"${{file:{folder}:{found[3]}}}" if folder else found[0]
        return found[0]

    def _variable(self, scope: str, name: str) -> str:
        return re.sub(r"[^A-Z0-9]", "_", f"{scope}_{name}".upper())

    def _login_line(self, scope: str, key: str, value: str = "") -> str:
        """Returns the line of a login with user and password, with what a refused one shows of them."""
        mechanism = "sasl.mechanism"
        own = key.replace("sasl.jaas.config", mechanism)
        kind = (self.keys.value(own) or self.keys.value(mechanism)).upper()
        module = _MODULES["PLAIN" if kind == "PLAIN" else "SCRAM"]
        user = f"${{env:{self._variable(scope, 'sasl.username')}}}"
        try:
            given = _parsed(value)
        except JaasFaultError:
            given = None
        if given is not None:
            module = given.name
            shown = given.options.get("username", "")
            if template := _TEMPLATE.fullmatch(shown):
                user = f"${{env:{template[1]}}}"
            elif re.fullmatch(r"[\w.@$-]+", shown):
                user = shown
        password = f"${{env:{self._variable(scope, 'sasl.password')}}}"
        return f'{key} = {module} required username="{user}" password="{password}";'

    def _hidden(self, scope: str, name: str, key: str, value: str) -> str:
        """Returns a value as it may be written: a secret as a reference to a variable."""
        public = not is_secret_key(name) or name == _ENDPOINT
        if self.keep_secrets or public or re.fullmatch(r"\$\{(env|file):[^}]*\}", value):
            return value
        variable = self._variable(scope, name)
        while self.variables.get(variable, key) != key:
            variable += "_"
        self.variables[variable] = key
        return f"${{env:{variable}}}"

    # -- logins ----------------------------------------------------------------------------------

    def _jaas(self, scope: str, path: str, names: Mapping[str, str], into: dict[str, Any]) -> None:
        key = names["sasl.jaas.config"]
        value = self._plain(scope, key)
        if value is None:
            return
        if _ONE_REFERENCE.fullmatch(value):
            why = "it refers to a whole login, whose kind is decided here"
            self.keys.refuse(key, f"{why}; write {self._login_line(scope, key)}", grave=True)
            return
        try:
            login = _parsed(value)
        except JaasFaultError as error:
            line = self._login_line(scope, key)
            self.keys.refuse(key, f"Kafka's client does not take it: {error}; write {line}", grave=True)
            return
        kind = login.simple_name
        if kind in ("PlainLoginModule", "ScramLoginModule"):
            self._password(scope, path, key, login, into)
        elif kind == "OAuthBearerLoginModule":
            self._oauth(scope, path, names, login, into)
        elif kind == "Krb5LoginModule":
            self.keys.refuse(
                key,
                "Kerberos needs a librdkafka with libsasl2, which the package confluent-kafka lacks; let the mirror "
                f"log in with SCRAM, on another listener: {self._login_line(scope, key)}",
                grave=True,
            )
        else:
            self.keys.refuse(
                key,
                f"login module {quoted(kind)} has no counterpart; write {self._login_line(scope, key)}",
                grave=True,
            )

    def _password(self, scope: str, path: str, key: str, login: LoginModule, into: dict[str, Any]) -> None:
        """Converts a login with user and password."""
        options = dict(login.options)
        user, password = options.pop("username", ""), options.pop("password", None)
        token = options.pop("tokenauth", "false") if login.simple_name.startswith("Scram") else "false"
        if token.lower() == "true":
            why = "librdkafka does not log in with delegation tokens (tokenauth)"
            line = self._login_line(scope, key, self.keys.value(key))
            self.keys.refuse(key, f"{why}; write the login of a user: {line}", grave=True)
        elif options:
            names = ", ".join(sorted(map(quoted, options)))
            line = self._login_line(scope, key, self.keys.value(key))
            self.keys.refuse(key, f"options {names} have no counterpart; write {line}", grave=True)
        elif not user or password is None:
            missing = "username" if not user else "password"
            line = self._login_line(scope, key, self.keys.value(key))
            self.keys.refuse(key, f"option {missing} is missing; write {line}", grave=True)
        else:
            into["sasl.username"] = user
            into["sasl.password"] = self._hidden(scope, "sasl.password", key, password)
            self.keys.honour(key, f"{path}.sasl.password")

    def _oauth(
        self, scope: str, path: str, names: Mapping[str, str], login: LoginModule, into: dict[str, Any]
    ) -> None:
        """Converts a login with tokens: client credentials of OIDC, or the unsecured tokens of tests."""
        key = names["sasl.jaas.config"]
        if login.options and login.options.keys() <= _UNSECURED.keys():
            into["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
            words = (f"{_UNSECURED[name]}={value}" for name, value in login.options.items())
            into["sasl.oauthbearer.config"] = " ".join(words)
            self.keys.honour(key, f"{path}.sasl.oauthbearer.config")
            return
        handlers = {name: names[name] for name in _OIDC_HANDLERS if name in names}
        foreign = [
            name for name, where in handlers.items() if not _OIDC_CLASSES.fullmatch(self.keys.value(where))
        ]
        found = self._oidc_parts(scope, names, login)
        unknown = _java_stores(login.options)
        for name in login.options:
            if not (name in _OIDC_OPTIONS or name.startswith(_EXTENSION) or _OIDC_TUNING.fullmatch(name)):
                unknown.append(name)
        missing = [ours for ours in _OIDC_NEEDED if ours not in found]
        if foreign or unknown or missing:
            self._refuse_oauth(key, foreign=foreign, unknown=unknown, missing=missing)
            return
        into["sasl.oauthbearer.method"] = "oidc"
        for ours, (value, where) in found.items():
            into[ours] = self._hidden(scope, ours, where, value)
        extensions = [
            f"{name.removeprefix(_EXTENSION)}={value}"
            for name, value in login.options.items()
            if name.startswith(_EXTENSION)
        ]
        if extensions:
            into["sasl.oauthbearer.extensions"] = ",".join(extensions)
        self.keys.honour(key, f"{path}.sasl.oauthbearer.method")
        for where in (*handlers.values(), *(names[name] for name in _OIDC if name in names)):
            self.keys.honour(where, f"{path}.sasl.oauthbearer.method")

    def _oidc_parts(
        self, scope: str, names: Mapping[str, str], login: LoginModule
    ) -> dict[str, tuple[str, str]]:
        """Returns value and key of each part of an OIDC login, by librdkafka's property; Kafka's properties win."""
        found: dict[str, tuple[str, str]] = {}
        for name, ours in _OIDC.items():
            if name in names and (value := self._plain(scope, names[name])) is not None:
                found[ours] = value, names[name]
        for name, value in login.options.items():
            if name in _OIDC_OPTIONS:
                found.setdefault(_OIDC_OPTIONS[name], (value, names["sasl.jaas.config"]))
        return found

    def _refuse_oauth(self, key: str, *, foreign: list[str], unknown: list[str], missing: list[str]) -> None:
        if foreign:
            why = f"the class of {foreign[0]} has no counterpart"
        elif unknown:
            why = f"options {', '.join(map(quoted, unknown))} have no counterpart"
        else:
            why = f"no option or property gives {', '.join(missing)}"
        self.keys.refuse(
            key,
            f"{why}; tokens are requested with client credentials: write {key} = org.apache.kafka.common.security."
            'oauthbearer.OAuthBearerLoginModule required clientId="ID" clientSecret="${env:NAME}"; and '
            f"{key.replace('sasl.jaas.config', _ENDPOINT)} = URL",
            grave=True,
        )

    def _iam(self, path: str, names: Mapping[str, str], into: dict[str, Any]) -> None:
        """Converts MSK's IAM: its brokers take a signed token as well."""
        into["sasl.mechanism"] = "OAUTHBEARER"
        into[OAUTH_CB] = MSK_TOKEN_FUNCTION
        self.keys.honour(names["sasl.mechanism"], f"{path}.{OAUTH_CB}")
        handler = names.get("sasl.client.callback.handler.class", "")
        if self.keys.value(handler) == f"{_IAM}IAMClientCallbackHandler":
            self.keys.honour(handler, f"{path}.{OAUTH_CB}")
        jaas = names.get("sasl.jaas.config", "")
        options = {"region": _region(self.keys.value(names.get("bootstrap.servers", "")))}
        given: Mapping[str, str] = {}
        if jaas:
            try:
                # AWS's examples leave the semicolon out, and its own parser takes that
                login = _parsed(self.keys.value(jaas).rstrip(";") + ";")
            except JaasFaultError:
                login = LoginModule("", {})
            given = login.options
            if login.name != f"{_IAM}IAMLoginModule" or not given.keys() <= _IAM_OPTIONS.keys():
                known = ", ".join(_IAM_OPTIONS)
                self.keys.refuse(jaas, f"only these options have a counterpart: {known}", grave=True)
            else:
                self.keys.honour(jaas, f"{path}.sasl.oauthbearer.config")
        options |= {_IAM_OPTIONS[name]: value for name, value in given.items() if name in _IAM_OPTIONS}
        words = " ".join(f"{name}={value}" for name, value in options.items() if value)
        if words:
            into["sasl.oauthbearer.config"] = words

    def _store(self, path: str, name: str, names: Mapping[str, str], into: dict[str, Any]) -> None:
        key = names[name]
        location = self._plain("", key)
        if location is None:
            return
        kind = self.keys.value(names.get(name.replace("location", "type"), "")).upper()
        kind = kind or {"p12": "PKCS12", "pfx": "PKCS12", "pem": "PEM"}.get(
            location.rsplit(".", 1)[-1].lower(), ""
        )
        if name == "ssl.truststore.location" and kind == "PEM":
            into["ssl.ca.location"] = location
        elif name == "ssl.keystore.location" and kind == "PKCS12":
            into["ssl.keystore.location"] = location
        elif name == "ssl.keystore.location" and kind == "PEM":
            into["ssl.key.location"] = into["ssl.certificate.location"] = location
        else:
            what = "a PEM file" if name == "ssl.truststore.location" else "a PKCS#12 or PEM file"
            self.keys.refuse(key, f"librdkafka cannot read such a store; convert it to {what}", grave=True)
            return
        self.keys.honour(key, path)


def _parsed(value: str) -> LoginModule:
    """Returns a login module; references of ours are part of its values, whatever their signs mean there."""
    found: list[str] = []

    def hide(one: re.Match[str]) -> str:
        found.append(one[0])
        return f"reference_{len(found) - 1}_"

    login = parse_jaas(_ONE_REFERENCE.sub(hide, value))
    shown = {
        name: re.sub(r"reference_(\d+)_", lambda one: found[int(one[1])], text) if found else text
        for name, text in login.options.items()
    }
    return LoginModule(login.name, shown)


def _java_stores(options: Mapping[str, str]) -> list[str]:
    """Returns the options that name a trust store which only Java reads."""
    kinds = [value.upper() for name, value in options.items() if name.endswith("truststore.type")]
    return [
        name
        for name, value in options.items()
        if name.endswith("truststore.location") and "PEM" not in kinds and not value.endswith(".pem")
    ]


def _region(brokers: str) -> str:
    """Returns the AWS region in the names of MSK's brokers; empty if they have none, or several."""
    found = set(_MSK_BROKER.findall(brokers))
    return found.pop() if len(found) == 1 else ""
