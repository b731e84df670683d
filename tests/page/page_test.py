"""The chat page in a real browser: page_test.py URL KEY [PICTURE]. The server needs the key.
Answers whose timing matters are played by a stream that the test feeds. PICTURE: what the page
looks like after its first answer."""
import base64, sys

from browser import Browser, Page

# Stands in for the chat endpoint: what the test gives to play() comes as events of the answer.
PLAYER = """
window.realFetch = window.realFetch || window.fetch;
window.asked = []; window.aborted = 0;
window.fetch = (path, options) => {
  if (path !== "/v1/chat/completions") return realFetch(path, options);
  asked.push(JSON.parse(options.body).messages);
  let feed;
  const body = new ReadableStream({ start(controller) { feed = controller; } });
  const encoder = new TextEncoder();
  options.signal.addEventListener("abort", () => {
    aborted++;
    if (window.abortLate) return;
    feed.error(new DOMException("stopped", "AbortError"));
  });
  window.play = text => feed.enqueue(encoder.encode("data: " + JSON.stringify(
    { choices: [{ index: 0, delta: { content: text }, finish_reason: null }] }) + "\\n\\n"));
  window.finish = () => { feed.enqueue(encoder.encode("data: [DONE]\\n\\n")); feed.close(); };
  return Promise.resolve(new Response(body, { status: 200 }));
};
true
"""
LOG = "document.getElementById('log')"


def say(page, text):
    page.run("document.getElementById('text').focus(); document.execCommand('insertText', false, "
             "%r)" % text)
    page.press_enter()


def click(page, name):
    page.run("document.getElementById('%s').click()" % name)


def text_of(page, place="log"):
    return page.run("document.getElementById('%s').innerText" % place)


def test_key_is_asked_for(page, url, key):
    page.open(url)
    page.until("!document.getElementById('key-form').hidden")
    assert text_of(page, "model") == ""
    for given in ("wrong", key):
        page.run("document.getElementById('key').value = %r" % given)
        page.run("document.querySelector('#key-form button').click()")
        if given != key:
            page.until("document.getElementById('key-problem').innerText.includes('refused')")
    page.until("document.getElementById('model').innerText !== ''")
    assert page.run("document.getElementById('key-form').hidden")
    assert page.run("sessionStorage.getItem('weir.key')") == key
    assert page.run("localStorage.length") == 0 and page.run("document.cookie") == ""


def test_real_answer(page, url, key):
    say(page, "Hello")
    page.until("!!document.querySelector('.assistant .content')", 30)
    page.until("document.getElementById('send').hidden === false", 60)
    assert "tokens" in text_of(page, "figures")


def test_reload_keeps_the_talk(page, url, key):
    before = text_of(page)
    page.reload()
    page.until("document.getElementById('model').innerText !== ''")  # with the key that was kept
    assert before and text_of(page) == before


def test_new_during_an_answer(page, url, key):
    """Even pieces that come after the click never reach the next conversation."""
    page.run(PLAYER)
    click(page, "new")
    page.run("window.abortLate = true")
    say(page, "old question")
    page.until("asked.length === 1")
    page.run("play('old answer'); true")
    page.until(LOG + ".innerText.includes('old answer')")
    page.run("window.oldPlay = play; window.oldFinish = finish; true")
    click(page, "new")
    assert page.run("aborted") == 1 and text_of(page) == ""
    page.run("oldPlay(' late piece'); true")
    say(page, "new question")
    page.until("asked.length === 2")
    page.run("oldPlay(' later piece'); oldFinish(); play('new answer'); finish(); true")
    page.until("document.getElementById('send').hidden === false")
    assert page.run("asked[1].length") == 1, page.run("asked[1]")
    assert "old" not in text_of(page) and "late" not in text_of(page), text_of(page)
    say(page, "third")
    page.until("asked.length === 3")
    assert page.run("asked[2].map(m => m.content)") == ["new question", "new answer", "third"]
    assert "old" not in page.run("sessionStorage.getItem('weir.talk')")
    page.run("play('x'); finish(); window.abortLate = false; true")
    page.until("document.getElementById('send').hidden === false")


def test_enter_does_not_stop(page, url, key):
    page.run("window.aborted = 0; true")
    say(page, "tell me")
    page.until("document.getElementById('stop').hidden === false")
    page.run("play('one'); true")
    page.until(LOG + ".innerText.includes('one')")
    say(page, "typed meanwhile")
    page.run("play(' two'); true")
    page.until(LOG + ".innerText.includes('one two')")
    assert page.run("aborted") == 0
    assert page.run("document.getElementById('text').value") == "typed meanwhile"
    click(page, "stop")
    page.until("document.getElementById('send').hidden === false")
    assert page.run("aborted") == 1 and "one two" in text_of(page)
    page.run("document.getElementById('text').value = ''")


def test_scrolling_up_is_respected(page, url, key):
    say(page, "long")
    page.until("document.getElementById('stop').hidden === false")
    page.run("play('line\\n'.repeat(200)); true")
    page.until(LOG + ".scrollHeight > 2 * " + LOG + ".clientHeight")
    page.until(LOG + ".scrollHeight - " + LOG + ".scrollTop - " + LOG + ".clientHeight < 40")
    page.run(LOG + ".scrollTop = 0")
    page.run("play('more\\n'.repeat(50)); true")
    page.until(LOG + ".innerText.includes('more')")
    assert page.run(LOG + ".scrollTop") == 0
    page.run("finish(); true")
    page.until("document.getElementById('send').hidden === false")


def test_reload_during_an_answer(page, url, key):
    click(page, "new")
    say(page, "half")
    page.until("document.getElementById('stop').hidden === false")
    page.run("play('begun'); true")
    page.until(LOG + ".innerText.includes('begun')")
    page.reload()
    page.until(LOG + ".innerText.includes('begun')")
    assert "half" in text_of(page)
    page.run(PLAYER)


def test_failures_are_said(page, url, key):
    click(page, "new")
    page.run("""window.fetch = () => Promise.resolve(new Response(
                JSON.stringify({ error: { message: "no room" } }), { status: 503 })); true""")
    say(page, "once more")
    page.until(LOG + ".innerText.includes('no room')")
    assert page.run("document.getElementById('text').value") == "once more", "it can be sent again"
    assert page.run("sessionStorage.getItem('weir.talk')") == "[]"
    page.run("document.getElementById('text').value = ''")
    page.run(PLAYER)


def test_text_of_the_model_never_runs(page, url, key):
    click(page, "new")
    say(page, "<b>bold</b>")
    page.until("document.getElementById('stop').hidden === false")
    page.run("play('<img src=x onerror=\"window.ran = 1\"><script>window.ran = 1</scr' + 'ipt>'); "
             "finish(); true")
    page.until("document.getElementById('send').hidden === false")
    assert "<img src=x" in text_of(page) and "<b>bold</b>" in text_of(page)
    assert page.run("document.querySelectorAll('#log img, #log script, #log b').length") == 0
    # Were it inserted as markup, the policy would stop it.
    page.run("""document.body.insertAdjacentHTML("beforeend",
                    '<img src=x onerror="window.ran = 1">');
                new Promise(done => setTimeout(() => done(true), 300))""")
    assert page.run("window.ran === undefined")
    assert page.problems(), "the policy says what it stopped"


def take_picture(page, path):
    shot = page.call("Page.captureScreenshot", format="png")["data"]
    with open(path, "wb") as file:
        file.write(base64.b64decode(shot))


def main(url, key, picture=None):
    browser, failed = Browser(), 0
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    try:
        page = Page(browser)
        for name, test in tests:
            try:
                if test is test_text_of_the_model_never_runs:  # the last: it provokes problems
                    assert not page.problems(), page.problems()
                test(page, url, key)
                print("passed", name)
            except (AssertionError, TimeoutError) as error:
                failed += 1
                print("FAILED", name, repr(error))
            if picture and test is test_real_answer:
                take_picture(page, picture)
    finally:
        browser.close()
    print("%d passed, %d failed" % (len(tests) - failed, failed))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
