"""A headless Chromium of the system, driven by the DevTools protocol through a pipe: nothing is
installed for it.
"""

import base64
import io
import itertools
import json
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager

import numpy as np
from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOUND = next(filter(None, map(shutil.which, NAMES)), None)
ABSENT = "there is no Chromium on this machine, such as `apt-get install chromium` brings"
CARDS = "[...document.querySelectorAll('.cards .card .id')].map(e => Number(e.textContent))"
"""The numbers of a gallery's photographs, in a page of the report or of a comparison."""
PATIENCE = 300.0  # seconds to wait for what a page is to do, on a busy machine


class Browser:
    """One tab, with the addresses that were asked for and the warnings and errors of its
    console.
    """

    def __init__(self, pipe):
        self._pipe, self._rest = pipe, b""
        self._numbers, self._session = itertools.count(1), {}
        self.requests = []
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | self._session
        self._pipe.sendall(json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                piece = self._pipe.recv(2**20)
                assert piece, "the browser has ended"
                self._rest += piece
            text, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == number:
                assert "result" in answer, answer
                return answer["result"]
            self._note(answer)

    def open(self, page, width=1200, height=900, script=True, mobile=False):
        """A file or an address; at its end the page is loaded, and nobody has asked for or
        complained of anything.
        """
        self.requests.clear()
        self.complaints.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=mobile)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        url = page if isinstance(page, str) else page.resolve().as_uri()
        self.call("Page.navigate", url=url)
        self.wait(
            f"document.readyState === 'complete' && location.protocol === '{url.partition('/')[0]}'"
        )

    def run(self, expression):
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + PATIENCE
        while not self.run(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.05)

    def point(self, selector):
        """The mouse at the middle of an element, which is scrolled to."""
        x, y, *_ = self.box(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        # a busy machine draws the next frame, and tells the page, only later
        self.wait(f"document.querySelector({json.dumps(selector)}).matches(':hover')")

    def click(self, selector):
        x, y, *_ = self.box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose(self, **fields):
        """Fields of a gallery's tools, by name."""
        for name, value in fields.items():
            self.run(
                f"""(() => {{
                const field = document.querySelector(".tools [name={name}]");
                field.value = "{value}";
                field.dispatchEvent(new Event("input", {{bubbles: true}})); }})()"""
            )

    def press(self, *keys):
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    @contextmanager
    def quiet(self, page):
        """A page, opened anew; afterwards it must have complained of nothing and have asked the
        network for nothing.
        """
        self.open(page)
        yield
        assert self.complaints == []
        assert {address.partition(":")[0] for address in self.requests} <= {"file", "data"}

    def box(self, selector, scroll=True):
        """Middle and size of the first element, in the window, scrolled into its middle."""
        found = self.run(
            f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            if ({json.dumps(scroll)}) e.scrollIntoView({{block: "center", behavior: "instant"}});
            const r = e.getBoundingClientRect();
            return [r.x + r.width / 2, r.y + r.height / 2, r.width, r.height]; }})()"""
        )
        return found[0], found[1], found[2], found[3]

    def in_sight(self, selector):
        _, middle, _, high = self.box(selector, scroll=False)
        return bool(middle - high / 2 >= 0 and middle + high / 2 <= self.run("innerHeight"))

    def picture(self, selector):
        """An element in the window, as it is seen."""
        x, y, width, height = self.box(
            selector, scroll=False
        )  # or other things would lie under the mouse
        left, top = self.run("[scrollX, scrollY]")
        area = {
            "x": left + x - width / 2,
            "y": top + y - height / 2,
            "width": width,
            "height": height,
            "scale": 1,
        }
        content = self.call("Page.captureScreenshot", format="png", clip=area)
        return Image.open(io.BytesIO(base64.b64decode(content["data"]))).convert("RGB")

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown" or (
            params.get("entry", {}).get("level", params.get("type")) in ("warning", "error")
            and method in ("Log.entryAdded", "Runtime.consoleAPICalled")
        ):
            self.complaints.append(str(params))


def brightest(picture, left=0, side=4):
    """The row and column of a grid over a picture, without `left` of it at either end, where it is
    lit most.
    """
    across, down = (picture.width - 2 * left) / side, picture.height / side
    grey = np.asarray(picture.convert("L"))
    lights = [
        [grey[int(down * (y + 0.5)), int(left + across * (x + 0.5))] for x in range(side)]
        for y in range(side)
    ]
    row, column = divmod(int(np.argmax(lights)), side)
    return row, column


FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars
--no-first-run
    --disable-background-networking --disable-component-update --disable-sync --disable-quic
    --remote-debugging-pipe"""


@contextmanager
def browser():
    """A browser with a profile of its own, which is gone afterwards."""
    assert FOUND
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        # what the browser finds open as 3 and 4 is the protocol's pipe
        redirected = ["bash", "-c", f'exec "$@" 3<&{theirs.fileno()} 4>&{theirs.fileno()}', "bash"]
        command = [*redirected, FOUND, *FLAGS.split(), f"--user-data-dir={home}"]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], **silent)
        theirs.close()
        try:
            yield Browser(ours)
        finally:
            process.terminate()
            process.wait(PATIENCE)
