// Conversations as clients send them (tests/golden/conversations) through the chat path of a
// server, with real templates: what is computed beyond the turn that changed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/serve/engine_fixture.h"

namespace {

using Ids = std::vector<int32_t>;

struct Template {
    const char *name, *tokenizer, *file;
    const char *opening; /* the control token of each message that is nearest to its text */
    const char *bos, *eos;
};

const Template templates[] = {
    { "qwen35", "models/weir-demo/tokenizer.json", "tests/golden/text/templates/Qwen3.5-4B.jinja",
      "<|im_start|>", nullptr, "<|im_end|>" },
    { "llama3", "tests/golden/text/tok/llama3.tokenizer.json",
      "tests/golden/conversations/llama3.jinja", "<|end_header_id|>", "<|begin_of_text|>",
      "<|eot_id|>" },
};

std::string slurp(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

size_t common(const Ids &a, const Ids &b)
{
    const size_t n = std::min(a.size(), b.size());
    return static_cast<size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(n), b.begin()).first - a.begin()
    );
}

class Recorded : public engine_fixture::EngineServer,
                 public ::testing::WithParamInterface<std::tuple<Template, const char *>> {
  protected:
    /* The demo model with another tokenizer and template. */
    void SetUp() override
    {
        const Template &form = std::get<0>(GetParam());
        namespace fs = std::filesystem;
        model_ = std::string(getenv("TEST_TMPDIR")) + "/" + form.name;
        fs::remove_all(model_);
        fs::create_directories(model_);
        for (const char *const file : { "config.json", "model.safetensors" })
            fs::create_symlink(
                fs::absolute(std::string("models/weir-demo/") + file), model_ + "/" + file
            );
        fs::create_symlink(fs::absolute(form.tokenizer), model_ + "/tokenizer.json");
        json_t *const config = json_pack(
            "{s:s, s:s}", "eos_token", form.eos, "chat_template", slurp(form.file).c_str()
        );
        if (form.bos != nullptr) json_object_set_new(config, "bos_token", json_string(form.bos));
        ASSERT_EQ(json_dump_file(config, (model_ + "/tokenizer_config.json").c_str(), 0), 0);
        json_decref(config);
        open({ "memory.host=128MiB", "model.context=8192", "batch.max_sequences=2" });
    }
    std::vector<json_t *> requests() const
    {
        std::ifstream in(std::string("tests/golden/conversations/") + std::get<1>(GetParam()));
        std::vector<json_t *> all;
        for (std::string line; std::getline(in, line);)
            all.push_back(json_loads(line.c_str(), 0, nullptr));
        return all;
    }
    Ids ids_of(const char *key, const std::string &body) const
    {
        json_t *const reply = ask_json("POST", "/tokenize", body);
        Ids ids;
        size_t i;
        json_t *id;
        json_array_foreach(json_object_get(reply, key), i, id)
            ids.push_back(static_cast<int32_t>(json_integer_value(id)));
        json_decref(reply);
        return ids;
    }
    static std::string text_of(json_t *request)
    {
        char *const text = json_dumps(request, JSON_COMPACT);
        const std::string out = text;
        free(text);
        return out;
    }
};

TEST_P(Recorded, AtMostTheTurnThatChangedIsComputed)
{
    const Ids opening = ids_of(
        "tokens", std::string(R"({"parse_special":true,"content":")") +
                      std::get<0>(GetParam()).opening + "\"}"
    );
    ASSERT_EQ(opening.size(), 1u);
    std::vector<Ids> before;
    int64_t n_prompt = 0, n_changed = 0, n_computed = 0, n_beyond = 0;
    for (json_t *const request : requests()) {
        const Ids ids = ids_of("tokens", text_of(request));
        json_object_set_new(request, "max_tokens", json_integer(4));
        json_object_set_new(request, "temperature", json_integer(0));
        json_t *const reply = ask_json("POST", "/v1/chat/completions", text_of(request));
        json_t *const usage = json_object_get(reply, "usage");
        const int64_t n = json_integer_value(json_object_get(usage, "prompt_tokens")),
                      cached = json_integer_value(json_object_get(
                          json_object_get(usage, "prompt_tokens_details"), "cached_tokens"
                      ));
        json_decref(reply);
        json_decref(request);
        ASSERT_EQ(n, static_cast<int64_t>(ids.size()));
        /* A turn begins where the answer of an earlier request does. */
        int64_t changed = 0;
        for (const Ids &earlier : before) {
            const auto last = std::find(earlier.rbegin(), earlier.rend(), opening[0]);
            const int64_t start = earlier.rend() - last - 1;
            if (start <= static_cast<int64_t>(common(earlier, ids)))
                changed = std::max(changed, start);
        }
        before.push_back(ids);
        if (before.size() == 1) continue;
        n_prompt += n;
        n_changed += n - changed;
        n_computed += n - cached;
        n_beyond += cached < changed;
        EXPECT_GE(cached, changed) << "request " << before.size() << " of " << n << " tokens";
    }
    (void)printf(
        "| requests | prompt tokens | changed | computed | beyond |\n| %zu | %lld | %lld | %lld | "
        "%lld |\n",
        before.size() - 1, (long long)n_prompt, (long long)n_changed, (long long)n_computed,
        (long long)n_beyond
    );
    EXPECT_LT(n_computed, n_prompt / 2) << "most of it was there";
}

INSTANTIATE_TEST_SUITE_P(
    All, Recorded,
    ::testing::Combine(
        ::testing::ValuesIn(templates), ::testing::Values("agent.jsonl", "visitor.jsonl")
    ),
    [](const auto &at) {
        return std::string(std::get<0>(at.param).name) +
               (std::get<1>(at.param)[0] == 'a' ? "Agent" : "Visitor");
    }
);

} // namespace
