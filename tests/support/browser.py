"""Opens a page in headless Chromium at several widths, light and dark, and prints its measurements as JSON.

browser.py CHROMIUM PAGE [FOLDER]: stores a screenshot of each in FOLDER. Uses the DevTools protocol over Chromium's pipe
(`--remote-debugging-pipe`): JSON messages that end in a NUL.
"""

import base64
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile

WIDTHS = [1280, 390]
SCHEMES = ["light", "dark"]
# Seconds without a message from the browser.
LIMIT = 60

MEASURE = """(() => {
  const seen = element => element.getClientRects().length > 0;
  const all = selector => [...document.querySelectorAll(selector)];
  const color = (element, what) => getComputedStyle(element)[what];
  const wide = document.documentElement.clientWidth;
  return {
    overflow: document.documentElement.scrollWidth - wide,
    beyond: all("body *").filter(seen).filter(element => !element.closest("svg") && element.getBoundingClientRect().right > wide + 1)
      .filter(element => !element.classList.contains("skip")).map(element => element.outerHTML.slice(0, 80)),
    texts_beyond: all("svg.picture text").filter(seen).filter(text => {
      const [own, box] = [text.getBoundingClientRect(), text.parentNode.querySelector(".box").getBoundingClientRect()];
      return own.right > box.right + 1 || own.left < box.left - 1 || own.bottom > box.bottom + 1;
    }).map(text => text.textContent),
    background: color(document.body, "backgroundColor"),
    text: color(document.body, "color"),
    landmarks: ["header", "nav[aria-label]", "main", "footer"].filter(name => all(name).length === 1),
    lang: document.documentElement.lang,
    title: document.title,
    headings: all("h1, h2").map(heading => heading.tagName + " " + heading.textContent),
    pictures: all('svg[role="img"]').filter(seen).length,
    nameless: all('svg:not([aria-hidden="true"])').filter(seen).filter(svg => svg.role !== "img"
      || !(svg.getAttribute("aria-label") || (svg.getAttribute("aria-labelledby") || "").split(" ").some(id =>
        id && document.getElementById(id) && document.getElementById(id).textContent))).length,
    dead_links: all("a[href^='#']").filter(link => !document.getElementById(link.hash.slice(1))).map(link => link.hash),
    twice: all("[id]").map(element => element.id).filter((id, index, ids) => ids.indexOf(id) !== index),
    outside: performance.getEntriesByType("resource").map(entry => entry.name).filter(name => !name.startsWith("data:")),
    scripts: all("script, link[rel=stylesheet], iframe, object, [onload], [onerror], [onclick]").length,
    bars: all("rect.bar").length,
    foreign: all("img, b, xss").length,
  };
})()"""


class Browser:
    def __init__(self, program, profile):
        read, their_write = os.pipe()
        their_read, write = os.pipe()

        def pipes():
            os.dup2(their_read, 3)
            os.dup2(their_write, 4)

        # Descriptor numbers that the child's own pipes must not have before they are moved there.
        their_read, their_write = [self.above(number) for number in (their_read, their_write)]
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        self.child = subprocess.Popen(
            [program, *flags, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=pipes, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(their_read)
        os.close(their_write)
        self.read, self.write, self.buffer, self.number, self.session = read, write, b"", 0, None

    @staticmethod
    def above(number):
        import fcntl
        copy = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 20)
        os.close(number)
        return copy

    def message(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], LIMIT)
            piece = os.read(self.read, 1 << 20) if ready else b""
            if not piece:
                sys.exit("the browser went away" if ready else "the browser did not answer")
            self.buffer += piece
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def ask(self, method, wait_for=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        answer, event = None, wait_for is None
        while answer is None or not event:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                answer = message["result"]
            event = event or message.get("method") == wait_for
        return answer

    def evaluate(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def reached_by_tab(self):
        """The elements that the Tab key reaches, in order, until the first one again."""
        reached = []
        for _ in range(60):
            for kind in ("keyDown", "keyUp"):
                self.ask("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            at = self.evaluate("(() => { const at = document.activeElement;"
                               "return at === document.body ? '' : at.tagName + ' ' + (at.hash || at.textContent.trim()); })()")
            if not at or at in reached:
                break
            reached.append(at)
        return reached


def main():
    program, page = sys.argv[1], pathlib.Path(sys.argv[2]).absolute()
    folder = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    measured = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            browser.ask("Page.enable")
            browser.ask("Network.enable")
            browser.ask("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
            for width in WIDTHS:
                for scheme in SCHEMES:
                    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
                    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                    browser.ask("Page.navigate", wait_for="Page.loadEventFired", url=page.as_uri())
                    measured[f"{width} {scheme}"] = browser.evaluate(MEASURE)
                    if folder:
                        picture = browser.ask("Page.captureScreenshot", captureBeyondViewport=True, format="png")
                        name = f"{page.stem}-{width}-{scheme}.png"
                        (folder / name).write_bytes(base64.b64decode(picture["data"]))
            measured["tab"] = browser.reached_by_tab()
            browser.session = None
            browser.ask("Browser.close")
            browser.child.wait(LIMIT)
        finally:
            browser.child.kill()
            browser.child.wait()
    json.dump(measured, sys.stdout, indent=1)


main()
