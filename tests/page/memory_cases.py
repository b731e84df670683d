"""The memory map beside the chat: what it shows is what the server says."""
from player import begin, bytes_text, click, is_idle, quoted, say, text_of

ASK = ("realFetch(%s, { headers: { Authorization: 'Bearer ' + sessionStorage.getItem('weir.key') "
       "} }).then(r => r.json())")


def ask(page, path):
    return page.run(ASK % quoted(path))


def choose(page, name, value):
    page.run("{ const e = document.getElementById('if-%s'); e.value = %s; "
             "e.dispatchEvent(new Event('input')); } true" % (name, quoted(str(value))))


def test_memory_shows_the_accounts(page, url, key):
    begin(page)
    page.run("window.fetch = window.realFetch; true")
    click(page, "show-memory")
    page.until("document.querySelectorAll('#accounts tr').length > 4")
    assert page.run("document.getElementById('show-memory').getAttribute('aria-expanded')") == \
        "true"
    memory = ask(page, "/v1/memory")
    accounts = memory["tiers"]["host"]["accounts"]
    shown = page.run("Object.fromEntries([...document.querySelectorAll('#accounts tr')].map("
                     "r => [r.cells[0].innerText, r.cells[1].innerText]))")
    named = {name.replace("_", " ") for name, size in accounts.items() if size > 0}
    assert named <= set(shown), (named, shown)
    assert shown["kv"] == bytes_text(accounts["kv"]), shown
    page.run("""document.querySelector("#accounts summary").focus();
      window.fetch = (path, options) => path !== "/v1/memory" ? realFetch(path, options)
        : realFetch(path, options).then(r => r.json()).then(m =>
            new Response(JSON.stringify({ ...m, preemptions: 7777 })));
      document.dispatchEvent(new CustomEvent("weir-turn"))""")
    page.until("document.getElementById('kv-memory').innerText.includes('7,777')")
    assert page.run("document.activeElement.matches('#accounts summary')"), "the focus stays"
    page.run("window.fetch = window.realFetch; true")
    assert "of %d pages" % memory["kv"]["pages"] in text_of(page, "kv-memory").replace(",", "")


def test_memory_says_what_a_turn_reused(page, url, key):
    say(page, "Tell me something long about rivers and weirs.")
    page.until("!!document.querySelector('.assistant .content')", 30)
    is_idle(page)
    say(page, "And more.")
    page.until("document.getElementById('send').hidden")
    is_idle(page)
    usage = page.run("Object.values(JSON.parse(localStorage['weir.talk.' + "
                     "sessionStorage['weir.shown']]).nodes).at(-1).figures.usage")
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0 and usage["prompt_tokens_details"]["matched_tokens"] >= cached, usage
    turn = text_of(page, "turn-memory")
    assert "%d tokens" % cached in turn, turn
    assert usage["prompt_tokens_details"]["reuse"] in turn, (usage, turn)


def test_what_if_multiplies_the_plan(page, url, key):
    plan, memory = ask(page, "/v1/memory/plan"), ask(page, "/v1/memory")
    page.until("document.getElementById('if-format').options.length > 0")
    formats = {f["format"]: f for f in plan["formats"]}
    own = formats[memory["kv"]["format"]]
    assert own["bytes_per_block"] == memory["kv"]["bytes_per_token"] * plan["block_tokens"]
    choose(page, "format", memory["kv"]["format"])
    choose(page, "context", page.run("document.getElementById('if-context').max"))
    assert text_of(page, "if-context-value").replace(",", "") == \
        str(max(plan["window"], plan["trained_context"]))
    choose(page, "sequences", plan["sequences"] + 1)
    choose(page, "context", 48)  # 64 tokens
    assert "sequences at most" in text_of(page, "if-result")
    choose(page, "sequences", plan["sequences"])
    assert "Fits" in text_of(page, "if-result")
    choose(page, "context", 80)  # 2 ^ (80 / 8) tokens
    choose(page, "sequences", 2)
    each = 16 * own["bytes_per_block"] + own["open_bytes_per_sequence"] + \
        plan["recurrent_bytes_per_sequence"] + plan["window_bytes_per_sequence"]
    assert bytes_text(2 * each) in text_of(page, "if-result")
    assert "keep their bits" in text_of(page, "if-result")
    choose(page, "policy", "h2o")
    choose(page, "budget", 64)  # 256 rows
    assert "256 rows" in text_of(page, "if-result"), text_of(page, "if-result")
    assert "may change" in text_of(page, "if-result")
    choose(page, "policy", "full")
    choose(page, "sequences", page.run("document.getElementById('if-sequences').max"))
    choose(page, "context", page.run("document.getElementById('if-context').max"))
    large = text_of(page, "if-result")
    choose(page, "format", "f32" if memory["kv"]["format"] != "f32" else "f16")
    assert text_of(page, "if-result") != large, "the format counts"


def test_memory_is_asked_for_only_while_it_is_shown(page, url, key):
    click(page, "show-memory")
    page.run("""window.reads = 0; window.fetch = (path, options) => {
      reads += path === "/v1/memory"; return realFetch(path, options); };
      new Promise(done => setTimeout(() => done(true), 1200))""")
    assert page.run("reads") == 0
    click(page, "show-memory")
    page.until("reads > 0")


# Two layers of two KV heads, 128 tokens. The first: one page shared, one not; a head that is on
# disk. The second: heads of which a policy has dropped all but 32 and 96 rows.
RUNNING = """window.mapReads = 0; window.isRunning = false;
  const map = { object: "memory.map", page_tokens: 64, cut: true, sequences: [{ id: 7, choice: 0,
    tokens: 128, kv_bytes: 1, policy: "h2o", layers: [
      { rows: [128, 128], pages: [2, 2], cold: [0, 2], shared: [1, 0] },
      { rows: [32, 96], pages: [1, 2], cold: [0, 0], shared: [0, 0] }] }] };
  window.fetch = async (path, options) => {
    mapReads += path === "/v1/memory/map";
    if (path === "/v1/memory/map") return new Response(JSON.stringify(map));
    const reply = await realFetch(path, options);
    if (path !== "/v1/memory") return reply;
    return new Response(JSON.stringify({ ...await reply.json(),
      sequences: isRunning ? [{ id: 7, choice: 0, tokens: 128, bytes: 1, kv_bytes: 1 }] : [] }));
  };
  document.dispatchEvent(new CustomEvent("weir-turn")); true"""


def test_map_shows_the_rows_of_each_head(page, url, key):
    begin(page)
    page.run(RUNNING.replace("const map", "window.oneMap").replace("stringify(map)",
                                                                   "stringify(oneMap)"))
    page.run("""realFetch("/v1/models").then(() => true)""")
    assert page.run("mapReads") == 0, "nothing runs"
    page.run("isRunning = true; document.dispatchEvent(new CustomEvent('weir-turn')); true")
    page.until("document.querySelectorAll('#kv-map .cell').length === 4")
    assert page.run("[...document.querySelectorAll('#kv-map .cell')].map(c => c.title)") == [
        "Layer 0, KV head 0: 64 in memory, 64 in memory, shared",
        "Layer 0, KV head 1: 128 on a lower tier",
        "Layer 1, KV head 0: 32 in memory, 96 dropped",
        "Layer 1, KV head 1: 96 in memory, 32 dropped"]
    parts = page.run("[...document.querySelectorAll('#kv-map .cell')].map(c => "
                     "[...c.children].map(i => i.className + parseFloat(i.style.width)))")
    assert parts[0][:2] == ["own50", "shared50"] and parts[2][3] == "gone75", parts
    label = page.run("document.querySelector('#kv-map [role=img]').getAttribute('aria-label')")
    assert "128 tokens with h2o: 192 in memory, 64 in memory, shared, 128 on a lower tier, " \
        "128 dropped" in label, label
    page.run("document.querySelector('#kv-map summary').focus()")
    page.press("Enter")
    assert page.run("[...document.querySelectorAll('#kv-map tbody tr')].map(r => "
                    "[...r.cells].map(c => c.textContent))") == [
        ["0", "64", "64", "128", "0"], ["1", "128", "0", "0", "128"]]
    assert "Not all" in text_of(page, "kv-map")
    before = page.run("mapReads")
    page.until("mapReads > %d" % before)  # what was open and had the focus stays so
    page.until("document.querySelector('#kv-map details').open")
    assert page.run("document.activeElement.matches('#kv-map summary')")
    page.run("window.fetch = window.realFetch; true")
