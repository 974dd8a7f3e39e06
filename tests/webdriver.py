"""A real browser, by the W3C WebDriver protocol: Debian's chromium and chromium-driver, without a package of Python."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SPACE, BACKSPACE, ENTER, SHIFT = " ", "\ue003", "\ue007", "\ue008"
MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking"]


class Browser:
    """A window of Chromium."""

    def __init__(self, url: str) -> None:
        self.url = url

    def command(self, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(self.url + path, None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def open(self, url: str) -> None:
        self.command("/url", {"url": "about:blank"})  # another fragment alone would not load the page again
        self.command("/url", {"url": url})

    def run(self, script: str) -> Any:
        """What a function with that body returns."""
        return self.command("/execute/sync", {"script": script, "args": []})

    def text(self, selector: str) -> str:
        return self.run(f"return document.querySelector({json.dumps(selector)}).innerText")

    def press(self, *keys: str) -> None:
        """Presses keys one after the other; capital letters with Shift."""
        actions: list[dict[str, str]] = []
        for key in keys:
            held = [SHIFT] if key.isupper() else []
            actions += [{"type": "keyDown", "value": value} for value in (*held, key)]
            actions += [{"type": "keyUp", "value": value} for value in (key, *held)]
        self.command("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def wait(self, script: str, seconds: float = 20.0) -> Any:
        """Waits until a script returns something true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, (script, self.text("body"))
            time.sleep(0.01)
        return value

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.command("/screenshot")))


@contextmanager
def browser(width: int = 1100, height: int = 800, *arguments: str) -> Iterator[Browser]:
    """A new window, which is closed at the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}", "--log-level=OFF"], stdout=subprocess.DEVNULL)
    try:
        base, options = f"http://127.0.0.1:{port}", [*ARGUMENTS, f"--window-size={width},{height}", *arguments]
        capabilities = {"alwaysMatch": {"goog:chromeOptions": {"binary": shutil.which("chromium"), "args": options}}}
        for _ in range(200):
            try:
                opened = Browser(base).command("/session", {"capabilities": capabilities})
                break
            except urllib.error.URLError:
                time.sleep(0.05)
        window = Browser(f"{base}/session/{opened['sessionId']}")
        try:
            yield window
        finally:
            request = urllib.request.Request(window.url, method="DELETE")
            urllib.request.urlopen(request, timeout=60).close()
    finally:
        driver.kill()
        driver.wait()
