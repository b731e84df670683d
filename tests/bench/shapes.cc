#include "tests/bench/shapes.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "engine/engine_parts.h"
#include "tests/unit/schedule/call.h"

namespace shapes {

namespace {

using Ids = std::vector<int32_t>;

enum { OPENING = 1, ROLE = 2, CLOSING = 3, NEW_LINE = 4, FIRST_WORD = 5, WORDS = 200, TOOLS = 3 };

struct Turn {
    Ids user, answer;
};

struct Conversation {
    Ids system;
    std::vector<Turn> turns;
    bool strips = false; // thoughts of earlier turns are left out
};

class Runner {
  public:
    explicit Runner(const Options &options) : options_(options) {}
    Runner(const Runner &) = delete;
    Runner &operator=(const Runner &) = delete;
    ~Runner() { weir_engine_close(engine_); }

    bool open()
    {
        static weir_config config;
        weir_config_default(&config);
        (void)snprintf(config.model.path, sizeof config.model.path, "%s", options_.model.c_str());
        for (const std::string &one : options_.settings)
            if (weir_config_assign(&config, one.c_str(), &error_) != WEIR_OK) return false;
        const weir_engine_options with = { &config, true, false, nullptr, nullptr, nullptr };
        if (weir_engine_open_with(&engine_, &with, &error_) != WEIR_OK) return false;
        row.n_states = weir_engine_plan_of(engine_)->n_snapshots;
        return true;
    }
    std::string why() const { return error_.text; }

    Ids words(int n)
    {
        Ids out;
        for (int i = 0; i < n; i++) {
            random_ = random_ * 6364136223846793005u + 1442695040888963407u;
            out.push_back(FIRST_WORD + (int32_t)((random_ >> 33) % WORDS));
        }
        return out;
    }
    Ids message(const Ids &text) const
    {
        Ids out = { OPENING, ROLE };
        out.insert(out.end(), text.begin(), text.end());
        out.push_back(CLOSING);
        return out;
    }
    Ids question() { return message(words(options_.question)); }
    Conversation begin() { return { message(words(options_.system)), {}, false }; }

    // Asks for the answer of the last turn. `changed`: the first turn that the service has not seen
    // in this conversation as it is now, -1: the system prompt.
    bool ask(Conversation *c, int changed, bool is_counted = true)
    {
        Ids prompt = c->system;
        int64_t before = 0, last = 0;
        for (size_t i = 0; i < c->turns.size(); i++) {
            const Turn &turn = c->turns[i];
            if ((int)i == changed) before = (int64_t)prompt.size();
            last = (int64_t)prompt.size();
            add(&prompt, turn.user);
            if (i + 1 == c->turns.size()) break;
            const int skipped = c->strips ? options_.thoughts : 0;
            add(&prompt, { OPENING, ROLE });
            add(&prompt, Ids(turn.answer.begin() + skipped, turn.answer.end()));
            add(&prompt, { CLOSING });
        }
        const auto start = (int32_t)prompt.size();
        add(&prompt, { OPENING, ROLE });
        support::Call call(prompt, options_.thoughts + options_.answer);
        call.request.cache_prompt = call.request.ignore_eos = true;
        call.request.sampling.temperature = 0;
        call.request.turn_starts[0] = start;
        call.request.turn_starts[1] = (int32_t)last;
        if (call.submit(weir_engine_service(engine_), &error_) != WEIR_OK) return false;
        call.wait();
        if (call.status != WEIR_OK)
            (void)snprintf(error_.text, sizeof error_.text, "%s", call.message.c_str());
        c->turns.back().answer = call.tokens[0];
        if (is_counted) count((int64_t)prompt.size(), call.usage.n_cached, before, last);
        return call.status == WEIR_OK;
    }
    bool say(Conversation *c, const Ids &user, int changed, bool is_counted = true)
    {
        c->turns.push_back({ user, {} });
        return ask(c, changed, is_counted);
    }
    int turns() const { return options_.turns; }
    int branch_at() const { return options_.branch_at; }
    int tool_words() const { return options_.question; }

    Row row;

  private:
    static void add(Ids *to, const Ids &more) { to->insert(to->end(), more.begin(), more.end()); }
    void count(int64_t n, int64_t n_cached, int64_t before, int64_t last)
    {
        row.requests++;
        row.prompt += n;
        row.computed += n - n_cached;
        row.changed += n - before;
        // CLOSING, and the last token of the answer
        row.beyond += n - n_cached > n - before + 2 + options_.chunk - 1;
        row.repeated += last;
    }
    const Options &options_;
    weir_engine *engine_ = nullptr;
    weir_error error_ = {};
    uint64_t random_ = 1;
};

// ---- shapes
bool append(Runner &r)
{
    Conversation c = r.begin();
    for (int i = 0; i < r.turns(); i++)
        if (!r.say(&c, r.question(), i, i > 0)) return false;
    return true;
}

bool strip_thoughts(Runner &r)
{
    Conversation c = r.begin();
    c.strips = true;
    for (int i = 0; i < r.turns(); i++)
        if (!r.say(&c, r.question(), i - 1, i > 0)) return false;
    return true;
}

bool edit_last(Runner &r)
{
    Conversation c = r.begin();
    for (int i = 0; i < r.turns(); i++) {
        if (!r.say(&c, r.question(), i, false)) return false;
        c.turns.back().user = r.question();
        if (!r.ask(&c, i, i > 0)) return false;
    }
    return true;
}

// Back to each turn in an order that is neither up nor down.
bool branch(Runner &r)
{
    Conversation c = r.begin();
    for (int i = 0; i < r.turns(); i++)
        if (!r.say(&c, r.question(), i, false)) return false;
    for (int i = 1; i < r.turns(); i++) {
        const int k = r.branch_at() > 0 ? r.branch_at() : 1 + i * 5 % (r.turns() - 1);
        Conversation other = c;
        other.turns.resize((size_t)k);
        if (!r.say(&other, r.question(), k)) return false;
        if (r.branch_at() > 0) break;
    }
    return true;
}

// Every conversation begins with the same system prompt but for the date in its middle.
bool date(Runner &r)
{
    const Conversation first = r.begin();
    for (int day = 0; day < r.turns(); day++) {
        Conversation c = first;
        const Ids today = r.words(6);
        std::copy(today.begin(), today.end(), c.system.begin() + (int64_t)c.system.size() / 2);
        if (!r.say(&c, r.question(), -1, day > 0)) return false;
    }
    return true;
}

// The results of the last turn's tools come in another order with the next request.
bool reorder_tools(Runner &r)
{
    Conversation c = r.begin();
    std::vector<Ids> results;
    const auto join = [&] {
        Ids out;
        for (const Ids &one : results) out.insert(out.end(), one.begin(), one.end());
        return out;
    };
    for (int i = 0; i < r.turns(); i++) {
        if (i > 0) {
            std::rotate(results.begin(), results.begin() + 1, results.end());
            c.turns.back().user = join();
        }
        results.clear();
        for (int k = 0; k < TOOLS; k++) results.push_back(r.message(r.words(r.tool_words())));
        if (!r.say(&c, join(), i - 1, i > 0)) return false;
    }
    return true;
}

// The question of the last turn has one more line with the next request.
bool new_line(Runner &r)
{
    Conversation c = r.begin();
    for (int i = 0; i < r.turns(); i++) {
        if (i > 0) c.turns.back().user.insert(c.turns.back().user.end() - 1, NEW_LINE);
        if (!r.say(&c, r.question(), i - 1, i > 0)) return false;
    }
    return true;
}

const std::vector<std::pair<std::string, bool (*)(Runner &)>> all = {
    { "append", append },       { "strip-thoughts", strip_thoughts },
    { "edit-last", edit_last }, { "branch", branch },
    { "date", date },           { "reorder-tools", reorder_tools },
    { "new-line", new_line },
};

bool idle(Runner &r, int n, bool strips)
{
    Conversation first = r.begin();
    first.strips = strips;
    std::vector<Conversation> conversations((size_t)n, first);
    for (int i = 0; i < (strips ? 3 : 2); i++)
        for (Conversation &c : conversations)
            if (!r.say(&c, r.question(), strips ? i - 1 : i, i > 0)) return false;
    return true;
}

std::string run_on(const Options &options, const std::function<bool(Runner &)> &requests, Row *out)
{
    Runner runner(options);
    if (!runner.open() || !requests(runner)) return runner.why();
    *out = runner.row;
    return "";
}

} // namespace

const std::vector<std::string> &names()
{
    static const std::vector<std::string> list = [] {
        std::vector<std::string> found;
        for (const auto &one : all) found.push_back(one.first);
        return found;
    }();
    return list;
}

std::string run(const Options &options, const std::string &name, Row *out)
{
    for (const auto &one : all)
        if (one.first == name) return run_on(options, one.second, out);
    return "no shape " + name;
}

std::string run_idle(const Options &options, int n, Row *out, bool strips)
{
    return run_on(options, [n, strips](Runner &r) { return idle(r, n, strips); }, out);
}

} // namespace shapes
