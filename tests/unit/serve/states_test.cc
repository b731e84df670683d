// The whole server with a database of states: what a client adds, finds, asks, merges and deletes,
// and what of it others see.
#include <filesystem>
#include <fstream>

#include "tests/unit/model/coda_text.h"
#include "tests/unit/serve/engine_fixture.h"

namespace {

const std::string weirs = "A weir is a low dam across a river. It raises the water upstream and "
                          "lets it flow over the top.";
const std::string bread = "To bake bread, mix flour, water, salt and yeast. Let the dough rise for "
                          "two hours, then bake it in a hot oven.";
const std::string asked = "\\n\\nQuestion: How long?\\nAnswer:"; /* as JSON has it */

std::string quoted(const std::string &text) { return "\"" + text + "\""; }

class States : public engine_fixture::EngineServer {
  protected:
    void SetUp() override
    {
        folder_ = std::string(getenv("TEST_TMPDIR")) + "/states_api";
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    void start(const std::vector<std::string> &more = {})
    {
        settings_ = { "states.dir=" + folder_ + "/base", "memory.host=256MiB", "model.context=512",
                      "batch.max_sequences=2" };
        settings_.insert(settings_.end(), more.begin(), more.end());
        std::vector<const char *> list;
        for (const std::string &setting : settings_) list.push_back(setting.c_str());
        open(list);
    }
    json_t *add(
        const std::string &label, const std::string &text, int key = 0, const std::string &more = ""
    ) const
    {
        return ask_json(
            "POST", "/v1/states",
            "{\"label\":" + quoted(label) + ",\"prompt\":" + quoted(text) + more + "}", key
        );
    }
    /* The answer to a prompt of a state ("": none). */
    struct Answer {
        std::string text;
        int64_t n_prompt, n_cached;
        bool exact, merged;
    };
    Answer ask(const std::string &state, const std::string &prompt, int key = 0) const
    {
        json_t *const root = ask_json(
            "POST", "/v1/completions",
            "{\"prompt\":" + quoted(prompt) + (state.empty() ? "" : ",\"state\":" + quoted(state)) +
                ",\"max_tokens\":10,\"temperature\":0,\"ignore_eos\":true}",
            key
        );
        const char *text = json_string_value(
            json_object_get(json_array_get(json_object_get(root, "choices"), 0), "text")
        );
        json_t *const usage = json_object_get(root, "usage"), *const from =
                                                                  json_object_get(root, "state");
        const Answer answer = { text != nullptr ? text : "",
                                json_integer_value(json_object_get(usage, "prompt_tokens")),
                                json_integer_value(json_object_get(
                                    json_object_get(usage, "prompt_tokens_details"), "cached_tokens"
                                )),
                                json_is_true(json_object_get(from, "exact")),
                                json_is_true(json_object_get(from, "merged")) };
        EXPECT_EQ(from == nullptr, state.empty());
        json_decref(root);
        return answer;
    }
    void refused(
        int status, const std::string &what, const std::string &method, const std::string &path,
        const std::string &body = "", int key = 0
    ) const
    {
        const std::string text = request(method, path, body, key);
        EXPECT_EQ(text.find("HTTP/1.1 " + std::to_string(status)), 0u)
            << method << " " << path << ": " << text;
        EXPECT_NE(text.find(what), std::string::npos) << text;
    }
    std::vector<std::string> ids(const std::string &query = "", int key = 0) const
    {
        json_t *const root = ask_json("GET", "/v1/states" + query, "", key);
        std::vector<std::string> out;
        for (size_t i = 0; i < json_array_size(json_object_get(root, "data")); i++)
            out.push_back(json_string_value(
                json_object_get(json_array_get(json_object_get(root, "data"), i), "id")
            ));
        json_decref(root);
        return out;
    }
    static int64_t number(json_t *root, const char *name)
    {
        const int64_t n = json_integer_value(json_object_get(root, name));
        json_decref(root);
        return n;
    }
    size_t n_files() const
    {
        size_t n = 0;
        for (const auto &entry : std::filesystem::directory_iterator(folder_ + "/base"))
            n += entry.path().string().find(".session") != std::string::npos;
        return n;
    }
    using Ids = std::vector<std::string>;
    std::string folder_;
    std::vector<std::string> settings_;
};

TEST_F(States, ADocumentIsAskedWithoutBeingReadAgain)
{
    start();
    const Answer cold = ask("", bread + asked);
    stop();
    start();
    json_t *root = add("Bread", bread, 0, R"(,"metadata":{"kind":"recipe"})");
    EXPECT_STREQ(json_string_value(json_object_get(root, "id")), "bread");
    EXPECT_STREQ(
        json_string_value(json_object_get(json_object_get(root, "metadata"), "kind")), "recipe"
    );
    const int64_t n = json_integer_value(json_object_get(root, "tokens"));
    json_decref(root);
    json_decref(add("Weirs", weirs));
    json_decref(add("Bread", bread)); /* there already */
    EXPECT_EQ(ids(), (Ids{ "weirs", "bread" }));
    EXPECT_EQ(ids("?limit=1"), Ids{ "weirs" });
    EXPECT_EQ(ids("?limit=5&before=2"), Ids{ "bread" });
    for (const bool is_new : { false, true }) {
        if (is_new) {
            stop();
            start();
        }
        const Answer warm = ask("bread", asked);
        EXPECT_EQ(warm.text, cold.text);
        EXPECT_GE(warm.n_cached, n) << is_new;
        EXPECT_TRUE(warm.exact);
        EXPECT_FALSE(warm.merged);
    }
    const std::string stream = request(
        "POST", "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"How long?"}],"state":"bread","max_tokens":2,)"
        R"("stream":true})"
    );
    EXPECT_NE(stream.find(R"("state":{"id":"bread")"), std::string::npos) << stream;
    EXPECT_NE(stream.find("[DONE]"), std::string::npos) << stream;
    root = ask_json("GET", "/v1/memory", "");
    json_t *const accounts =
        json_object_get(json_object_get(json_object_get(root, "tiers"), "host"), "accounts");
    EXPECT_EQ(json_integer_value(json_object_get(accounts, "packs")), 16 << 20);
    json_decref(root);
    root = ask_json("DELETE", "/v1/states/bread", "");
    EXPECT_TRUE(json_is_true(json_object_get(root, "deleted")));
    json_decref(root);
    refused(404, "state_not_found", "GET", "/v1/states/bread");
    refused(404, "no state bread", "POST", "/v1/completions", R"({"prompt":"x","state":"bread"})");
    EXPECT_EQ(n_files(), 1u);
}

TEST_F(States, QuestionsFindTheNearest)
{
    start();
    json_decref(add("Bread", bread));
    json_decref(add("Weirs", weirs));
    json_t *root =
        ask_json("POST", "/v1/states/query", "{\"question\":" + quoted(weirs) + ",\"top_k\":1}");
    json_t *const hit = json_array_get(json_object_get(root, "data"), 0);
    EXPECT_STREQ(json_string_value(json_object_get(hit, "id")), "weirs");
    EXPECT_NEAR(json_number_value(json_object_get(hit, "similarity")), 1, 1e-5);
    EXPECT_EQ(json_array_size(json_object_get(root, "data")), 1u);
    json_decref(root);
    std::string vector;
    for (int i = 0; i < weir_service_facts_of(weir_engine_service(engine_))->d_model; i++)
        vector += (i > 0 ? ",0." : "0.") + std::to_string(1 + i % 7);
    root = ask_json("POST", "/v1/states/query", "{\"vector\":[" + vector + "]}");
    EXPECT_EQ(json_array_size(json_object_get(root, "data")), 2u);
    json_decref(root);
    refused(400, "vector must be an array", "POST", "/v1/states/query", R"({"vector":[1,2]})");
    refused(
        400, "not a number", "POST", "/v1/states/query",
        "{\"vector\":[\"x\"," + vector.substr(4) + "]}"
    );
    refused(400, "question", "POST", "/v1/states/query", "{}");
    refused(400, "top_k", "POST", "/v1/states/query", R"({"question":"x","top_k":0})");
}

TEST_F(States, KeysSeeTheirOwnAndWhatHasNoOwner)
{
    start();
    json_decref(add("Common", weirs));
    stop();
    with_keys_ = true;
    start();
    json_decref(add("Paper", bread, 0));
    json_decref(add("Paper", weirs + bread, 1));
    EXPECT_EQ(ids("", 0), (Ids{ "paper", "common" }));
    EXPECT_EQ(ids("", 1), (Ids{ "paper", "common" }));
    const int64_t mine = number(ask_json("GET", "/v1/states/paper", "", 0), "tokens"),
                  theirs = number(ask_json("GET", "/v1/states/paper", "", 1), "tokens");
    EXPECT_LT(mine, theirs) << "each its own";
    for (const auto &entry : std::filesystem::directory_iterator(folder_ + "/base")) {
        const std::string name = entry.path().filename();
        if (name[0] != 'k' || name.find("-paper.") == std::string::npos) continue;
        const std::string id =
            name.substr(0, name.find('.')); /* with its owner: only that key may say so, too */
        int n_seen = 0;
        for (int key = 0; key < 2; key++)
            n_seen += request("GET", "/v1/states/" + id, "", key).find("HTTP/1.1 200") == 0;
        EXPECT_EQ(n_seen, 1);
    }
    refused(403, "state_not_owned", "DELETE", "/v1/states/common", "", 1);
    json_decref(ask_json("DELETE", "/v1/states/paper", "", 1));
    refused(404, "state_not_found", "DELETE", "/v1/states/paper", "", 1);
    EXPECT_EQ(ids("", 0), (Ids{ "paper", "common" }));
    refused(
        404, "state_not_found", "POST", "/v1/completions", R"({"prompt":"x","state":"paper"})", 1
    );
    json_t *const root =
        ask_json("POST", "/v1/states/query", "{\"question\":" + quoted(bread) + "}", 1);
    EXPECT_EQ(json_array_size(json_object_get(root, "data")), 1u) << "the other key's is not found";
    json_decref(root);
    /* What one key asks a common state is not there for the other. */
    const Answer first = ask("common", asked, 0), again = ask("common", asked, 0),
                 other = ask("common", asked, 1);
    EXPECT_EQ(first.text, other.text);
    EXPECT_GT(again.n_cached, first.n_cached);
    EXPECT_EQ(other.n_cached, first.n_cached);
}

TEST_F(States, FullDisksAndShortMemoryAreSaid)
{
    start({ "states.disk=400KiB" });
    json_decref(add("One", weirs));
    refused(
        503, "states_full", "POST", "/v1/states",
        "{\"label\":\"two\",\"prompt\":" + quoted(bread + weirs) + "}"
    );
    EXPECT_EQ(n_files(), 1u);
    EXPECT_EQ(ids(), Ids{ "one" });
    json_decref(ask_json("DELETE", "/v1/states/one", ""));
    json_decref(add("Two", bread));
    stop();
    std::filesystem::remove_all(folder_ + "/base");
    start({ "states.memory=256KiB" });
    refused(
        503, "no memory for one more state", "POST", "/v1/states",
        "{\"label\":\"one\",\"prompt\":" + quoted(weirs) + "}"
    );
    EXPECT_EQ(n_files(), 0u);
    refused(501, "not_supported", "POST", "/v1/sessions", R"({"name":"x"})");
}

TEST_F(States, WhatCannotBeIsRefusedWithTheReason)
{
    start();
    json_decref(add("One", weirs));
    json_decref(add("Two", bread));
    refused(400, "label is missing", "POST", "/v1/states", R"({"prompt":"x"})");
    refused(400, "prompt, messages or tokens", "POST", "/v1/states", R"({"label":"x"})");
    refused(400, "not empty", "POST", "/v1/states", R"({"label":"x","tokens":[]})");
    refused(400, "not a token id", "POST", "/v1/states", R"({"label":"x","tokens":[99999]})");
    refused(
        400, "metadata must be an object", "POST", "/v1/states",
        R"({"label":"x","prompt":"x","metadata":[]})"
    );
    refused(400, "label is empty", "POST", "/v1/states", R"({"label":" ","prompt":"x"})");
    refused(
        400, "context_length_exceeded", "POST", "/v1/states",
        "{\"label\":\"x\",\"prompt\":" + quoted(std::string(4000, 'x')) + "}"
    );
    refused(
        400, "cannot be merged", "POST", "/v1/states/merge",
        R"({"label":"x","earlier":"one","later":"two"})"
    );
    refused(
        404, "no state three", "POST", "/v1/states/merge",
        R"({"label":"x","earlier":"one","later":"three"})"
    );
    refused(
        400, "later is missing", "POST", "/v1/states/merge", R"({"label":"x","earlier":"one"})"
    );
    refused(400, "limit", "GET", "/v1/states?limit=0");
    refused(405, "", "PUT", "/v1/states", "{}");
    refused(400, "echo", "POST", "/v1/completions", R"({"prompt":"x","state":"one","echo":true})");
    refused(400, "state", "POST", "/v1/completions", R"({"prompt":"x","state":""})");
    refused(
        400, "context_length_exceeded", "POST", "/v1/completions",
        "{\"prompt\":" + quoted(std::string(4000, 'x')) +
            R"(,"state":"one","on_overflow":"truncate_middle"})"
    );
    for (const auto &entry : std::filesystem::directory_iterator(folder_ + "/base"))
        if (entry.path().filename().string().rfind("one.", 0) == 0)
            std::ofstream(entry.path(), std::ios::binary | std::ios::in | std::ios::out).seekp(300)
                << "damage";
    refused(409, "state_unusable", "POST", "/v1/completions", R"({"prompt":"x","state":"one"})");
    EXPECT_EQ(n_files(), 2u);
    stop();
    settings_ = { "memory.host=256MiB", "model.context=512" };
    open({ settings_[0].c_str(), settings_[1].c_str() });
    refused(501, "states.dir", "GET", "/v1/states");
    refused(400, "states.dir", "POST", "/v1/completions", R"({"prompt":"x","state":"one"})");
}

/* Models whose layers are CoDA. */
class CodaStates : public States {
  protected:
    void start_coda(const std::vector<std::string> &settings = {})
    {
        if (arch_.empty()) support::write_coda_text(checkpoint_, "\"coda\"", &arch_);
        model_ = checkpoint_.path();
        std::vector<std::string> more(arch_);
        more.insert(more.end(), { "kernels.activations=f32" });
        more.insert(more.end(), settings.begin(), settings.end());
        start(more);
    }
    static std::string text_of(int seed, size_t n)
    {
        std::string text;
        for (int i = 0; text.size() < n; i++)
            text += "Item " + std::to_string(seed) + " holds " +
                    std::to_string((seed * 7919 + i * 104729) % 997) + ". ";
        return text.substr(0, n);
    }
    support::Folder checkpoint_;
    support::Settings arch_;
};

/* A merged state cannot be computed again: one of other numerics is an error, or said. One that is
 * merged from them is mixed wherever it goes. */
TEST_F(CodaStates, LossyStatesOfOtherNumericsAre409OrSaid)
{
    const std::string pin = "kernels.pin.add=ref.add", any = "sessions.numerics=any",
                      merge = R"(","earlier":"a","later":"b"})",
                      question = R"({"prompt":"How many?","state":"both","max_tokens":4})";
    start_coda({ pin });
    json_decref(add("A", text_of(1, 300)));
    json_decref(add("B", text_of(2, 300)));
    json_decref(ask_json("POST", "/v1/states/merge", R"({"label":"Both)" + merge));
    stop();
    start_coda();
    refused(409, "state_unusable", "POST", "/v1/completions", question);
    refused(409, "kernel pins add=ref.add (here none)", "POST", "/v1/completions", question);
    refused(409, "state_unusable", "POST", "/v1/states/merge", R"({"label":"Again)" + merge);
    stop();
    start_coda({ any });
    const std::string said = request("POST", "/v1/completions", question);
    EXPECT_EQ(said.find("HTTP/1.1 200"), 0u) << said;
    EXPECT_NE(said.find("kernel pins add=ref.add\""), std::string::npos) << said;
    json_decref(ask_json("POST", "/v1/states/merge", R"({"label":"Again)" + merge));
    stop();
    start_coda({ pin });
    EXPECT_EQ(ask("both", "How many?").merged, true);
    refused(
        409, "continued elsewhere", "POST", "/v1/completions",
        R"({"prompt":"How many?","state":"again","max_tokens":4})"
    );
}

TEST_F(CodaStates, TwoAreMergedWhileOthersRun)
{
    with_keys_ = true;
    start_coda();
    const std::string a = text_of(1, 150), b = text_of(2, 300);
    const Answer cold = ask("", b + asked, 1);
    json_decref(add("A", a));
    json_decref(add("B", b));
    json_t *const root = ask_json(
        "POST", "/v1/states/merge",
        R"({"earlier":"a","later":"b","label":"Both","metadata":{"by":"me"}})"
    );
    EXPECT_STREQ(json_string_value(json_object_get(root, "object")), "state.merged");
    EXPECT_STREQ(json_string_value(json_object_get(json_object_get(root, "state"), "id")), "both");
    EXPECT_GT(json_integer_value(json_object_get(json_object_get(root, "prototypes"), "kept")), 0);
    EXPECT_EQ(json_integer_value(json_object_get(root, "recent_rows_dropped")), 2 * 24);
    json_decref(root);
    const Answer merged = ask("both", asked), later = ask("b", asked);
    EXPECT_TRUE(merged.merged);
    EXPECT_FALSE(merged.exact);
    EXPECT_EQ(merged.n_cached, 288);
    EXPECT_EQ(merged.n_prompt, later.n_prompt);
    EXPECT_TRUE(later.exact);
    EXPECT_EQ(later.text, cold.text) << "the state of its own text is as it was";
    EXPECT_EQ(ask("", b + asked).text, cold.text);
    EXPECT_EQ(ask("both", asked).text, merged.text);
    refused(
        400, "cache_prompt", "POST", "/v1/completions",
        R"({"prompt":"x","state":"both","cache_prompt":false})"
    );
    refused(404, "no state both", "POST", "/v1/completions", R"({"prompt":"x","state":"both"})", 1);
    refused(
        400, "cannot be merged with itself", "POST", "/v1/states/merge",
        R"({"earlier":"a","later":"a","label":"x"})"
    );
    stop();
    start_coda();
    EXPECT_EQ(ask("both", asked).text, merged.text);
    EXPECT_EQ(ids(), (Ids{ "both", "b", "a" }));
}

} // namespace
