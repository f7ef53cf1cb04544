"""
Requests to a schema registry: the calls of Confluent's REST API that a mirror needs.

Each call is one request.  A request that got no answer is repeated: every write of a mirror may be done twice.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import RegistryError
from eomirror.registry.state import SchemaContent, prefix_of, qualified, unqualified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config.schemas import RegistryEndpoint
    from eomirror.registry.state import RegisteredVersion

__all__ = ["RegistryClient"]

Entry = TypeVar("Entry", str, int)

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 30.0
_REPEATED = (429, 502, 503, 504)
_MOST_TEXT = 200
# share of a token's life after which the next one is fetched
_TOKEN_SHARE = 0.8
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _REFUSED = 401, 403, 404, 400
# no registry has shorter pages; of a list that is shorter, no next page is asked for
_FULL_PAGE = 100
# what a header can carry
_TOKEN = re.compile(r"[\x21-\x7e]+")
# a path that is none of a registry's is answered by 404 as well, and must not pass for a subject that does not exist
_NO_CODE = 10_000


class RegistryClient:
    """
    Client of one context of a registry.  Thread-safe.

    Reason for its size: one method for each request.

    Args:
        endpoint: The registry.
        name: Name for messages, such as ``schema registry of east``.
        context: Context; empty for the default one.
        clock: Measures the age of tokens.
    """

    def __init__(
        self, endpoint: RegistryEndpoint, *, name: str, context: str = "", clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._endpoint = endpoint
        self._name = name
        self._context = context
        self._clock = clock
        self._lock = threading.Lock()
        self._urls = list(endpoint.urls)
        self._token = ""
        self._token_until: Deadline | None = None
        self._tls = self._tls_context()
        self._pools = {url: self._pool(url) for url in self._urls}

    @property
    def name(self) -> str:
        """Name for messages, with the address."""
        return f"{self._name} ({self._urls[0]})"

    def close(self) -> None:
        """Closes all connections."""
        for pool in self._pools.values():
            pool.clear()

    # -- reading ---------------------------------------------------------------------------------

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Returns the subjects of the context; with ``deleted``, also those whose versions are all soft-deleted."""
        prefix = prefix_of(self._context)
        found = self._listed("/subjects", str, subjectPrefix=prefix or None, deleted=deleted or None)
        names = [unqualified(each, self._context) for each in found]
        return sorted(name for name in names if name)

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Returns the numbers of the versions of a subject; none if it does not exist."""
        path = f"/subjects/{self._quoted(subject)}/versions"
        return sorted(self._listed(path, int, missing=[], deleted=deleted or None))

    def version(self, subject: str, number: int) -> tuple[int, SchemaContent] | None:
        """Returns id and content of a version, also of a soft-deleted one; None if it does not exist."""
        path = f"/subjects/{self._quoted(subject)}/versions/{number}"
        found = self._request("GET", path, missing=None, deleted=True)
        if found is None:
            return None
        try:
            if int(found["version"]) != number:
                return None
            return int(found["id"]), SchemaContent.of(found, self._context)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._unreadable(path) from error

    def content(self, schema_id: int) -> SchemaContent | None:
        """Returns what an id stands for in this context; None if it stands for nothing."""
        path = f"/schemas/ids/{schema_id}"
        found = self._request("GET", path, missing=None, subject=prefix_of(self._context) or None)
        return self._content(found, path)

    def content_of_guid(self, guid: str) -> SchemaContent | None:
        """Returns what the GUID of a schema stands for; None if it stands for nothing."""
        path = f"/schemas/guids/{guid}"
        return self._content(self._request("GET", path, missing=None), path)

    def level(self, subject: str = "", *, effective: bool = False) -> str | None:
        """Returns the compatibility level of a subject, or of the context without one; None if it has none."""
        found = self._setting("config", subject, effective=effective)
        level = None if found is None else found.get("compatibilityLevel") or found.get("compatibility")
        # a configuration may have other fields only
        return None if level is None else str(level)

    def mode(self, subject: str = "", *, effective: bool = False) -> str | None:
        """Returns the mode of a subject, or of the context without one; None if it has none."""
        found = self._setting("mode", subject, effective=effective)
        return None if found is None else str(found.get("mode"))

    # -- writing ---------------------------------------------------------------------------------

    def register(self, subject: str, number: int, version: RegisteredVersion) -> None:
        """Registers a version with its id and its number."""
        path = f"/subjects/{self._quoted(subject)}/versions"
        body = {**version.content.plain(), "id": version.schema_id, "version": number}
        self._request("POST", path, body)

    def delete(self, subject: str, number: int, *, permanent: bool = False) -> None:
        """Deletes a version; what is deleted already is no error."""
        path = f"/subjects/{self._quoted(subject)}/versions/{number}"
        self._request("DELETE", path, missing=None, permanent=permanent or None)

    def set_mode(self, subject: str, mode: str | None, *, force: bool = False) -> None:
        """Sets the mode of a subject, or of the context; None removes the subject's own."""
        path = self._setting_path("mode", subject)
        if mode is None:
            self._request("DELETE", path, missing=None)
        else:
            self._request("PUT", path, {"mode": mode}, force=force or None)

    def set_level(self, subject: str, level: str | None) -> None:
        """Sets the compatibility level of a subject, or of the context; None removes the subject's own."""
        path = self._setting_path("config", subject)
        if level is None:
            self._request("DELETE", path, missing=None)
        else:
            self._request("PUT", path, {"compatibility": level})

    # -- inside ----------------------------------------------------------------------------------

    def _quoted(self, subject: str) -> str:
        return quote(qualified(subject, self._context), safe="")

    def _setting_path(self, kind: str, subject: str) -> str:
        name = self._quoted(subject)
        return f"/{kind}/{name}" if name else f"/{kind}"

    def _setting(self, kind: str, subject: str, *, effective: bool) -> Mapping[str, Any] | None:
        path = self._setting_path(kind, subject)
        found = self._request("GET", path, missing=None, defaultToGlobal=effective or None)
        if found is not None and not isinstance(found, dict):
            raise self._unreadable(path)
        return found

    def _content(self, found: Any, path: str) -> SchemaContent | None:
        if found is None:
            return None
        try:
            return SchemaContent.of(found, self._context)
        except (TypeError, ValueError, AttributeError) as error:
            raise self._unreadable(path) from error

    def _listed(self, path: str, kind: type[Entry], *, missing: Any = ..., **query: Any) -> list[Entry]:
        """Returns a whole list, page by page: a registry answers 20,000 entries at once, or as its operator set it."""
        found: dict[Entry, None] = {}
        while True:
            page = self._request("GET", path, missing=missing, offset=len(found) or None, **query)
            if not isinstance(page, list) or not all(isinstance(each, kind) for each in page):
                raise self._unreadable(path)
            before = len(found)
            found |= dict.fromkeys(page)
            # a registry without pages repeats its list
            if len(page) < _FULL_PAGE or len(found) == before:
                return list(found)

    def _request(self, method: str, path: str, body: Any = None, *, missing: Any = ..., **query: Any) -> Any:
        """
        Returns the answer to a request.

        Args:
            method: Method of HTTP.
            path: Path below the address.
            body: JSON of the request.
            missing: Answer for what does not exist; by default that is an error.
            query: Parameters; None for those that are left out.

        Raises:
            RegistryError: The registry does not answer, or refuses the request.
        """
        told = {
            key: str(value).lower() if value is True else value
            for key, value in query.items()
            if value is not None
        }
        target = f"{path}?{urlencode(told)}" if told else path
        data = None if body is None else json.dumps(body).encode()
        answer = self._answered(method, target, data)
        if answer.status == _UNAUTHORIZED and self._endpoint.get("bearer.auth.client.id"):
            # it may have been revoked before its time
            self._token_until = None
            answer = self._answered(method, target, data)
        try:
            found = json.loads(answer.data) if answer.data else None
        except (ValueError, RecursionError):
            found = ...
        if answer.status < _REFUSED and found is not ... and (found is not None or method != "GET"):
            return found
        code = found.get("error_code", 0) if isinstance(found, dict) else 0
        code = code if isinstance(code, int) else 0
        if answer.status == _NOT_FOUND and missing is not ... and code > _NO_CODE:
            return missing
        raise self._refusal(method, target, answer.status, code, found)

    def _answered(self, method: str, target: str, data: bytes | None) -> urllib3.BaseHTTPResponse:
        """Sends a request to the first address that answers."""
        failed: Exception | None = None
        urls = list(self._urls)
        for url in urls:
            try:
                answer = self._pools[url].request(
                    method,
                    url + target,
                    body=data,
                    headers=self._headers(),
                    timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
                    retries=urllib3.Retry(
                        total=2,
                        status_forcelist=_REPEATED,
                        allowed_methods=None,
                        backoff_factor=0.1,
                        redirect=2,
                        raise_on_status=False,
                        respect_retry_after_header=False,
                    ),
                )
            except (urllib3.exceptions.HTTPError, OSError) as error:
                failed = error
                continue
            if answer.status in _REPEATED and url != urls[-1]:
                continue
            if url != self._urls[0]:
                # the next request begins with the address that answered
                self._urls = [url, *(each for each in self._urls if each != url)]
            return answer
        reason = str(getattr(failed, "reason", None) or failed).split(":", 1)[-1].strip()
        raise RegistryError(
            f"{self.name} does not answer: {reason[:_MOST_TEXT]}",
            fix="check url, network and certificates of the registry under `schemas`",
        ) from failed

    def _refusal(self, method: str, target: str, status: int, code: int, found: Any) -> RegistryError:
        said = str(found.get("message", "")) if isinstance(found, dict) else "no answer of a schema registry"
        message = f"{self.name} refuses {method} {target.partition('?')[0]}: {status} {said}"[
            : 2 * _MOST_TEXT
        ]
        fix = "look into the registry's log"
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            fix = "check the login of the registry under `schemas`, and its rights"
        elif code < _NO_CODE:
            fix = "check `url`: is it the address of a schema registry?"
        return RegistryError(message, fix=fix, code=code or status)

    def _unreadable(self, path: str) -> RegistryError:
        return RegistryError(
            f"{self.name}: the answer to {path} is not that of a schema registry", fix="check `url`"
        )

    # -- connection and login --------------------------------------------------------------------

    def _tls_context(self) -> ssl.SSLContext | None:
        get = self._endpoint.get
        if not any(url.startswith("https:") for url in (*self._urls, get("bearer.auth.issuer.endpoint.url"))):
            return None
        try:
            context = ssl.create_default_context(cafile=get("ssl.ca.location") or None)
            if certificate := get("ssl.certificate.location"):
                context.load_cert_chain(
                    certificate, get("ssl.key.location"), password=get("ssl.key.password") or ""
                )
        except (OSError, ssl.SSLError) as error:
            raise RegistryError(
                f"{self.name}: its certificate files cannot be used: {error}",
                fix="check ssl.ca.location, ssl.certificate.location, ssl.key.location and ssl.key.password",
            ) from error
        return context

    def _pool(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        proxy = getproxies().get(parts.scheme, "")
        tls: dict[str, Any] = {} if self._tls is None else {"ssl_context": self._tls}
        if proxy and not proxy_bypass(parts.hostname or ""):
            proxy = proxy if "://" in proxy else f"http://{proxy}"
            return urllib3.ProxyManager(proxy, **tls)
        return urllib3.PoolManager(**tls)

    def _headers(self) -> dict[str, str]:
        get = self._endpoint.get
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json", "Content-Type": _MEDIA_TYPE}
        if login := get("basic.auth.user.info"):
            headers["Authorization"] = _basic(login)
        elif token := get("bearer.auth.token") or self._oauth_token():
            headers["Authorization"] = f"Bearer {token}"
        for name, key in (
            ("target-sr-cluster", "bearer.auth.logical.cluster"),
            ("Confluent-Identity-Pool-Id", "bearer.auth.identity.pool.id"),
        ):
            if value := get(key):
                headers[name] = value
        return headers

    def _oauth_token(self) -> str:
        """Returns a token by client credentials (RFC 6749, 4.4), the same one until most of its life has passed."""
        get = self._endpoint.get
        url = get("bearer.auth.issuer.endpoint.url")
        if not url:
            return ""
        with self._lock:
            if self._token_until is not None and not self._token_until.passed:
                return self._token
            form = {"grant_type": "client_credentials"} | (
                {"scope": get("bearer.auth.scope")} if get("bearer.auth.scope") else {}
            )
            login = f"{quote(get('bearer.auth.client.id'), safe='')}:{quote(get('bearer.auth.client.secret'), safe='')}"
            try:
                answer = self._pool(url).request(
                    "POST",
                    url,
                    body=urlencode(form).encode(),
                    headers={
                        "Authorization": _basic(login),
                        "Content-Type": "application/x-www-form-urlencoded",
                        "Accept": "application/json",
                    },
                    timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
                    retries=urllib3.Retry(total=2, allowed_methods=None, redirect=0),
                )
                found = json.loads(answer.data)
                token, seconds = str(found["access_token"]), float(found.get("expires_in") or 60)
                if not _TOKEN.fullmatch(token):
                    # the error of a header that cannot be sent would show it
                    raise ValueError("malformed token")  # noqa: TRY301  as every other fault of the answer
            except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError, TypeError) as error:
                # the answer may contain a token, so it is not shown
                raise RegistryError(
                    f"{self.name}: the token endpoint gives no token ({type(error).__name__})",
                    fix="check bearer.auth.issuer.endpoint.url, bearer.auth.client.id and its secret",
                ) from None
            self._token, self._token_until = token, Deadline(_TOKEN_SHARE * seconds, self._clock)
            return token


def _basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()
