/* tests/unit/text/chat_test.cc - the language of chat templates, where text came from, continued
 * messages, bounds. */
#include "engine/text/chat.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "tests/every_nth.h"

namespace {

using json = std::unique_ptr<json_t, decltype(&json_decref)>;

json parse(const std::string &text)
{
    json value(
        json_loadb(text.data(), text.size(), JSON_ALLOW_NUL | JSON_DECODE_ANY, nullptr), json_decref
    );
    EXPECT_NE(value, nullptr) << text;
    return value;
}

struct options {
    std::string messages = "[]", tools, variables;
    bool generation = false, continued = false;
};

struct result {
    weir_status status = WEIR_OK;
    std::string text, error;
    std::string user; /* 'u' for each byte that came from a user, '.' for the others */
};

result render_json(const std::string &source, weir_chat_input *input)
{
    weir_error error = {};
    weir_chat_template *chat = nullptr;
    weir_chat_output output = {};
    result out;
    out.status = weir_chat_template_open(&chat, source.data(), source.size(), &error);
    if (out.status == WEIR_OK) out.status = weir_chat_render(chat, &output, input, &error);
    weir_chat_template_close(chat);
    out.error = error.text;
    if (out.status != WEIR_OK) {
        EXPECT_EQ(error.code, out.status);
        EXPECT_NE(out.error, "");
        return out;
    }
    out.text.assign(output.text.data ? output.text.data : "", output.text.size);
    out.user.assign(out.text.size(), '.');
    for (size_t i = 0; i < output.n_user; i++) {
        EXPECT_LT(output.user[i].begin, output.user[i].end);
        if (i > 0) EXPECT_LT(output.user[i - 1].end, output.user[i].begin);
        for (size_t at = output.user[i].begin; at < output.user[i].end && at < out.user.size();
             at++)
            out.user[at] = 'u';
    }
    weir_chat_output_free(&output);
    return out;
}

result render(const std::string &source, const options &o = {})
{
    const json messages = parse(o.messages), tools = parse(o.tools.empty() ? "null" : o.tools),
               variables = parse(o.variables.empty() ? "{}" : o.variables);
    weir_chat_input input = {};
    input.messages = messages.get();
    input.tools = o.tools.empty() ? nullptr : tools.get();
    input.variables = variables.get();
    input.add_generation_prompt = o.generation;
    input.continue_final_message = o.continued;
    input.now_unix_seconds = 1795185000; /* 2026-11-20 14:30:00 */
    return render_json(source, &input);
}

options with_text(const std::string &content)
{
    const json message(
        json_pack(
            "[{s:s, s:s#}]", "role", "user", "content", content.data(),
            static_cast<int>(content.size())
        ),
        json_decref
    );
    char *text = json_dumps(message.get(), 0);
    options o;
    o.messages = text;
    free(text);
    return o;
}

} // namespace

/* Each line: a template and the text that Jinja2 3.1 gives for it (trim_blocks, lstrip_blocks, loop
 * controls), or that it refuses. */
TEST(Jinja, GivesWhatJinja2Gives)
{
    std::ifstream in("tests/unit/text/jinja_cases.jsonl");
    std::string line;
    size_t n = 0;
    ASSERT_TRUE(std::getline(in, line));
    const json first = parse(line), messages = parse("[]");
    weir_chat_input input = {};
    input.messages = messages.get();
    input.variables = json_object_get(first.get(), "variables");
    input.now_unix_seconds = 1795185000;
    for (; std::getline(in, line); n++) {
        const json record = parse(line);
        const json_t *source = json_object_get(record.get(), "t"),
                     *text = json_object_get(record.get(), "out");
        const std::string text_of_template(json_string_value(source), json_string_length(source));
        const result got = render_json(text_of_template, &input);
        if (text) {
            EXPECT_EQ(got.text, std::string(json_string_value(text), json_string_length(text)))
                << text_of_template << "\n"
                << got.error;
        } else {
            EXPECT_TRUE(got.status == WEIR_EINVAL || got.status == WEIR_EFORMAT)
                << text_of_template << "\n"
                << got.text;
        }
    }
    EXPECT_GE(n, 270u);
}

TEST(Jinja, ErrorsNameTheLine)
{
    EXPECT_EQ(render("a\n\n{{ x. }}").error, "chat template, line 3: a name is expected here");
    EXPECT_EQ(
        render("a\n{% if true %}\n{{ x.y }}{% endif %}").error,
        "chat template, line 3: 'x' is undefined"
    );
    EXPECT_EQ(render("{{ raise_exception('No \"tools\" here.') }}").error, "No \"tools\" here.");
    EXPECT_EQ(render("{{ 1 / 0 }}").status, WEIR_EINVAL);
    EXPECT_EQ(render("{% include 'x' %}").status, WEIR_EFORMAT);
}

TEST(Jinja, NothingOfTheHostIsReached)
{
    for (const char *source :
         { "{{ x.__class__ }}", "{{ ''.__class__ }}", "{{ [].__class__.__mro__ is defined }}",
           "{{ raise_exception.__globals__ }}" }) {
        const result got = render(source);
        EXPECT_TRUE(got.status == WEIR_EINVAL || got.text == "") << source << got.text;
    }
}

/* Published templates keep queues of tool calls this way, which Jinja2's immutable sandbox
 * refuses. */
TEST(Jinja, ListsAndDictionariesCanBeChanged)
{
    EXPECT_EQ(
        render("{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}{{ l.pop(0) }}{{ l }}{% set "
               "_ = l.insert(0, 9) %}{% set _ = "
               "l.extend([7]) %}{{ l }}")
            .text,
        "[1, 2]1[2][9, 2, 7]"
    );
    EXPECT_EQ(
        render("{% set d = {'a': 1} %}{% set _ = d.update({'b': 2}) %}{{ d.pop('a') }}{{ d "
               "}}{{ d.setdefault('c', 3) }}{{ d | length }}")
            .text,
        "1{'b': 2}32"
    );
    EXPECT_EQ(render("{{ [].pop() }}").status, WEIR_EINVAL);
    EXPECT_EQ(
        render("{% for k in range(40) %}{% endfor %}{% set d = {} %}{% for k in range(40) "
               "%}{% set _ = d.update({k: k * 2}) %}{% endfor %}"
               "{% for k in range(0, 40, 3) %}{% set _ = d.pop(k) %}{% endfor %}{{ d | "
               "length }} {{ d.get(39) }} {{ d[38] }} {{ 36 in d }}")
            .text,
        "26 None 76 False"
    );
}

TEST(Jinja, JsonTextBecomesValues)
{
    options o = with_text("{\"a\": [1, \"<x>\"]}");
    const result got =
        render("{% set v = messages[0].content | from_json %}{{ v.a[1] }}|{{ v.a[0] + 1 }}", o);
    EXPECT_EQ(got.text, "<x>|2");
    EXPECT_EQ(got.user, "uuu..");
    EXPECT_EQ(render("{{ '{' | from_json }}").status, WEIR_EINVAL);
}

/* ---- where text came from -------------------------------------------------------------------- */

TEST(Provenance, SurvivesEveryOperation)
{
    static const struct {
        const char *source, *text, *user;
    } cases[] = {
        { "<{{ c }}>", "<a<b> c>", ".uuuuuu." },
        { "{{ 'x' + c + 'y' }}", "xa<b> cy", ".uuuuuu." },
        { "{{ 'x' ~ c ~ 1 }}", "xa<b> c1", ".uuuuuu." },
        { "{{ ('x' + c)[1:4] }}{{ ('x' + c)[:2] }}{{ c[::-1] }}", "a<bxac >b<a", "uuu.uuuuuuu" },
        { "{{ ('x' + c)[0] }}{{ ('x' + c)[1] }}", "xa", ".u" },
        { "{{ (' ' + c + ' ') | trim }}{{ ('-' + c).strip('-c') }}", "a<b> ca<b> ", "uuuuuuuuuuu" },
        { "{{ c.split('<')[1] }}{{ (c + ',q').split(',')[1] }}", "b> cq", "uuuu." },
        { "{{ c | replace('b', 'XY') }}", "a<XY> c", "uu..uuu" },
        { "{{ 'one two'.replace('two', c) }}", "one a<b> c", "....uuuuuu" },
        { "{{ ['p', c] | join('-') }}{{ '+'.join([c, 'q']) }}", "p-a<b> ca<b> c+q",
          "..uuuuuuuuuuuu.." },
        { "{{ ('k' + c) | upper }}{{ c.title() }}", "KA<B> CA<B> C", ".uuuuuuuuuuuu" },
        { "{{ '%s|%5s' % (c, 'z') }}", "a<b> c|    z", "uuuuuu......" },
        { "{{ c | tojson }}", "\"a<b> c\"", "uuuuuuuu" },
        { "{{ {'k': c} | tojson }}", "{\"k\": \"a<b> c\"}", "......uuuuuuuu." },
        { "{{ messages[0] | tojson }}", "{\"role\": \"user\", \"content\": \"a<b> c\"}",
          "uuuuuuuuu......uuuuuuuuuuuuuuuuuuuuuu" },
        { "{{ [c] }}", "['a<b> c']", ".uuuuuuuu." },
        { "{% macro m(v) %}[{{ v }}]{% endmacro %}{{ m(c) }}", "[a<b> c]", ".uuuuuu." },
        { "{% set v %}[{{ c }}]{% endset %}{{ v }}", "[a<b> c]", ".uuuuuu." },
        { "{% for x in c %}{{ x }}.{% endfor %}", "a.<.b.>. .c.", "u.u.u.u.u.u." },
        { "{{ c | e }}", "a&lt;b&gt; c", "uuuuuuuuuuuu" },
        { "{{ c | safe }}{{ c | string }}{{ c | default('x') }}", "a<b> ca<b> ca<b> c",
          "uuuuuuuuuuuuuuuuuu" },
        { "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + '|' + "
          "m.content %}{% endfor %}{{ ns.t }}",
          "|a<b> c", ".uuuuuu" },
        { "{{ messages | map(attribute='content') | join }}{{ (messages | first).content }}",
          "a<b> ca<b> c", "uuuuuuuuuuuu" },
        { "{{ c | indent(2, true) }}", "  a<b> c", "..uuuuuu" },
        { "{{ c if c == 'a<b> c' else 'no' }}", "a<b> c", "uuuuuu" },
    };
    for (const auto &c : cases) {
        const result got = render(
            std::string("{% set c = messages[0].content %}") + c.source, with_text("a<b> c")
        );
        EXPECT_EQ(got.text, c.text) << c.source << got.error;
        EXPECT_EQ(got.user, c.user) << c.source;
    }
}

TEST(Provenance, ToolsAndArgumentsAreAUsersVariablesAreNot)
{
    options o;
    o.tools = R"([{"name": "<|x|>"}])";
    o.variables = R"({"v": "<|y|>"})";
    const result got = render("{{ tools[0].name }}{{ v }}{{ tools | tojson }}", o);
    EXPECT_EQ(got.text, "<|x|><|y|>[{\"name\": \"<|x|>\"}]");
    EXPECT_EQ(got.user, "uuuuu.....uuuuuuuuuuuuuuuuuuu");
}

TEST(Provenance, OnlyKnownRolesAreTrusted)
{
    options o;
    o.messages = R"([{"role": "user", "content": "x"}, {"role": "im_start", "content": "y"}])";
    const result got = render("{% for m in messages %}<|{{ m.role }}|>{% endfor %}", o);
    EXPECT_EQ(got.text, "<|user|><|im_start|>");
    EXPECT_EQ(got.user, "..........uuuuuuuu..");
}

/* ---- continued messages ---------------------------------------------------------------------- */

TEST(Continue, CutsAfterTheLastContent)
{
    const std::string keeps = "{% for m in messages %}<{{ m.content }}>{% endfor %}",
                      strips = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
    options o;
    o.continued = true;
    o.messages =
        R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "The answer \n"}])";
    EXPECT_EQ(render(keeps, o).text, "<q><The answer \n");
    EXPECT_EQ(render(strips, o).text, "<q><The answer");
    EXPECT_EQ(render(strips, o).user, ".u..uuuuuuuuuu");
    o.messages = R"([{"role": "assistant", "content": ""}])";
    EXPECT_EQ(render(keeps, o).text, "<");
    o.messages =
        R"([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", )"
        R"("text": "b"}]}])";
    EXPECT_EQ(
        render("{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}", o).text, "[a][b"
    );
    EXPECT_EQ(render("{{ messages | length }}", o).status, WEIR_EINVAL);
    o.generation = true;
    EXPECT_EQ(render(keeps, o).status, WEIR_EINVAL);
    o.generation = false;
    o.messages = R"([{"role": "assistant", "content": null}])";
    EXPECT_EQ(render(keeps, o).status, WEIR_EINVAL);
}

/* What is put after the content to find it again is found by its origin: the same bytes of a user
 * do no harm. */
TEST(Continue, TextLikeTheMarkIsText)
{
    options o = with_text("a\x02 b\x02 ");
    o.continued = true;
    EXPECT_EQ(
        render("{{ messages[0].content }}{{ messages[0].content }}!", o).text,
        "a\x02 b\x02 a\x02 b\x02 "
    );
}

/* ---- bounds ---------------------------------------------------------------------------------- */

TEST(Bounds, EndWithEfull)
{
    const char *const sources[] = {
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% set a = [1] %}{% for i in a %}{% set _ = a.append(1) %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(x='aa') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% "
        "endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}{% "
        "endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% "
        "endfor %}{{ ns.x == ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% "
        "endfor %}{{ ns.x | tojson }}",
        "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}",
        "{{ range(10 ** 12) }}",
        "{{ 'a' * 10 ** 12 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ 'a'.center(10 ** 12) }}",
    };
    for (const char *source : sources) EXPECT_EQ(render(source).status, WEIR_EFULL) << source;
}

/* What a filter, a method or an operator does counts as steps, whatever it makes of it. Each of
 * these is far past the limit, and would be far below it if calls alone were counted. */
TEST(Bounds, WorkCountsAsSteps)
{
    const struct {
        const char *expression;
        int times;
    } cases[] = {
        { "(['a' * 100000] * 3000) | sort", 1 },
        { "(['a' * 100000] * 3000) | unique | list", 1 },
        { "(['a' * 100000] * 3000) | min", 1 },
        { "(['a' * 100000] * 3000) | max", 1 },
        { "(['a' * 100000] * 3000) | map('upper') | first", 1 },
        { "s | upper", 40 },
        { "s.title()", 40 },
        { "s is lower", 40 },
        { "s | trim('ba')", 40 },
        { "s.lstrip('ba')", 40 },
        { "s.rfind(('a' * 500) ~ 'b')", 40 },
        { "s.rsplit(('a' * 500) ~ 'b')", 40 },
        { "s.rpartition(('a' * 500) ~ 'b')", 40 },
        { "s.partition('b')", 400 },
        { "s.find('b')", 400 },
        { "s.count('b')", 400 },
        { "s | replace('', 'b')", 20 },
        { "s.split()", 200 },
        { "s.rsplit()", 200 },
        { "s.split('b')", 400 },
        { "s.splitlines()", 200 },
        { "s.isalpha()", 200 },
        { "s | wordcount", 200 },
        { "s | indent", 100 },
        { "s | escape", 100 },
        { "s | tojson", 100 },
        { "[s] | string", 40 },
        { "s[::-1]", 100 },
        { "'b' in s", 400 },
        { "u[499999]", 200 },
        { "u[1:2]", 200 },
        { "(u ~ '') | length", 90 },
        { "('_' * 1000000) | int", 30 },
        { "l | sum", 100 },
        { "l | first", 100 },
        { "d[t]", 9000 },
        { "d.get(t)", 9000 },
        { "t in d", 9000 },
        { "t.startswith((s, s, s, s))", 3000 },
        { "t.removeprefix(s)", 9000 },
        { "j | from_json | length", 15 },
        { "'%*d' % (10000, 1)", 9000 },
    };
    for (size_t i = 0; i < std::size(cases); i += (size_t)weir_test::every_nth(6)) {
        const auto &c = cases[i];
        const std::string source =
            "{% set s = 'a' * 1000 * 1000 %}{% set t = s ~ '' %}{% set d = {s: 1} %}"
            "{% set u = '\u00e9' * 1000 * 500 %}{% set l = [1] * 1000 * 1000 %}"
            "{% set j = '[' ~ '[],' * 100000 ~ '[]]' %}"
            "{% for i in range(" +
            std::to_string(c.times) +
            ") %}"
            "{% set x = " +
            c.expression + " %}{% endfor %}";
        const result out = render(source);
        EXPECT_EQ(out.status, WEIR_EFULL) << c.expression << ": " << out.error;
        EXPECT_NE(out.error.find("too many steps"), std::string::npos) << c.expression << out.error;
    }
}

/* A long conversation costs little of that. */
TEST(Bounds, LongTextsAreRead)
{
    options o =
        with_text(std::string(1000000, 'x') + " <think> y </think> " + std::string(100, ' '));
    EXPECT_EQ(
        render(
            "{% for m in messages * 20 %}{% set c = m.content | trim %}"
            "{% if '<think>' in c and c.startswith('x') and not c.endswith('z') %}"
            "{% set p = c.split('</think>')[-1].lstrip('\\n') %}{{ p }}{% endif %}"
            "{{ m | tojson | length }}{% endfor %}",
            o
        )
            .status,
        WEIR_OK
    );
}

TEST(Numbers, PowersThatDoNotFitAreOutOfRange)
{
    for (const char *const power :
         { "2 ** 100000", "2 ** 63", "(-2) ** 64", "10 ** 19", "3 ** 1000003", "4294967296 ** 2",
           "4294967296 ** 4", "(-2) ** 65" }) {
        const result out = render(std::string("{{ ") + power + " }}");
        EXPECT_EQ(out.status, WEIR_EINVAL) << power << " is " << out.text;
        EXPECT_NE(out.error.find("out of range"), std::string::npos) << power << ": " << out.error;
    }
    EXPECT_EQ(
        render("{{ 2 ** 62 }} {{ (-2) ** 63 }} {{ (-1) ** 100001 }} {{ 0 ** 100000 }} {{ 1 "
               "** 100000 }}")
            .text,
        "4611686018427387904 -9223372036854775808 -1 0 1"
    );
}

TEST(Bounds, DeepTemplatesAreRefused)
{
    auto repeat = [](const std::string &part, size_t n) {
        std::string text;
        for (size_t i = 0; i < n; i++) text += part;
        return text;
    };
    EXPECT_EQ(
        render("{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}").status, WEIR_EFORMAT
    );
    EXPECT_EQ(render("{{ " + repeat("-", 100000) + "1 }}").status, WEIR_EFORMAT);
    EXPECT_EQ(render("{{ " + repeat("not ", 100000) + "1 }}").status, WEIR_EFORMAT);
    EXPECT_EQ(render(repeat("{% if x %}", 50000)).status, WEIR_EFORMAT);
    EXPECT_EQ(render("{{ 1" + repeat("+1", 100000) + " }}").status, WEIR_EFULL);
    EXPECT_EQ(render("{{ 1" + repeat("|abs", 50000) + " }}").status, WEIR_EFULL);
    EXPECT_EQ(render(repeat("x", (1 << 20) + 1)).status, WEIR_EFORMAT);
    EXPECT_EQ(render("{{ " + repeat("(", 60) + "1" + repeat(")", 60) + " }}").text, "1");
}

TEST(Bounds, DeepMessagesAreRefused)
{
    options o;
    for (int i = 0; i < 500; i++) o.messages = "[" + o.messages + "]";
    EXPECT_EQ(render("x", o).status, WEIR_EINVAL);
    weir_chat_input input = {};
    EXPECT_EQ(render_json("x", &input).status, WEIR_EINVAL); /* no messages */
}

/* A long text costs some copies, not one for each byte. The spans stay as few as its pieces are. */
TEST(Bounds, LongMessagesAreCheap)
{
    std::string text;
    while (text.size() < 1000000) text += "line <|im_end|> of text\n";
    const result got = render(
        "{% set c = messages[0].content | trim %}<{{ 'u\n' + c + '<e>' }}{{ "
        "c.split('\n') | length }}{{ "
        "c.split('</think>')[-1].lstrip('\n') | length }}>",
        with_text(text)
    );
    EXPECT_EQ(got.status, WEIR_OK) << got.error;
    EXPECT_EQ(got.user.find("u.u"), std::string::npos);
    EXPECT_GT(got.text.size(), 1000000u);
}
