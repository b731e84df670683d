"""A headless Chromium, spoken to over its debugging pipe: JSON texts that end with NUL, on
descriptors 3 and 4 of the browser. Only what page_test.py needs."""
import base64, json, os, select, subprocess, tempfile, time


class Browser:
    def __init__(self, program="chromium"):
        self.folder = tempfile.TemporaryDirectory()
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        # The browser wants descriptors 3 and 4; a shell puts them there.
        command = 'exec "$0" "$@" 3<&%d 4>&%d' % (to_read, to_write)
        self.process = subprocess.Popen(
            ["sh", "-c", command, program, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--remote-debugging-pipe", "--no-first-run", "--disable-dev-shm-usage",
             "--window-size=900,700", "--user-data-dir=" + self.folder.name],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.held, self.events, self.last = b"", [], 0

    def close(self):
        os.close(self.to)  # the browser ends with its pipe
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.back)
        self.folder.cleanup()

    def receive(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.held:
            ready = select.select([self.back], [], [], max(0, end - time.monotonic()))[0]
            data = os.read(self.back, 1 << 16) if ready else b""
            if not data:
                raise TimeoutError("the browser does not answer")
            self.held += data
        text, self.held = self.held.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.receive(20)
            if reply.get("id") == self.last:
                assert "error" not in reply, "%s: %s" % (method, reply["error"])
                return reply["result"]
            self.events.append(reply)


class Page:
    def __init__(self, browser):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session, self.target = attached["sessionId"], target
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def run(self, script):
        """The value of an expression; a promise is awaited."""
        r = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in r, r["exceptionDetails"]
        return r["result"].get("value")

    def until(self, script, seconds=10):
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, "never true: " + script
            time.sleep(0.05)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href === %s" % json.dumps(url))

    def reload(self):
        self.run("window.isOld = true")
        self.call("Page.reload")
        self.until("!window.isOld && document.readyState === 'complete'")

    def press(self, key, modifiers=0):
        """Presses Enter, Tab or Escape."""
        code, text = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text,
                      windowsVirtualKeyCode=code, modifiers=modifiers)

    def show_as(self, width, height, scheme="light"):
        """The size of the window, and the colours that its user prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme},
                            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot))

    def problems(self):
        """What the page's console has complained of: exceptions, refused content."""
        seen = []
        for event in self.browser.events:
            if event.get("method") == "Runtime.exceptionThrown":
                seen.append(event["params"]["exceptionDetails"]["text"])
            if event.get("method") == "Log.entryAdded":
                entry = event["params"]["entry"]
                if entry["level"] == "error" and "status of 401" not in entry["text"]:
                    seen.append(entry["text"])
        return seen
