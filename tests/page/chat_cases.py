"""The chat: answers, history, branches, settings, tools, files. In this order, on one page."""
from browser import Page
from player import (LOG, PLAYER, answer, begin, click, is_idle, kept, press_button, quoted, say,
                    sent, text_of)


def test_key_is_asked_for(page, url, key):
    page.open(url)
    page.until("!document.getElementById('key-form').hidden")
    assert text_of(page, "model") == ""
    page.run("document.getElementById('key').value = '\\u043a'")
    page.run("document.querySelector('#key-form button').click()")
    assert "ASCII" in text_of(page, "key-problem")
    for given in ("wrong", key):
        page.run("document.getElementById('key').value = %s" % quoted(given))
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
    is_idle(page)
    assert "tokens" in text_of(page, "figures")
    assert "tokens/s" in text_of(page)
    assert not page.run("Object.values(localStorage).join().includes(%s)" % quoted(key))


def test_reload_keeps_the_talk(page, url, key):
    before = text_of(page)
    page.reload()
    page.until("document.getElementById('model').innerText !== ''")  # with the key that was kept
    assert before and text_of(page) == before


def test_regenerated_and_edited_messages_are_branches(page, url, key):
    begin(page)
    say(page, "one")
    answer(page, "first")
    press_button(page, "Regenerate", LOG)
    answer(page, "second")
    assert sent(page) == [("user", "one")]
    assert "second" in text_of(page) and "first" not in text_of(page)
    press_button(page, "Previous branch", LOG)
    assert "first" in text_of(page) and "1/2" in text_of(page)
    say(page, "go on")
    answer(page, "further")
    assert sent(page) == [("user", "one"), ("assistant", "first"), ("user", "go on")]
    page.run("[...document.querySelectorAll('.user .foot button')].filter("
             "b => b.textContent === 'Edit')[0].click()")
    page.run("document.querySelector('.user textarea').value = 'uno'")
    press_button(page, "Send as a new branch", LOG)
    answer(page, "prima")
    assert sent(page) == [("user", "uno")]
    assert "further" not in text_of(page)
    press_button(page, "Previous branch", LOG)
    assert "further" in text_of(page), "a branch is shown down to its newest message"
    page.reload()
    page.until("document.getElementById('model').innerText !== ''")
    assert "further" in text_of(page) and "1/2" in text_of(page)
    assert len(kept(page)["nodes"]) == 7, kept(page)


def test_edit_can_be_cancelled(page, url, key):
    before = text_of(page)
    press_button(page, "Edit", LOG)
    assert page.run("document.activeElement.tagName") == "TEXTAREA"
    page.press("Escape")
    assert text_of(page) == before


def test_an_answer_that_does_not_come_hides_no_other(page, url, key):
    begin(page)
    say(page, "only")
    answer(page, "first")
    press_button(page, "Regenerate", LOG)
    page.until("document.getElementById('stop').hidden === false")
    click(page, "stop")
    is_idle(page)
    assert "first" in text_of(page), text_of(page)
    page.run("""window.player = window.fetch; window.fetch = (path, options) =>
      path === "/v1/chat/completions" ? Promise.reject(new TypeError("gone"))
      : realFetch(path, options); true""")
    press_button(page, "Regenerate", LOG)
    page.until(LOG + ".innerText.includes('gone')")
    assert "first" in text_of(page), text_of(page)
    page.run("window.fetch = window.player; true")
    press_button(page, "Try again", LOG)
    answer(page, "second")
    assert sent(page) == [("user", "only")] and "2/2" in text_of(page)
    assert len(kept(page)["nodes"]) == 3, kept(page)
    press_button(page, "Delete only")
    press_button(page, "Sure? Delete only")


def test_conversations_are_listed_opened_and_deleted(page, url, key):
    begin(page)
    say(page, "Another matter")
    answer(page, "indeed")
    titles = "[...document.querySelectorAll('.talk .title')].map(t => t.innerText)"
    click(page, "show-history")
    assert page.run(titles) == ["Another matter", "one", "Hello"], page.run(titles)
    page.run("[...document.querySelectorAll('.talk')][2].click()")
    assert "Hello" in text_of(page) and "indeed" not in text_of(page)
    page.run("[...document.querySelectorAll('.talk')][0].click()")
    press_button(page, "Delete Another matter")
    assert len(page.run(titles)) == 3, "it is asked first"
    press_button(page, "Sure? Delete Another matter")
    assert page.run(titles) == ["one", "Hello"] and text_of(page) == ""


def test_damaged_history_is_left_out(page, url, key):
    page.run("""localStorage.setItem("weir.talk.1-2", "{");
      localStorage.setItem("weir.talk.1-3", JSON.stringify({ id: "1-3", leaf: 1, nodes:
        { 1: { id: 1, parent: 1, role: "user", content: "its own parent" } } }));
      localStorage.setItem("weir.talk.1-4", JSON.stringify({ id: "1-4", leaf: 1, nodes:
        { 1: { id: 1, parent: 0, role: "system", content: "x" } } })); true""")
    page.run("""localStorage.setItem("weir.talk.1-5", JSON.stringify({ id: "1-5", leaf: 2,
      title: "odd parts", nodes: {
      1: { id: 1, parent: 0, role: "user", content: "odd parts", files: 7 },
      2: { id: 2, parent: 1, role: "assistant", content: "shown", tool_calls: [null], figures: {},
           note: {}, reasoning_content: 3 } } })); sessionStorage.setItem("weir.shown", "1-5")""")
    page.reload()
    page.until("document.getElementById('model').innerText !== ''")
    assert "odd parts" in text_of(page) and "shown" in text_of(page)
    press_button(page, "Delete odd parts")
    press_button(page, "Sure? Delete odd parts")
    assert page.run("document.querySelectorAll('.talk').length") == 2
    page.run("for (const n of [2, 3, 4]) localStorage.removeItem('weir.talk.1-' + n)")


def test_what_is_too_large_to_keep_removes_nothing(page, url, key):
    page.run("""window.before = localStorage.length;
      import("/page/store.js").then(({ addNode, newTalk, saveTalk }) => {
        const talk = newTalk({});
        addNode(talk, 0, { role: "user", content: "x".repeat(2e7) });
        window.isSaved = saveTalk(talk);
      })""")
    assert page.run("isSaved") is False
    assert page.run("before > 0 && localStorage.length === before")


def test_new_during_an_answer(page, url, key):
    """The answer goes on in its own conversation and never reaches another one."""
    begin(page)
    say(page, "old question")
    page.until("asked.length === 1")
    page.run("play('old answer'); true")
    page.until(LOG + ".innerText.includes('old answer')")
    page.run("window.oldPlay = play; window.oldFinish = finish; true")
    click(page, "new")
    assert page.run("aborted") == 0 and text_of(page) == ""
    page.run("oldPlay(' late piece'); true")
    say(page, "new question")
    page.until("asked.length === 2")
    page.run("oldPlay(' later piece'); oldFinish(); play('new answer'); finish(); true")
    is_idle(page)
    assert sent(page) == [("user", "new question")]
    assert "old" not in text_of(page) and "late" not in text_of(page), text_of(page)
    page.run("[...document.querySelectorAll('.talk')].find("
             "t => t.innerText.includes('old question')).click()")
    page.until(LOG + ".innerText.includes('old answer late piece later piece')")


def test_what_another_tab_wrote_stays(page, url, key):
    begin(page)
    say(page, "here")
    answer(page, "first")
    page.run("""{ const name = "weir.talk." + sessionStorage.getItem("weir.shown");
      const talk = JSON.parse(localStorage.getItem(name));
      talk.nodes[3] = { id: 3, parent: 2, role: "user", content: "there" };
      localStorage.setItem(name, JSON.stringify({ ...talk, leaf: 3 }));
      dispatchEvent(new StorageEvent("storage", { key: name })); } true""")
    say(page, "and here")
    answer(page, "second")
    assert [n["content"] for n in kept(page)["nodes"].values()] == \
        ["here", "first", "there", "and here", "second"], kept(page)
    assert "there" not in text_of(page).split() and "2/2" in text_of(page)


def test_two_tabs_answer_at_the_same_time(page, url, key):
    begin(page)
    say(page, "before")
    answer(page, "both")
    shown = page.run("sessionStorage.getItem('weir.shown')")
    other = Page(page.browser)
    try:
        other.open(url)
        other.run("sessionStorage.setItem('weir.key', %s); "
                  "sessionStorage.setItem('weir.shown', %s); true" % (quoted(key), quoted(shown)))
        other.reload()
        other.until(LOG + ".innerText.includes('both')")
        other.run(PLAYER)
        for tab, text in ((page, "one"), (other, "two")):
            say(tab, "ask " + text)
            tab.until("document.getElementById('stop').hidden === false")
            tab.run("play('half %s'); true" % text)
        for tab in (other, page):
            tab.run("play(' rest'); finish(); true")
            is_idle(tab)
        wanted = {"before": None, "both": "before", "ask one": "both", "half one rest": "ask one",
                  "ask two": "both", "half two rest": "ask two"}
        page.until("(localStorage['weir.talk.' + %s].match(/ rest/g) || []).length === 2"
                   % quoted(shown))
        nodes = kept(page)["nodes"]
        parents = {n["content"]: nodes.get(str(n["parent"]), {}).get("content")
                   for n in nodes.values()}
        assert parents == wanted and len(nodes) == len(wanted), nodes
        # A tab that wrote before it had read the other's turns: they are written again.
        name = quoted("weir.talk." + shown)
        other.run("""{ const talk = JSON.parse(localStorage.getItem(%s));
          for (const node of Object.values(talk.nodes))
            if (node.content.includes("one")) delete talk.nodes[node.id];
          localStorage.setItem(%s, JSON.stringify({ ...talk, leaf: 0 })); } true""" % (name, name))
        page.until("JSON.stringify(localStorage).includes('half one rest')")
        assert len(kept(page)["nodes"]) == len(wanted), kept(page)
        say(page, "after")
        answer(page, "end")
        assert "2/2" in text_of(page) or "1/2" in text_of(page), text_of(page)
        assert page.run("asked.at(-1).messages.map(m => m.content)") == \
            ["before", "both", "ask one", "half one rest", "after"]
    finally:
        other.close()


def test_enter_does_not_stop(page, url, key):
    begin(page)
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
    is_idle(page)
    assert page.run("aborted") == 1 and "one two" in text_of(page)
    page.run("document.getElementById('text').value = ''")


def test_an_edit_that_is_cancelled_stops_no_answer(page, url, key):
    begin(page)
    say(page, "tell me")
    page.until("document.getElementById('stop').hidden === false")
    press_button(page, "Edit", LOG)
    page.press("Escape")
    assert page.run("aborted") == 0
    page.run("play('told'); finish(); true")
    is_idle(page)
    assert "told" in text_of(page)
    page.run("[...document.querySelectorAll('#log button')].find("
             "b => b.textContent === 'Regenerate').focus(); document.activeElement.click()")
    assert page.run("document.activeElement.id") == "log", "the focus is not lost"
    answer(page, "again")


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
    is_idle(page)


def test_reload_during_an_answer(page, url, key):
    begin(page)
    say(page, "half")
    page.until("document.getElementById('stop').hidden === false")
    page.run("play('begun'); true")
    page.until(LOG + ".innerText.includes('begun')")
    page.reload()
    page.until(LOG + ".innerText.includes('begun')")
    assert "half" in text_of(page)


def test_failures_are_said(page, url, key):
    begin(page)
    page.run("""window.player = window.fetch; window.fetch = (path, options) =>
      path === "/v1/chat/completions" ? Promise.resolve(new Response(
        JSON.stringify({ error: { message: "no room" } }), { status: 503 }))
      : realFetch(path, options); true""")
    say(page, "once more")
    page.until(LOG + ".innerText.includes('no room')")
    assert page.run("document.querySelector('.problem').getAttribute('role')") == "alert"
    assert len(kept(page)["nodes"]) == 1
    page.run("window.fetch = window.player; true")
    press_button(page, "Try again", LOG)
    answer(page, "now it works")
    assert sent(page) == [("user", "once more")] and "no room" not in text_of(page)


def set_field(page, name, value):
    page.run("document.getElementById('set-%s').value = %s" % (name, quoted(value)))


def test_settings_are_sent(page, url, key):
    begin(page)
    click(page, "show-settings")
    page.until("document.getElementById('settings').open")
    assert page.run("document.getElementById('set-temperature').placeholder") != "default"
    set_field(page, "tools", "{")
    press_button(page, "Apply")
    assert "Tools" in text_of(page, "set-problem") and page.run(
        "document.getElementById('settings').open")
    tools = '[{"type": "function", "function": {"name": "get_time", "parameters": {}}}]'
    for name, value in (("tools", tools), ("system", "Be brief."), ("temperature", "0.5"),
                        ("top_k", "7"), ("seed", "3"), ("kv_policy", "h2o"),
                        ("kv_budget", "64"), ("reasoning_effort", "low")):
        set_field(page, name, value)
    press_button(page, "Apply")
    say(page, "time?")
    page.until("asked.length === 1")
    body = page.run("asked[0]")
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    fields = {name: body.get(name) for name in ("temperature", "top_k", "seed", "kv_policy",
                                                "kv_budget", "reasoning_effort", "top_p")}
    assert fields == {"temperature": 0.5, "top_k": 7, "seed": 3, "kv_policy": "h2o",
                      "kv_budget": 64, "reasoning_effort": "low", "top_p": None}, fields
    assert body["tools"][0]["function"]["name"] == "get_time"


def test_calls_of_tools_are_shown_and_answered(page, url, key):
    page.run("""feedDelta({ reasoning_content: "hm" });
      feedDelta({ tool_calls: [{ index: 0, id: "c1", type: "function",
                             function: { name: "get_time", arguments: "" } }] });
      feedDelta({ tool_calls: [{ index: 0, function: { arguments: '{"zone":"UTC"}' } }] });
      finish(); true""")
    is_idle(page)
    assert '"zone": "UTC"' in text_of(page) and "Reasoning" in text_of(page)
    page.run("document.querySelector('.call textarea').value = '12:00'")
    press_button(page, "Send results", LOG)
    answer(page, "noon")
    messages = page.run("asked.at(-1).messages")
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == '{"zone":"UTC"}'
    assert messages[2]["reasoning_content"] == "hm"
    assert messages[3] == {"role": "tool", "content": "12:00", "tool_call_id": "c1"}, messages[3]
    click(page, "show-settings")
    for name in ("tools", "system", "temperature", "top_k", "seed", "kv_policy", "kv_budget",
                 "reasoning_effort"):
        set_field(page, name, "")
    press_button(page, "Apply")


def give_file(page, name, content):
    page.run("""{ const all = new DataTransfer();
      all.items.add(new File([%s], %s)); const input = document.getElementById("files");
      input.files = all.files; input.dispatchEvent(new Event("change")); } true"""
             % (content, quoted(name)))


def test_text_files_are_attached(page, url, key):
    begin(page)
    give_file(page, "a.bin", "new Uint8Array([255, 254, 0])")
    page.until("document.getElementById('file-problem').innerText.includes('not text')")
    give_file(page, "big.txt", "'x'.repeat(1100000)")
    page.until("document.getElementById('file-problem').innerText.includes('larger')")
    give_file(page, "note.md", quoted("a\n```\nb"))
    page.until("document.getElementById('attached').innerText.includes('note.md')")
    say(page, "read it")
    page.until("asked.length === 1")
    assert sent(page) == [("user", "note.md:\n````\na\n```\nb\n````\n\nread it")], sent(page)
    answer(page, "read")
    assert text_of(page, "attached") == "" and "note.md" in text_of(page)


def test_kept_on_the_server(page, url, key):
    page.run("window.fetch = window.realFetch; true")
    click(page, "new")
    click(page, "show-settings")
    page.until("!document.getElementById('set-kept').disabled")
    set_field(page, "max_tokens", "4")
    page.run("document.getElementById('set-kept').checked = true")
    press_button(page, "Apply")
    text = "Keep this, please. " * 12
    title = text[:60].strip()
    say(page, text.strip())
    page.until("!!document.querySelector('.assistant .content')", 30)
    is_idle(page)
    listed = ("realFetch('/v1/sessions', { headers: { Authorization: 'Bearer ' + "
              "sessionStorage.getItem('weir.key') } }).then(r => r.json()).then(r => "
              "r.data.some(s => s.id === 'page-' + %s))")
    name = quoted(page.run("sessionStorage.getItem('weir.shown')"))
    page.until(listed % name)
    assert "on the server" in text_of(page, "talks")
    press_button(page, "Delete " + title)
    press_button(page, "Sure? Delete " + title)
    page.until("%s.then(found => !found)" % (listed % name))
    page.run(PLAYER)


def test_what_the_server_did_not_keep_is_said(page, url, key):
    begin(page)
    click(page, "show-settings")
    page.run("document.getElementById('set-kept').checked = true")
    press_button(page, "Apply")
    page.run("""{ const player = window.fetch; window.fetch = (path, options) =>
      path.startsWith("/v1/sessions") ? Promise.reject(new TypeError("gone"))
      : player(path, options); } true""")
    say(page, "Lost")
    answer(page, "indeed")
    page.until("document.getElementById('keep-problem').innerText === "
               "'Not saved on the server: gone'")
    press_button(page, "Delete Lost")
    press_button(page, "Sure? Delete Lost")
    page.until("document.getElementById('keep-problem').innerText === 'Still on the server: gone'")
