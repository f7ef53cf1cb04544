"""
Refuses a Spark context whose connections are open to others.

The closure of a lane's task goes from the driver to an executor through Spark's connections, with the run's token and
the passwords that are written in the configuration.  By default Spark neither authenticates nor encrypts these
connections (https://spark.apache.org/docs/latest/security.html), under any cluster manager.  On YARN and Kubernetes it
distributes a secret of the application, but only with ``spark.authenticate=true``.

A local master listens as well, on the loopback interface, which every user of the machine reaches: the closure is a
block that the driver gives to any process that asks for it.  Spark makes the secret of a local master itself, new for
each context, and keeps it in memory, so `local_transport` switches authentication on without a secret.  Encryption adds
nothing there: other users cannot read what passes the loopback interface.

Encryption is AES (``spark.network.crypto.enabled``) or TLS (``spark.ssl.rpc.enabled``, which Spark prefers if both are
set).  TLS alone does not authenticate the executor to the driver, so authentication is needed in both cases.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from eomirror.errors import ConfigError, Fault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DEFAULT_MASTER",
    "check_slots",
    "check_transport",
    "is_authenticated",
    "is_local",
    "local_transport",
    "slots",
]

#: Unused slots cost nothing, and the slots of a local master cannot grow.
DEFAULT_MASTER = "local[256]"

_LOCAL = re.compile(r"local(?:\[(?P<slots>\*|\d+)(?:,\s*\d+)?\])?")


def is_local(master: str) -> bool:
    """Returns True if all workers of this master are on the driver's machine, as children of its JVM."""
    return _LOCAL.fullmatch(master) is not None


def check_slots(master: str, lanes: int) -> None:
    """
    Refuses a local master with fewer slots than lanes; the slots of a cluster may grow.

    Raises:
        UsageError: Some lanes would never run.
    """
    found = _LOCAL.fullmatch(master)
    if found is None:
        return
    slots = found["slots"] or "1"
    count = (os.cpu_count() or 1) if slots == "*" else int(slots)
    if count < lanes:
        raise UsageError(
            f"spark.master={master} has {count} slots for {lanes} lanes, and each lane occupies a slot",
            fix=f"use {DEFAULT_MASTER} (unused slots cost nothing), or fewer lanes",
        )


def slots(settings: Mapping[str, str]) -> int | None:
    """
    Returns the tasks that can work at the same time; None if the settings do not tell.

    Those of a local master are limited by the CPUs of this machine, whatever number of slots it has.
    """

    def number(name: str, default: int) -> int:
        text = settings.get(name, "")
        return int(text) if text.isdecimal() and int(text) else default

    found = _LOCAL.fullmatch(settings.get("spark.master", ""))
    if found is not None:
        cpus = os.cpu_count() or 1
        return cpus if found["slots"] == "*" else min(cpus, int(found["slots"] or 1))
    cores = number(
        "spark.cores.max", number("spark.executor.instances", 0) * number("spark.executor.cores", 1)
    )
    return cores // number("spark.task.cpus", 1) or None


_AUTHENTICATE = "spark.authenticate"
_ENCRYPT = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def local_transport(master: str) -> dict[str, str]:
    """Returns the settings that close the connections of a local master; none for another one."""
    return {_AUTHENTICATE: "true"} if is_local(master) else {}


def is_authenticated(settings: Mapping[str, str]) -> bool:
    """Returns True if a process without the secret of the context gets nothing from it."""
    return _is_on(settings, _AUTHENTICATE)


def check_transport(settings: Mapping[str, str], master: str) -> None:
    """
    Refuses connections that are not authenticated or, under a master other than a local one, not encrypted.

    Args:
        settings: Settings of the Spark context, with the defaults of its installation.
        master: Master of the context.

    Raises:
        ConfigError: Names each missing setting.
    """
    faults = []
    local = is_local(master)
    if not is_authenticated(settings):
        also = (
            "; under a local master Spark makes the secret itself"
            if local
            else "; a standalone master also needs spark.authenticate.secret, the same on the master, the workers and "
            "the driver"
        )
        faults.append(
            Fault(
                _AUTHENTICATE,
                f"is off, so any process that reaches the driver of {master} can receive tasks, which contain the "
                "run's token and passwords",
                f"set {_AUTHENTICATE}=true{also}",
            )
        )
    if not local and not any(_is_on(settings, name) for name in _ENCRYPT):
        faults.append(
            Fault(
                _ENCRYPT[0],
                f"is off, so tasks are sent to the workers of {master} unencrypted",
                f"set {_ENCRYPT[0]}=true, or {_ENCRYPT[1]}=true with its key stores",
            )
        )
    if faults:
        raise ConfigError(faults, source="spark")


def _is_on(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "").strip().lower() == "true"
