"""
Loads a user's token function for OAUTHBEARER: ``oauth_cb: module:function`` in a cluster's section.

A file cannot contain a function, and Spark's workers need it too.  So the configuration contains its name, and every
process that logs in imports it: driver and workers must be able to import the module.

Its signature is that of confluent-kafka's ``oauth_cb``: it gets the text of ``sasl.oauthbearer.config`` and returns a
token and its expiry time (seconds since 1970), optionally followed by a principal and SASL extensions (KIP-342).
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

#: Name of the property, as in confluent-kafka.
OAUTH_CB = "oauth_cb"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*")
_IMPORTABLE = (
    "write MODULE:FUNCTION, with a module that the driver and Spark's workers can import: installed, on PYTHONPATH, "
    "or passed to spark-submit with --py-files"
)


@dataclass(frozen=True, slots=True)
class TokenFunction:
    """
    A token function, imported in this process.

    Attributes:
        name: ``module:function``.
    """

    name: str
    function: Callable[[str], Any] = field(repr=False, compare=False)

    @classmethod
    def load(cls, name: str) -> TokenFunction:
        """
        Imports a function.

        Args:
            name: ``module:function``.

        Raises:
            ClusterError: The module cannot be imported, or has no such function.
        """
        if not _NAME.fullmatch(name):
            raise ClusterError(f"{OAUTH_CB} is not of the form MODULE:FUNCTION", fix=_IMPORTABLE)
        module, _, path = name.partition(":")
        try:
            found = attrgetter(path)(importlib.import_module(module))
        except Exception as raised:  # noqa: BLE001  whatever a foreign module raises while it is imported
            # the text of the exception may contain a secret
            raise ClusterError(
                f"{OAUTH_CB}: {name} cannot be imported ({type(raised).__name__})", fix=_IMPORTABLE
            ) from None
        if not callable(found):
            raise ClusterError(
                f"{OAUTH_CB}: {name} is a {type(found).__name__}, not a function", fix=_IMPORTABLE
            )
        return cls(name, found)

    def __str__(self) -> str:
        return self.name

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """
        Calls the function; returns token, expiry time (seconds since 1970), principal and SASL extensions.

        Args:
            config: ``sasl.oauthbearer.config``.
        """
        token, expires, *more = self.function(config)
        principal = more[0] if more else ""
        extensions: Mapping[str, str] = more[1] if len(more) > 1 else {}
        return token, float(expires), principal or "", dict(extensions or {})


def function_fault(value: object) -> tuple[str, str]:
    """Checks a name without importing it; returns message and fix, or empty texts."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return "", ""
    return "not of the form MODULE:FUNCTION", _IMPORTABLE


def name_of(function: Callable[..., object]) -> str | None:
    """
    Returns the name by which other processes can import a function; None if they cannot.

    A lambda, a nested function, a bound method and functions of ``__main__`` exist in one process only.
    """
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    name = f"{module}:{path}"
    if module in {None, "__main__"} or not _NAME.fullmatch(name):
        return None
    try:
        return name if TokenFunction.load(name).function is function else None
    except ClusterError:
        return None
