"""A headless Chromium under the tests' control: the DevTools protocol over two pipes, so that nothing listens anywhere.

https://chromedevtools.github.io/devtools-protocol/ ; messages are JSON, each with a zero byte after it.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LEASHED = ("setpriv", "--pdeathsig", "KILL")  # a program that does not outlive the tests, however they end
LIMIT_S = 60.0  # for an answer, on a busy machine


class Chromium:
    """A browser with one page; a context manager.

    Attributes: events: everything that the browser has told of the page without being asked.
    """

    def __init__(self, profile: Path) -> None:
        to_browser, self._commands = os.pipe()
        self._answers, from_browser = os.pipe()
        # the browser reads commands from descriptor 3 and writes answers to descriptor 4
        command = ["chromium", *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        with (profile.parent / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*LEASHED, "bash", "-c", shell, "bash", *command],
                pass_fds=(to_browser, from_browser),
                stdout=log,
                stderr=log,
            )
        os.close(to_browser)
        os.close(from_browser)
        self._unread, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Chromium:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(timeout=LIMIT_S)
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, url: str) -> None:
        """Load a page and wait until it has."""
        self.events.clear()
        assert not self.call("Page.navigate", url=url).get("errorText")
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """Return what an expression of JavaScript is in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def show(self, width: int, height: int, *, is_dark: bool = False) -> None:
        """Give the page a window of such a size in CSS pixels, and the taste of its reader."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def photograph(self, path: Path) -> bytes:
        """Write a picture of the whole page as PNG, and return its bytes."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))
        return path.read_bytes()

    def complaints(self) -> list[str]:
        """Return what the console shows as error or warning, and exceptions, since the page was opened."""
        found = []
        for event in self.events:
            facts = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(facts["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
                found.append(str(facts["entry"]))
            elif event["method"] == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
                found.append(str(facts["args"]))
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for since it was opened."""
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + LIMIT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\0" not in self._unread:
                left = deadline - time.monotonic()
                assert left > 0 and selector.select(left), f"chromium said nothing for {LIMIT_S} s"
                chunk = os.read(self._answers, 1 << 16)
                assert chunk, "chromium has ended; see chromium.log beside its profile"
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "id" not in message:
            self.events.append(message)
        return message
