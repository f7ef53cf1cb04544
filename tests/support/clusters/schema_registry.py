"""
A schema registry on this machine, with the published rules of Confluent's (test_schema_registry.py is their list).

It takes any text as a schema: compatibility of contents is not its subject.  ``release`` chooses between rules that
differ: 7, which stands for 7.9.2 and 8.0.0 as well, drops mode and level of a subject with its last version that is not
deleted; 8, from 7.9.3 and 8.0.1 on, with the last one that is deleted for good.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

__all__ = ["Refusal", "SchemaRegistry", "StoredVersion"]

Key = tuple[str, int]


class Refusal(Exception):  # noqa: N818  an answer, not a failure
    """An answer with an error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class StoredVersion:
    """A version; ``body`` holds schema, type, references, metadata and rules."""

    schema_id: int
    body: dict[str, Any]
    deleted: bool = False


@dataclass
class _Store:
    versions: dict[str, dict[int, StoredVersion]] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    # highest id of each context
    highest: dict[str, int] = field(default_factory=dict)


def context_of(subject: str) -> str:
    """Returns the context before a subject, such as ``:.east:``; empty for the default one."""
    return subject[: subject.index(":", 2) + 1] if subject.startswith(":.") else ""


def _normal(subject: str) -> str:
    return subject.removeprefix(":.:")


class SchemaRegistry(ThreadingHTTPServer):
    """
    The registry.

    Attributes:
        requests: Method and path of each request.
        allowed: Takes the headers of a request; False answers 401.
        keeps_ids: False: it drops id and version of registrations, as some other registries do.
        failures: Status of the next answers, each once.
        page: Most entries of a list in one answer; 0 for all.
        moved: Address to which each request is redirected; empty for none.
        late: Number of the next reads of a version that do not show it yet, as from a process that lags behind.
    """

    daemon_threads = True

    def __init__(self, *, release: int = 8, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Answerer)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self._release = release
        self._store = _Store()
        self._lock = threading.Lock()
        self.requests: list[tuple[str, str]] = []
        self.allowed: Callable[[Any], bool] = lambda _: True
        self.keeps_ids = True
        self.failures: list[int] = []
        self.page = 0
        self.moved = ""
        self.late = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        """Ends it."""
        self.shutdown()
        self.server_close()

    # -- direct use by tests ---------------------------------------------------------------------

    def add(self, subject: str, schema: str, *, references: Any = (), **more: Any) -> int:
        """Registers a schema as an application does; returns its id."""
        body = {"schema": schema, **more} | ({"references": list(references)} if references else {})
        return int(self.answer("POST", ["subjects", subject, "versions"], {}, body)["id"])

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Answers a request; raises `Refusal`."""
        parts = urlsplit(path)
        query = {key: each[-1] for key, each in parse_qs(parts.query).items()}
        return self.answer(method, [unquote(one) for one in parts.path.strip("/").split("/")], query, body)

    def shown(self, context: str = "") -> dict[str, Any]:
        """Returns what a context holds, by subjects without the context: versions, levels, mode."""
        with self._lock:
            found = {}
            for subject, versions in self._store.versions.items():
                if context_of(subject) == context and versions:
                    found[subject.removeprefix(context)] = {
                        number: (one.schema_id, one.deleted, json.dumps(one.body, sort_keys=True))
                        for number, one in sorted(versions.items())
                    }
            return found

    def level_of(self, subject: str) -> str:
        """Returns the effective level of a subject."""
        return self._inherited(self._store.levels, subject, "BACKWARD")

    def answer(self, method: str, parts: list[str], query: dict[str, str], body: Any) -> Any:
        """Answers a request; raises `Refusal`."""
        with self._lock:
            match method, parts:
                case "GET", ["subjects"]:
                    return self._paged(self._subjects(query), query)
                case "GET", ["subjects", subject, "versions"]:
                    return self._paged(self._numbers(_normal(subject), query), query)
                case "POST", ["subjects", subject, "versions"]:
                    return {"id": self._register(_normal(subject), body)}
                case "GET", ["subjects", subject, "versions", number]:
                    return self._shown(_normal(subject), int(number), query)
                case "DELETE", ["subjects", subject, "versions", number]:
                    return self._delete(_normal(subject), int(number), permanent="permanent" in query)
                case "DELETE", ["subjects", subject]:
                    return self._delete_subject(_normal(subject), permanent="permanent" in query)
                case "GET", ["schemas", "ids", number]:
                    return self._by_id(int(number), context_of(query.get("subject", "")))
                case _, ["mode" | "config" as kind, *rest]:
                    return self._setting(method, kind, _normal(rest[0]) if rest else "", query, body)
        raise Refusal(404, "HTTP 404 Not Found")

    # -- rules -----------------------------------------------------------------------------------

    def _paged(self, found: list[Any], query: dict[str, str]) -> list[Any]:
        first = int(query.get("offset", 0))
        return found[first : first + self.page] if self.page else found[first:]

    def _subjects(self, query: dict[str, str]) -> list[str]:
        prefix = query.get("subjectPrefix", "")
        return sorted(
            subject
            for subject, versions in self._store.versions.items()
            if subject.startswith(prefix)
            and any(query.get("deleted") == "true" or not one.deleted for one in versions.values())
        )

    def _numbers(self, subject: str, query: dict[str, str]) -> list[int]:
        with_deleted = query.get("deleted") == "true"
        versions = self._store.versions.get(subject, {})
        found = [number for number, one in sorted(versions.items()) if with_deleted or not one.deleted]
        if not found:
            raise Refusal(40401, f"Subject '{subject}' not found.")
        return found

    def _shown(self, subject: str, number: int, query: dict[str, str]) -> dict[str, Any]:
        one = self._store.versions.get(subject, {}).get(number)
        if one is not None and self.late > 0:
            self.late -= 1
            one = None
        if one is None or (one.deleted and query.get("deleted") != "true"):
            raise Refusal(40402, f"Version {number} not found.")
        return {"subject": subject, "version": number, "id": one.schema_id, **one.body}

    def _by_id(self, schema_id: int, context: str) -> dict[str, Any]:
        body = self._content(schema_id, context)
        if body is None:
            raise Refusal(40403, f"Schema {schema_id} not found")
        return body

    def _content(self, schema_id: int, context: str) -> dict[str, Any] | None:
        return next(
            (
                one.body
                for subject, versions in self._store.versions.items()
                if context_of(subject) == context
                for one in versions.values()
                if one.schema_id == schema_id
            ),
            None,
        )

    def _register(self, subject: str, given: dict[str, Any]) -> int:
        given = dict(given)
        schema_id, number = int(given.pop("id", -1)), int(given.pop("version", 0))
        if not self.keeps_ids:
            schema_id, number = -1, 0
        self._check_mode(subject, with_id=schema_id >= 0)
        body = {key: value for key, value in given.items() if value not in (None, [], "AVRO")}
        context, versions = context_of(subject), self._store.versions.setdefault(subject, {})
        self._check_uses(body, context)
        if schema_id < 0:
            for one in versions.values():
                if one.body == body and not one.deleted:
                    return one.schema_id
            schema_id = self._id_of(body, context)
        elif self._content(schema_id, context) not in (None, body):
            raise Refusal(42205, f"Overwrite new schema with id {schema_id} is not permitted.")
        there = versions.get(number)
        if there is not None and (there.schema_id, there.body) != (schema_id, body):
            # the rule that makes every write of a mirror suspect
            return schema_id
        number = number or max(versions, default=0) + 1
        for other, one in list(versions.items()):
            if one.deleted and one.schema_id == schema_id and other < number:
                del versions[other]
        versions[number] = StoredVersion(schema_id, body)
        self._store.highest[context] = max(self._store.highest.get(context, 0), schema_id)
        return schema_id

    def _check_uses(self, body: dict[str, Any], context: str) -> None:
        for one in body.get("references", ()):
            if one["version"] not in self._store.versions.get(context + one["subject"], {}):
                raise Refusal(42201, f"no schema {one['subject']} version {one['version']}")

    def _check_mode(self, subject: str, *, with_id: bool) -> None:
        mode = self._inherited(self._store.modes, subject, "READWRITE") if self.keeps_ids else "READWRITE"
        if mode == "READONLY":
            raise Refusal(42205, f"Subject {subject} is in read-only mode")
        if with_id and mode != "IMPORT":
            raise Refusal(42205, f"Subject {subject} is not in import mode")
        if not with_id and mode != "READWRITE":
            raise Refusal(42205, f"Subject {subject} is not in read-write mode")

    def _id_of(self, body: dict[str, Any], context: str) -> int:
        for subject, versions in self._store.versions.items():
            for one in versions.values():
                if context_of(subject) == context and one.body == body:
                    return one.schema_id
        return self._store.highest.get(context, 0) + 1

    def _delete(self, subject: str, number: int, *, permanent: bool) -> int:
        versions = self._store.versions.get(subject, {})
        one = versions.get(number)
        if one is None or (one.deleted and not permanent):
            raise Refusal(40402, f"Version {number} not found.")
        if permanent and not one.deleted:
            raise Refusal(40407, f"Version {number} was not deleted first before being permanently deleted")
        self._check_references(subject, number)
        if permanent:
            del versions[number]
        else:
            one.deleted = True
        self._forget(subject, permanent=permanent)
        return number

    def _delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        versions = self._store.versions.get(subject, {})
        chosen = [number for number, one in sorted(versions.items()) if permanent or not one.deleted]
        if not chosen:
            raise Refusal(40401, f"Subject '{subject}' not found.")
        for number in chosen:
            self._check_references(subject, number)
            if permanent and not versions[number].deleted:
                raise Refusal(40405, f"Subject '{subject}' was not deleted first")
        for number in chosen:
            if permanent:
                del versions[number]
            else:
                versions[number].deleted = True
        self._forget(subject, permanent=permanent)
        return chosen

    def _check_references(self, subject: str, number: int) -> None:
        context = context_of(subject)
        for other, versions in self._store.versions.items():
            for one in versions.values():
                for each in () if one.deleted else one.body.get("references", ()):
                    if context_of(other) == context and (context + each["subject"], each["version"]) == (
                        subject,
                        number,
                    ):
                        raise Refusal(42206, f"One or more references exist to the schema {subject}")

    def _forget(self, subject: str, *, permanent: bool) -> None:
        left = self._store.versions[subject].values()
        if permanent == (self._release >= 8) and all(one.deleted and not permanent for one in left):
            self._store.levels.pop(subject, None)
            self._store.modes.pop(subject, None)

    def _inherited(self, values: dict[str, str], subject: str, default: str) -> str:
        for name in (subject, context_of(subject), ""):
            if name in values:
                return values[name]
        return default

    def _setting(self, method: str, kind: str, subject: str, query: dict[str, str], body: Any) -> Any:
        values = self._store.modes if kind == "mode" else self._store.levels
        default = "READWRITE" if kind == "mode" else "BACKWARD"
        told = "mode" if kind == "mode" else "compatibilityLevel"
        if method == "GET":
            inherits = not subject or query.get("defaultToGlobal") == "true"
            if subject not in values and not inherits:
                raise Refusal(40409 if kind == "mode" else 40408, f"Subject '{subject}' has no own {kind}")
            return {told: self._inherited(values, subject, default)}
        if method == "DELETE":
            if subject not in values:
                raise Refusal(40401, f"Subject '{subject}' not found.")
            return {told: values.pop(subject)}
        value = body["mode" if kind == "mode" else "compatibility"]
        if kind == "mode" and value == "IMPORT":
            self._check_import(subject, force=query.get("force") == "true")
        values[subject] = value
        return body

    def _check_import(self, scope: str, *, force: bool) -> None:
        whole = not scope or scope == context_of(scope)
        if force or self._inherited(self._store.modes, scope, "READWRITE") == "IMPORT":
            return
        meant = [
            versions
            for subject, versions in self._store.versions.items()
            if (subject == scope or (whole and context_of(subject) == scope)) and versions
        ]
        if any(not one.deleted for versions in meant for one in versions.values()):
            raise Refusal(42205, "Cannot import since found existing subjects")
        for versions in meant:
            versions.clear()


class _Answerer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # an answer in two packets would wait 40 ms for an acknowledgement of the first
    disable_nagle_algorithm = True
    wbufsize = -1
    server: SchemaRegistry

    def _do(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(size)
        self.server.requests.append((self.command, self.path))
        if self.server.moved:
            self._send(307, {"message": "moved"}, Location=self.server.moved + self.path)
            return
        if self.server.failures:
            self._send(self.server.failures.pop(0), {"error_code": 50001, "message": "fails as told"})
            return
        if not self.server.allowed(self.headers):
            self._send(401, {"error_code": 401, "message": "Unauthorized"})
            return
        try:
            self._send(200, self.server.call(self.command, self.path, json.loads(data) if data else None))
        except Refusal as refusal:
            status = refusal.code if refusal.code < 1000 else refusal.code // 100
            self._send(status, {"error_code": refusal.code, "message": str(refusal)})

    do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815  named by the standard library

    def _send(self, status: int, body: Any, **headers: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  named by the standard library
        del format, args
