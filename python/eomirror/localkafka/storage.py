"""
Formats the storage of new brokers with Kafka's own StorageTool.

https://kafka.apache.org/43/operations/kraft/#provisioning-nodes
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
from typing import TYPE_CHECKING

from eomirror.clock import new_token
from eomirror.errors import MirrorError
from eomirror.jvm import archive_arguments, find_java
from eomirror.localkafka.jars import kafka_archive

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eomirror.localkafka.spec import ClusterSpec

__all__ = ["format_storage", "new_cluster_id", "read_cluster_id", "scram_argument"]

_ITERATIONS = 4096


def new_cluster_id() -> str:
    """A random cluster id: 16 bytes in URL-safe Base64 without padding, as Kafka writes them."""
    # Kafka refuses an id that starts with a dash in its own command lines, so the first bits are fixed
    raw = b"e" + bytes.fromhex(new_token())[:15]
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def read_cluster_id(data: Path) -> str:
    """
    Cluster id of formatted storage; empty when ``data`` is not formatted.

    Args:
        data: A folder of ``log.dirs``.
    """
    meta = data / "meta.properties"
    if not meta.is_file():
        return ""
    rows = dict(line.split("=", 1) for line in meta.read_text("utf-8").splitlines() if "=" in line)
    return rows.get("cluster.id", "")


def scram_argument(user: str, password: str, salt: bytes) -> str:
    """
    The argument that makes StorageTool create a SCRAM-SHA-512 user.

    It holds the salted password (RFC 5802, ``Hi``), not the password: arguments of a process are public.
    """
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    encoded = [base64.b64encode(part).decode("ascii") for part in (salt, salted)]
    return f'SCRAM-SHA-512=[name={user},iterations={_ITERATIONS},salt="{encoded[0]}",saltedpassword="{encoded[1]}"]'


def format_storage(
    spec: ClusterSpec,
    class_path: str,
    property_files: list[Path],
    *,
    cluster_id: str,
    users: Mapping[str, str],
) -> None:
    """
    Format the storage of all brokers of a cluster, side by side.

    Args:
        spec: The cluster.
        class_path: Of Kafka.
        property_files: ``server.properties`` of each broker.
        cluster_id: As of `new_cluster_id`.
        users: SCRAM users and their passwords.

    Raises:
        MirrorError: StorageTool refused; its own words are in the message.
    """
    options = [part for name, level in spec.features.items() for part in ("--feature", f"{name}={level}")]
    for user, password in users.items():
        # the same salt on every broker: all of them must bring the same credential to the first quorum
        salt = hashlib.sha256(f"{cluster_id}/{user}".encode()).digest()
        options += ["--add-scram", scram_argument(user, password, salt)]
    jvm = [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    jvm += archive_arguments(*kafka_archive(spec.kafka_version, class_path))
    tool = [
        *jvm,
        "-cp",
        class_path,
        "kafka.tools.StorageTool",
        "format",
        "--cluster-id",
        cluster_id,
        *options,
    ]
    children = [
        subprocess.Popen(
            [*tool, "--config", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for file in property_files
    ]
    said = [child.communicate()[0] for child in children]
    for child, text in zip(children, said, strict=True):
        if child.returncode != 0:
            raise MirrorError(
                f"cluster {spec.name}: the storage could not be formatted: {_without_stack(text)}",
                fix="check the properties and features that were given for this cluster, and its data folder",
            )


def _without_stack(text: str) -> str:
    """Returns the output of a Java program without its stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return "\n  ".join(lines[-4:])[:800]
