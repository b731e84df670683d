"""The page for readers of all kinds: names, contrast, keyboard, small screens, both colour
schemes. Debian has no axe-core; these are the checks that matter for this page."""
from player import answer, begin, click, say

EXAMPLE = """A **bold** [link](https://a.example/), `code`.

```c
int x;
```

| a | b |
|-|-|
| 1 | 2 |

- item

> quote
"""
ROLES = {"button", "textbox", "checkbox", "slider", "combobox", "link", "spinbutton", "searchbox",
         "dialog", "navigation", "complementary", "log", "region", "group", "image"}
# Elements with text of their own whose colour is too near to what lies below it (WCAG: 4.5).
CONTRAST = """(() => {
  const parts = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = c => { const [r, g, b] = c.map(v => { v /= 255;
    return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
    return .2126 * r + .7152 * g + .0722 * b; };
  const below = e => { for (; e; e = e.parentElement) {
    const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c.slice(0, 3); } return [255, 255, 255]; };
  return [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() &&
    !e.disabled && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => {
      const a = light(parts(getComputedStyle(e).color).slice(0, 3)), b = light(below(e));
      return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.outerHTML.slice(0, 90)];
    }).filter(([ratio]) => ratio < 4.5);
})()"""


def unnamed(page):
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    return [n["role"]["value"] for n in tree
            if not n["ignored"] and n["role"]["value"] in ROLES - {"group", "region"} and
            not n.get("name", {}).get("value", "").strip()]


def show_example(page):
    begin(page)
    say(page, "Show it")
    answer(page, EXAMPLE)
    say(page, "Again")
    answer(page, EXAMPLE)


def test_every_control_has_a_name(page, url, key):
    page.call("Accessibility.enable")
    show_example(page)
    assert unnamed(page) == []
    click(page, "show-settings")
    assert unnamed(page) == []
    page.press("Escape")
    assert not page.run("document.getElementById('settings').open")
    page.call("Accessibility.disable")
    bad = page.run("""[...document.querySelectorAll("[id]")].filter(
      e => document.querySelectorAll("#" + CSS.escape(e.id)).length > 1).map(e => e.id).concat(
      [...document.querySelectorAll("[aria-controls]")].filter(
        e => !document.getElementById(e.getAttribute("aria-controls"))).map(e => e.id),
      [...document.querySelectorAll("[tabindex]")].filter(e => e.tabIndex > 0).map(e => e.id))""")
    assert bad == [] and page.run("document.documentElement.lang") == "en", bad


def test_text_can_be_read_in_both_schemes(page, url, key):
    for scheme in ("light", "dark"):
        page.show_as(1400, 800, scheme)
        assert page.run(CONTRAST) == [], (scheme, page.run(CONTRAST))
    backs = []
    for scheme in ("light", "dark"):
        page.show_as(1400, 800, scheme)
        backs.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert backs[0] != backs[1]
    assert page.run("getComputedStyle(document.getElementById('send')).transitionDuration") == "0s"


def test_the_keyboard_reaches_everything(page, url, key):
    page.show_as(1400, 800)
    page.run("document.querySelector('.skip').focus(); window.reached = new Set(); true")
    for _ in range(200):
        page.run("reached.add(document.activeElement.id)")
        page.press("Tab")
        outline = page.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.run("document.activeElement === document.body"), \
            page.run("document.activeElement.outerHTML")
        if page.run("document.activeElement === document.body || "
                    "document.activeElement.className === 'skip'"):
            break
    reached = set(page.run("[...reached]"))
    wanted = {"show-history", "show-settings", "show-memory", "log", "attach", "text", "send",
              "if-context", "if-sequences", "if-format", "if-policy"}
    assert wanted <= reached, wanted - reached
    say(page, "stop it")
    page.until("document.getElementById('stop').hidden === false")
    page.press("Escape")
    page.until("document.getElementById('send').hidden === false")
    assert page.run("aborted") == 1


def test_small_screens(page, url, key):
    page.show_as(360, 640)
    page.reload()
    page.until("document.getElementById('model').innerText !== ''")
    for part in (None, "show-memory", "show-history"):
        if part:
            click(page, part)
        wide = page.run("""["button", "input", "select", "textarea", "aside", "nav"].flatMap(
          name => [...document.querySelectorAll(name)]).filter(e => {
            const b = e.getBoundingClientRect();
            return e.checkVisibility() && b.width > 0 && (b.left < 0 || b.right > 361);
          }).map(e => e.id || e.outerHTML.slice(0, 60))""")
        assert page.run("document.documentElement.scrollWidth") <= 360 and wide == [], (part, wide)
        if part:
            click(page, part)
