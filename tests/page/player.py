"""What the tests of the page share: a stand-in for the chat endpoint, and how a user acts."""
import json

# What the test gives to play() comes as events of the answer. asked: the bodies of the requests.
PLAYER = """
window.realFetch = window.realFetch || window.fetch;
window.asked = []; window.aborted = 0; window.abortLate = false;
window.fetch = (path, options) => {
  if (path !== "/v1/chat/completions") return realFetch(path, options);
  asked.push(JSON.parse(options.body));
  let feed;
  const body = new ReadableStream({ start(controller) { feed = controller; } });
  const encoder = new TextEncoder();
  options.signal.addEventListener("abort", () => {
    aborted++;
    if (!window.abortLate) feed.error(new DOMException("stopped", "AbortError"));
  });
  const send = event => feed.enqueue(encoder.encode("data: " + JSON.stringify(event) + "\\n\\n"));
  const give = delta => send({ choices: [{ index: 0, delta, finish_reason: null }] });
  window.feedDelta = give;
  window.play = text => give({ content: text });
  window.finish = () => { feed.enqueue(encoder.encode("data: [DONE]\\n\\n")); feed.close(); };
  return Promise.resolve(new Response(body, { status: 200 }));
};
true
"""
LOG = "document.getElementById('log')"


def quoted(text):
    return json.dumps(text)


def say(page, text):
    page.run("document.getElementById('text').focus()")
    page.call("Input.insertText", text=text)
    page.press("Enter")


def click(page, name):
    page.run("document.getElementById('%s').click()" % name)


def press_button(page, text, place="document"):
    """The last button with this text or name."""
    page.run("[...%s.querySelectorAll('button')].filter(b => b.textContent === %s || "
             "b.getAttribute('aria-label') === %s).at(-1).click()"
             % (place, quoted(text), quoted(text)))


def text_of(page, place="log"):
    return page.run("document.getElementById('%s').innerText" % place)


def is_idle(page):
    page.until("document.getElementById('send').hidden === false", 60)


def answer(page, text):
    """A whole answer of the stand-in to what was just said."""
    page.until("document.getElementById('stop').hidden === false")
    page.run("play(%s); finish(); true" % quoted(text))
    is_idle(page)


def begin(page):
    """A new conversation with the stand-in."""
    page.run(PLAYER)
    click(page, "new")


def sent(page, at=-1):
    """Roles and texts of a request."""
    messages = page.run("asked.at(%d).messages" % at)
    return [(m["role"], m["content"]) for m in messages]


def bytes_text(n):
    """As the page writes it."""
    unit = 0
    while n >= 1024 and unit < 4:
        n, unit = n / 1024, unit + 1
    digits = 0 if unit == 0 or n >= 100 else 1
    return "%.*f %s" % (digits, n, ["B", "KiB", "MiB", "GiB", "TiB"][unit])


def kept(page):
    return page.run("JSON.parse(localStorage.getItem('weir.talk.' + "
                    "sessionStorage.getItem('weir.shown')))")
