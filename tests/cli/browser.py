"""Chromium, without a screen, told by its DevTools protocol over a pipe what to do: for the tests of pages. Standard library only."""
import base64
import json
import os
import select
import subprocess
import time

from pictures import CHROMIUM

DEADLINE = 120  # seconds for an answer: a busy machine starts a browser slowly


class Browser:
    def __init__(self, home):
        ours, theirs = os.pipe(), os.pipe()  # what we read, what it reads
        self.answers, self.orders = ours[0], theirs[1]
        self.process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 3<&%d 4>&%d' % (theirs[0], ours[1]), "sh", CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
             "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir=" + os.path.join(home, "chromium")],
            pass_fds=(theirs[0], ours[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs[0]), os.close(ours[1])
        self.rest, self.number, self.session, self.events = b"", 0, None, []
        target = self.order("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.order("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for area in ("Page", "Runtime", "Log", "Network"):
            self.order(area + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers), os.close(self.orders)

    def message(self):
        end = time.monotonic() + DEADLINE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            data = os.read(self.answers, 1 << 16) if ready else b""
            assert data, "the browser does not answer"
            self.rest += data
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def order(self, method, **params):
        self.number += 1
        text = {"id": self.number, "method": method, "params": params}
        if self.session:
            text["sessionId"] = self.session
        os.write(self.orders, json.dumps(text).encode() + b"\0")
        while True:
            m = self.message()
            if m.get("id") == self.number:
                assert "error" not in m, (method, m)
                return m["result"]
            self.events.append(m)

    def open(self, file, scheme="light", media="", width=1000, height=800):
        self.order("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.order("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.order("Page.navigate", url="file://" + file)
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message())

    def run(self, script):
        """The value of an expression in the page."""
        result = self.order("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key, text=""):
        for kind in ("keyDown", "keyUp"):
            self.order("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text if kind == "keyDown" else "",
                       windowsVirtualKeyCode={"Enter": 13, "ArrowRight": 39}.get(key, 0))

    def picture(self, png, scale=1.0):
        """All of the page, also what is below the window."""
        size = self.order("Page.getLayoutMetrics")["cssContentSize"]
        data = self.order("Page.captureScreenshot", captureBeyondViewport=True, clip=dict(size, scale=scale))["data"]
        with open(png, "wb") as f:
            f.write(base64.b64decode(data))

    def complaints(self):
        """What stands on the console, and what failed in the script."""
        return [e for e in self.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")]

    def requests(self):
        """What was asked for beside the page."""
        urls = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [u for u in urls if not u.startswith("data:")][1:]
