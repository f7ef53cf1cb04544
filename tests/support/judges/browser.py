"""Chromium through its debugging pipe: pages, sizes, colours, keys, screenshots, and the names that a reader hears."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = shutil.which("chromium")
_PATIENCE_SECONDS = 30.0
# Chromium expects the two pipes there
_AT_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in enumerate(ends, 3):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """
    One page in a headless Chromium; the end of the ``with`` block ends the process.

    Args:
        profile: Folder of the profile.

    Attributes:
        said: Messages of the console, refused resources and failed scripts since the last `visit`.
    """

    def __init__(self, profile: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self._number = 0
        self._rest = b""
        self._session = ""
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [
                sys.executable, "-c", _AT_3_AND_4, str(to_read), str(to_write), str(CHROMIUM), "--headless",
                "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}",
                "--hide-scrollbars", "about:blank",
            ],
            pass_fds=(to_read, to_write), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)

    def __enter__(self) -> Self:
        try:
            page = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self._call(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._session = ""
            self._call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def show_as(self, width: int, height: int, *, dark: bool = False) -> None:
        """Sets the size of the window, below 500 that of a phone, and the colours that the reader prefers."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 500,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def visit(self, url: str) -> float:
        """Loads a page; returns the seconds from the request to the drawn page."""
        self.said.clear()
        self._call("Page.navigate", url=url)
        self.wait_for("location.href != 'about:blank' && document.readyState == 'complete'")
        times = "performance.getEntriesByType('navigation')[0]"
        return float(self.run(f"{times}.domContentLoadedEventEnd - {times}.startTime")) / 1000

    def run(self, script: str) -> Any:
        """Returns the value of a script."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Waits until a script is true, also over a change of pages."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            with contextlib.suppress(RuntimeError):
                if self.run(condition):
                    return
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.01)

    def press(self, key: str) -> None:
        """Presses a key: ``Tab`` or ``Enter``."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                **(text if kind == "keyDown" else {}),
            )  # fmt: skip

    def names(self) -> list[tuple[str, str]]:
        """Returns role and accessible name of each node that a screen reader finds."""
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        return [
            (str(node.get("role", {}).get("value")), str(node.get("name", {}).get("value") or ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Writes a picture of the page, or of the window."""
        found = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        sent: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            sent["sessionId"] = self._session
        os.write(self._write, json.dumps(sent).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result
            match found.get("method"):
                case "Runtime.consoleAPICalled":
                    self.said.append(str(found["params"]["args"]))
                case "Runtime.exceptionThrown":
                    self.said.append(str(found["params"]["exceptionDetails"]))
                case "Log.entryAdded":
                    self.said.append(str(found["params"]["entry"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError("Chromium has ended")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
