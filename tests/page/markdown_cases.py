"""Markdown of answers: what is rendered, that it grows in place, that nothing in it can act."""
from player import answer, begin, is_idle, quoted, say, text_of

TEXT = """# Title

Some *slanted*, **bold** and `code` text with a [link](https://a.example/x_y "t") and
https://b.example/c_d. Not_a_mark, 2 * 3 * 4, \\*plain\\*.

- one
  - inner

    with a paragraph
- two

3. three
4. four

| a | b |
|:--|--:|
| 1 | `2` |

> quoted
goes on

```c
int x = 1; // <b>

```
---
- [x] done
"""
VIEW = "import('/page/markdown_view.js').then(({ MarkdownView }) => { %s })"


def html_of(page, text):
    return page.run(VIEW % ("const all = document.createElement('div'); "
                            "new MarkdownView(all, %s); return all.innerHTML" % quoted(text)))


def test_markdown_is_rendered(page, url, key):
    begin(page)
    say(page, "<b>bold</b> *as typed*")
    answer(page, TEXT)
    counts = page.run("""Object.fromEntries(["h4", "em", "strong", "p code", "a", "ul", "ol",
      "table", "td.to-right code", "blockquote", "pre", "hr", "ul ul p"].map(
      s => [s, document.querySelectorAll(".assistant .content " + s).length]))""")
    assert counts == {"h4": 1, "em": 1, "strong": 1, "p code": 1, "a": 2, "ul": 3, "ol": 1,
                      "table": 1, "td.to-right code": 1, "blockquote": 1, "pre": 1, "hr": 1,
                      "ul ul p": 1}, counts
    links = page.run("[...document.querySelectorAll('.content a')].map(a => [a.href, a.rel])")
    assert links == [["https://a.example/x_y", "noopener noreferrer"],
                     ["https://b.example/c_d", "noopener noreferrer"]], links
    assert page.run("document.querySelector('.content ol').start") == 3
    text = text_of(page)
    assert "2 * 3 * 4, *plain*" in text and "Not_a_mark" in text
    assert "<b>bold</b> *as typed*" in text, "what the user wrote stays as it is"
    assert page.run("document.querySelector('.content pre code').textContent") == \
        "int x = 1; // <b>\n"


def test_markdown_grows_in_place(page, url, key):
    """The same nodes as for the whole text, whatever the pieces; earlier ones are kept."""
    same = VIEW % ("""const whole = document.createElement("div"), text = %s, bad = [];
      new MarkdownView(whole, text);
      for (const size of [1, 2, 5, 17]) {
        const all = document.createElement("div"), view = new MarkdownView(all);
        let first = null;
        for (let i = 0; i < text.length; i += size) {
          view.append(text.slice(i, i + size));
          if (i > 200 && !first) { view.flush(); first = all.firstChild; } // it may be behind
        }
        view.flush();
        if (all.innerHTML !== whole.innerHTML) bad.push([size, all.innerHTML]);
        if (first !== all.firstChild) bad.push(["rendered again", size]);
      }
      return bad;""" % quoted(TEXT))
    assert page.run(same) == [], page.run(same)
    kept = VIEW % """const all = document.createElement("div"), view = new MarkdownView(all);
      view.append("```\\none");
      const code = all.querySelector("code");
      view.append("\\ntwo");
      view.flush();
      return all.querySelector("code") === code && code.textContent;"""
    assert page.run(kept) == "one\ntwo"
    named = VIEW % """const all = document.createElement("div"), view = new MarkdownView(all);
      for (const piece of ["```", "py", "thon\\nx"]) view.append(piece);
      view.flush();
      return all.querySelector("figcaption span").textContent;"""
    assert page.run(named) == "python"
    long = VIEW % """const all = document.createElement("div"), view = new MarkdownView(all);
      const begin = performance.now();
      for (let i = 0; i < 4000; i++) view.append("- item *" + i + "*\\n");
      view.flush();
      return [all.querySelectorAll("li").length, performance.now() - begin];"""
    n, ms = page.run(long)
    assert n == 4000 and ms < 3000, (n, ms)


def test_line_ends_and_headings(page, url, key):
    text = "# About C#\r\n\r\n- a\r\n- b\r\n\r\n```\r\nx\r\n```\r\n## End ##\r\n"
    assert page.run(VIEW % ("""const all = document.createElement("div");
      new MarkdownView(all, %s);
      return [...all.querySelectorAll("h4, h5, li, pre code")].map(e => e.textContent).join("|")
      """ % quoted(text))) == "About C#|a|b|x|End"


def test_code_is_copied(page, url, key):
    page.run("""Object.defineProperty(navigator, "clipboard", { configurable: true, value:
      { writeText: text => { window.copied = text; return Promise.resolve(); } } });
      document.querySelector(".code button").click(); true""")
    page.until("document.querySelector('.code button').textContent === 'Copied'")
    assert page.run("copied") == "int x = 1; // <b>\n"


HOSTILE = [
    "<img src=x onerror=\"window.ran = 1\"><script>window.ran = 1</script>",
    "[x](javascript:window.ran=1) [y](data:text/html,z) [z](/v1/memory) <javascript:x>",
    "![i](https://a.example/i.png) [a](vbscript:x) [b](java\tscript:x) [c](JaVaScRiPt:x)",
    "| <b> | a |\n|---|---|\n| <img src=x onerror=window.ran=1> | [x](javascript:1) |",
    "```<script>\nwindow.ran = 1\n```", "# <svg onload=window.ran=1>",
    "https://a.example/\"onmouseover=\"window.ran=1",
]
LONG = ["> ", "- ", "*", "**a", "_a ", "[", "![", "`", "``` ", "|", "|-", "\\", "# ", "1. ", "<",
        "[a](", "~~a", "- a\n ", "https://", "a\n|-|\n", "* a\n"]


def test_hostile_markdown_does_nothing(page, url, key):
    for text in HOSTILE:
        html = html_of(page, text)
        bad = page.run("""(html => { const all = document.createElement("template");
          all.innerHTML = html; return [...all.content.querySelectorAll("*")].filter(e =>
            ["IMG", "SCRIPT", "SVG", "IFRAME", "B", "OBJECT"].includes(e.tagName.toUpperCase()) ||
            [...e.attributes].some(a => a.name.startsWith("on") || a.name === "style" ||
              (a.name === "href" && !/^(https?|mailto):/.test(a.value)))).map(e => e.outerHTML);
        })(%s)""" % quoted(html))
        assert bad == [], (text, bad)
    slow = ["# x" + " " * 9000 + "y", "~" * 9000 + "`", "``` " + "a" * 9000 + "`",
            "a|b\n|-" + " " * 9000 + "x", "- a" + " " * 9000 + "\u2028",
            "|a" * 1500 + "\n" + "|-" * 1500 + "\n" + "|\n" * 1500]
    took = page.run(VIEW % ("""const all = [];
      for (const text of %s) {
        const begin = performance.now();
        new MarkdownView(document.createElement("div"), text);
        all.push(performance.now() - begin);
      }
      return all;""" % quoted(slow)))
    assert all(ms < 1000 for ms in took), took
    took = page.run(VIEW % ("""const all = {};
      for (const piece of %s) {
        const begin = performance.now();
        new MarkdownView(document.createElement("div"), piece.repeat(9000 / piece.length));
        all[piece] = performance.now() - begin;
      }
      return all;""" % quoted(LONG)))
    assert all(ms < 1000 for ms in took.values()), took


def test_text_of_the_model_never_runs(page, url, key):
    begin(page)
    say(page, "<b>bold</b>")
    answer(page, HOSTILE[0])
    assert "<img src=x" in text_of(page) and "<b>bold</b>" in text_of(page)
    assert page.run("document.querySelectorAll('#log img, #log script, #log b').length") == 0
    is_idle(page)
    assert page.run("window.ran === undefined")
