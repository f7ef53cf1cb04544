"""
The command line of the driver's JVM, kept so that a start runs it without ``spark-submit``.

``spark-submit`` runs shells, a Python and a JVM of its own to print that command line, for half a second or more.  The
command of a JVM that it has started is read from ``/proc`` and kept beside the class archive, under the same name: it
belongs to one Java and one list of jars.  What differs between two starts stands in it as a placeholder.

It is used for Spark as pip installs it (`is_usual_start`).  Where a configuration folder, a variable or a setting could
make another command, ``spark-submit`` makes it; and so it does where the kept one does not start.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from eomirror.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KnownCommand", "StartedJvm", "is_usual_start"]

log = structlog.get_logger(__name__)

# variables SPARK_* that decide nothing about the command; the last two are set by a context for its workers
_HARMLESS: Final = frozenset(
    {
        "SPARK_HOME",
        "SPARK_LOCAL_DIRS",
        "SPARK_LOCAL_IP",
        "SPARK_USER",
        "SPARK_AUTH_SOCKET_TIMEOUT",
        "SPARK_BUFFER_SIZE",
    }
)
_DECIDING: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
# the one setting that may differ; with any other of a start, ``spark-submit`` makes the command
_MEMORY: Final = "spark.driver.memory"
# what the scripts add to the environment, and what shells leave in it
_ADDED: Final = frozenset(
    {
        "SPARK_HOME",
        "SPARK_ENV_LOADED",
        "SPARK_CONF_DIR",
        "SPARK_SCALA_VERSION",
        "SPARK_BEELINE_OPTS",
        "PYTHONHASHSEED",
    }
)
_OF_SHELLS: Final = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
_OF_GATEWAYS: Final = {"SPARK_CONNECT_MODE": "0"}
_CONNECTION: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_LOOK_SECONDS = 0.01
_BY_OTHERS = 0o022


def is_usual_start(spark_home: str) -> bool:
    """Returns True if no variable and no configuration folder decides about the command of the driver's JVM."""
    decides = [name for name in os.environ if name.startswith("SPARK_") and name not in _HARMLESS]
    return (
        Path("/proc/self/cmdline").is_file()
        and not decides
        and not any(name in os.environ for name in _DECIDING)
        and not Path(spark_home, "conf").exists()
    )


class StartedJvm:
    """
    A JVM that runs, with the address of its gateway.

    Args:
        process: The JVM.
        answer: What it has written for its parent: port, length of the secret, and the secret.
    """

    def __init__(self, process: subprocess.Popen[bytes], answer: bytes) -> None:
        self.process = process
        port, length = struct.unpack_from(">ii", answer)
        self.variables = {
            "PYSPARK_GATEWAY_PORT": str(port),
            "PYSPARK_GATEWAY_SECRET": answer[8 : 8 + length].decode(),
        }


class KnownCommand:
    """
    The command of a JVM that started before.

    Args:
        path: File that has it, or gets it.
        launch: Settings that take effect at the start of the JVM.
        folder: Folder of this start; its arguments are files in it.
    """

    def __init__(self, path: Path, launch: Mapping[str, str], folder: Path) -> None:
        self._path = path
        self._usable = launch.keys() == {_MEMORY}
        self._values = {"{folder}": str(folder), "-Xmx{memory}": f"-Xmx{launch.get(_MEMORY, '')}"}

    def start(self, options: Mapping[str, Any]) -> StartedJvm | None:
        """
        Starts a JVM and waits for its gateway; None if no command is known, or it does not start.

        Args:
            options: Of `subprocess.Popen`.
        """
        kept = self._read()
        if kept is None:
            return None
        with tempfile.TemporaryDirectory(prefix="eomirror-") as place:
            connection = Path(place, "gateway")
            variables = {**kept["variables"], **_OF_GATEWAYS, _CONNECTION: str(connection)}
            try:
                process = subprocess.Popen(
                    kept["command"], stdin=subprocess.PIPE, env={**os.environ, **variables}, **options
                )
            except OSError as error:
                self._forget(str(error))
                return None
            # A program that ends meanwhile removes the folder.  The JVM then fails to write there, and its gateway
            # lives on: it would look for the end of the program once it had written.
            atexit.register(process.kill)
            # the JVM renames it into place
            while process.poll() is None and not connection.is_file():
                SYSTEM_CLOCK.sleep(_LOOK_SECONDS)
            atexit.unregister(process.kill)
            if connection.is_file():
                return StartedJvm(process, connection.read_bytes())
        process.communicate()
        self._forget(f"exit code {process.returncode}")
        return None

    def keep(self, pid: int) -> None:
        """Keeps the command of a JVM that ``spark-submit`` has started, if nothing in it is unexpected."""
        if not self._usable:
            return
        with contextlib.suppress(OSError, UnicodeDecodeError):
            command = _words(Path(f"/proc/{pid}/cmdline"))
            found = dict(word.partition("=")[::2] for word in _words(Path(f"/proc/{pid}/environ")))
            expected = {*_OF_SHELLS, *_OF_GATEWAYS, _CONNECTION, "PYSPARK_SUBMIT_ARGS"}
            variables = {
                name: value
                for name, value in found.items()
                if os.environ.get(name) != value and name not in expected
            }
            if not variables.keys() <= _ADDED or not all(
                any(value in word for word in command) for value in self._values.values()
            ):
                return
            for placeholder, value in self._values.items():
                command = [word.replace(value, placeholder) for word in command]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as file:
                json.dump({"command": command, "variables": variables}, file)
            made = Path(file.name)
            # an image's is made by root
            made.chmod(0o644)
            made.replace(self._path)

    def _read(self) -> dict[str, Any] | None:
        """Returns the command with this start's values, and its variables; None if there is none to trust."""
        if not self._usable:
            return None
        try:
            owned = self._path.stat()
            if owned.st_uid not in {0, os.getuid()} or owned.st_mode & _BY_OTHERS:
                return None
            kept: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
            command = kept["command"]
            for placeholder, value in self._values.items():
                command = [word.replace(placeholder, value) for word in command]
            return {"command": command, "variables": dict(kept["variables"])}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _forget(self, reason: str) -> None:
        log.debug("known_command_forgotten", reason=reason)
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def _words(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\0")[:-1]
