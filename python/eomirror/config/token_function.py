"""
A user's own source of tokens for OAUTHBEARER: ``oauth_cb: module:function`` in a cluster's section.

A function cannot stand in a file, and Spark's workers must have it too.  So the configuration holds its name, and
every process that logs in imports it: the module has to be importable by the driver and by the workers.

It is called as confluent-kafka calls its own ``oauth_cb``, with the text of ``sasl.oauthbearer.config``, and gives a
token and the time at which that expires (seconds since 1970); and, if it likes, a principal and SASL extensions
(KIP-342).
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from eomirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["OAUTH_CB", "TokenFunction", "function_fault", "name_of"]

#: The property, as confluent-kafka calls it.
OAUTH_CB = "oauth_cb"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*")
_IMPORTABLE = (
    "write MODULE:FUNCTION, of a module that the driver and Spark's workers can import: installed, on PYTHONPATH, "
    "or given to spark-submit with --py-files"
)


@dataclass(frozen=True, slots=True)
class TokenFunction:
    """
    A function that gives tokens, imported in this process.

    Attributes:
        name: ``module:function``.
        function: What was imported.
    """

    name: str
    function: Callable[[str], Any] = field(repr=False, compare=False)

    @classmethod
    def load(cls, name: str) -> TokenFunction:
        """
        Import a function.

        Args:
            name: ``module:function``.

        Raises:
            ClusterError: There is none of this name, or its module cannot be imported.
        """
        if not _NAME.fullmatch(name):
            raise ClusterError(f"{OAUTH_CB} is no name of a function", fix=_IMPORTABLE)
        module, _, path = name.partition(":")
        try:
            found = attrgetter(path)(importlib.import_module(module))
        except Exception as raised:  # noqa: BLE001  whatever a foreign module raises while it is imported
            # the text may hold what it was to hide
            raise ClusterError(
                f"{OAUTH_CB}: {name} cannot be imported ({type(raised).__name__})", fix=_IMPORTABLE
            ) from None
        if not callable(found):
            raise ClusterError(
                f"{OAUTH_CB}: {name} is a {type(found).__name__}, no function", fix=_IMPORTABLE
            )
        return cls(name, found)

    def __str__(self) -> str:
        return self.name

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """
        Ask for a token: its text, when it expires, a principal and SASL extensions.

        Args:
            config: ``sasl.oauthbearer.config``.
        """
        token, expires, *more = self.function(config)
        principal = more[0] if more else ""
        extensions: Mapping[str, str] = more[1] if len(more) > 1 else {}
        return token, float(expires), principal or "", dict(extensions or {})


def function_fault(value: object) -> tuple[str, str]:
    """What is wrong with a name, and what would be right, without importing anything; empty texts for nothing."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return "", ""
    return "this is no name of a function", _IMPORTABLE


def name_of(function: Callable[..., object]) -> str | None:
    """
    The name by which other processes find a function; None where they cannot.

    A lambda, a function within a function, a bound method and all of ``__main__`` exist in one process only.

    Args:
        function: What a program gave as plain value.
    """
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    name = f"{module}:{path}"
    if module in {None, "__main__"} or not _NAME.fullmatch(name):
        return None
    try:
        return name if TokenFunction.load(name).function is function else None
    except ClusterError:
        return None
