"""The chat page in a real browser: page_test.py URL KEY [FOLDER]. The server needs the key.
Answers whose timing or text matters are played by a stand-in (player.py). FOLDER: for pictures of
the page."""
import sys

import access_cases
import chat_cases
import markdown_cases
import memory_cases
from browser import Browser, Page
from player import begin


def test_the_policy_stops_scripts(page, url, key):
    """The last one: it provokes problems. Markup that were inserted would not run either."""
    begin(page)
    page.run("""document.body.insertAdjacentHTML("beforeend",
                    '<img src=x onerror="window.ran = 1">');
                new Promise(done => setTimeout(() => done(true), 200))""")
    assert page.run("window.ran === undefined")
    assert page.problems(), "the policy says what it stopped"


def take_pictures(page, folder):
    access_cases.show_example(page)
    page.run("document.getElementById('memory').hidden = false")
    for scheme, width in (("light", 1400), ("dark", 1400), ("light", 360), ("dark", 360)):
        page.show_as(width, 800 if width > 400 else 640, scheme)
        page.run("document.getElementById('memory').hidden = innerWidth < 1000")
        page.picture("%s/%s-%d.png" % (folder, scheme, width))


def main(url, key, folder=None):
    browser, failed, n = Browser(), 0, 0
    cases = [(name, test) for module in (chat_cases, markdown_cases, memory_cases, access_cases)
             for name, test in vars(module).items() if name.startswith("test_")]
    try:
        page = Page(browser)
        for name, test in cases + [("test_the_policy_stops_scripts",
                                    test_the_policy_stops_scripts)]:
            n += 1
            try:
                if test is test_the_policy_stops_scripts:
                    assert not page.problems(), page.problems()
                    if folder:
                        take_pictures(page, folder)
                test(page, url, key)
                print("passed", name)
            except (AssertionError, TimeoutError) as error:
                failed += 1
                print("FAILED", name, repr(error)[:1500])
    finally:
        browser.close()
    print("%d passed, %d failed" % (n - failed, failed))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
