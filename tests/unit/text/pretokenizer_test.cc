/* The published patterns on the texts that are worst for them, counted in steps and not in time;
 * the limit on time; no JIT. */
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/memory.h"
#include "engine/text/pretokenizer.h"

namespace {

int count_step(pcre2_callout_block *, void *context)
{
    ++*static_cast<uint64_t *>(context);
    return 0;
}

/* Cuts as weir_pretokenizer_run does; a callout before every item of a pattern counts what the
 * matcher tries. */
struct Counter {
    std::vector<pcre2_code *> steps;
    pcre2_match_data *data = pcre2_match_data_create(1, nullptr);
    pcre2_match_context *context = pcre2_match_context_create(nullptr);
    uint64_t count = 0;

    explicit Counter(const weir_pretokenizer_kind &kind)
    {
        pcre2_compile_context *const options = pcre2_compile_context_create(nullptr);
        pcre2_set_newline(options, PCRE2_NEWLINE_LF);
        for (int i = 0; i < 6 && kind.patterns[i] != nullptr; i++) {
            weir_buffer text = {};
            weir_error error = {};
            EXPECT_EQ(
                weir_pattern_translate(&text, kind.patterns[i], strlen(kind.patterns[i]), &error),
                WEIR_OK
            ) << error.text;
            int reason;
            PCRE2_SIZE offset;
            steps.push_back(pcre2_compile(
                reinterpret_cast<PCRE2_SPTR>(text.data), text.size,
                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_AUTO_CALLOUT, &reason, &offset,
                options
            ));
            EXPECT_NE(steps.back(), nullptr);
            weir_buffer_free(&text);
        }
        pcre2_compile_context_free(options);
        pcre2_set_callout(context, count_step, &count);
    }
    ~Counter()
    {
        for (pcre2_code *code : steps) pcre2_code_free(code);
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
    }
    void cut(size_t step, const char *text, size_t n)
    {
        if (step == steps.size()) return;
        for (size_t end = 0; end < n;) {
            const size_t before = end;
            const int found = pcre2_match(
                steps[step], reinterpret_cast<PCRE2_SPTR>(text), n, end,
                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, context
            );
            ASSERT_GE(found, PCRE2_ERROR_NOMATCH);
            const PCRE2_SIZE *const range = pcre2_get_ovector_pointer(data);
            const size_t begin = found < 0 ? n : range[0];
            end = found < 0 ? n : range[1];
            if (begin > before) cut(step + 1, text + before, begin - before);
            if (end > begin) cut(step + 1, text + begin, end - begin);
        }
    }
    uint64_t cost(const std::string &text)
    {
        count = 0;
        cut(0, text.data(), text.size());
        return count;
    }
};

std::string repeat(const std::string &unit, size_t n, const std::string &end)
{
    std::string text;
    while (text.size() < n) text += unit;
    return text + end;
}

class PublishedPattern : public testing::TestWithParam<const char *> {};

TEST_P(PublishedPattern, TakesStepsInProportionToTheText)
{
    const char *const units[] = { " ",
                                  "a",
                                  "A",
                                  "7",
                                  "\xCC\x81",
                                  "e\xCC\x81",
                                  "\xE4\xB8\x80",
                                  "'",
                                  "\n",
                                  " \n",
                                  "\t ",
                                  "A1 \n",
                                  "aA",
                                  "a  5",
                                  "!",
                                  "'s",
                                  "\xE2\x80\x98",
                                  "\r\n",
                                  "/",
                                  "\xC2\xA0" };
    Counter counter(*weir_pretokenizer_find(GetParam()));
    for (const char *unit : units)
        for (const char *end : { "", "5", "x", "!", "\xCC\x81" }) {
            const uint64_t once = counter.cost(repeat(unit, 2000, end)),
                           four = counter.cost(repeat(unit, 8000, end));
            EXPECT_LE(four, 6 * once + 1000) << "'" << unit << "' then '" << end << "'";
        }
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedPattern,
    testing::Values(
        "qwen2", "qwen35", "llama-bpe", "gpt-2", "smollm", "tekken", "deepseek-v3", "deepseek-llm",
        "gpt-4o", "kimi-k2", "seed-coder"
    ),
    [](const auto &info) {
        std::string name = info.param;
        for (char &c : name)
            if (c == '-') c = '_';
        return name;
    }
);

weir_status count_piece(void *context, const char *, size_t)
{
    ++*static_cast<int *>(context);
    return WEIR_OK;
}

struct Cutter {
    weir_pretokenizer pretokenizer = {};
    weir_matcher matcher = {};
    weir_error error = {};
    int n_pieces = 0;

    explicit Cutter(const std::string &pattern)
    {
        EXPECT_EQ(
            weir_pretokenizer_add(&pretokenizer, pattern.data(), pattern.size(), {}, &error),
            WEIR_OK
        ) << error.text;
        EXPECT_EQ(weir_matcher_init(&matcher), WEIR_OK);
    }
    ~Cutter()
    {
        weir_matcher_free(&matcher);
        weir_pretokenizer_free(&pretokenizer);
    }
    weir_status run(const std::string &text)
    {
        return weir_pretokenizer_run(
            &pretokenizer, &matcher, text.data(), text.size(), count_piece, &n_pieces, &error
        );
    }
};

weir_status add_piece(void *pieces, const char *text, size_t n)
{
    *static_cast<std::string *>(pieces) += std::string(text, n) + "|";
    return WEIR_OK;
}

std::string pieces_of(const char *kind_name, const std::string &text)
{
    const weir_pretokenizer_kind *const kind = weir_pretokenizer_find(kind_name);
    weir_pretokenizer pretokenizer = {};
    weir_error error = {};
    for (int i = 0; kind != nullptr && i < 6 && kind->patterns[i] != nullptr; i++)
        EXPECT_EQ(
            weir_pretokenizer_add(
                &pretokenizer, kind->patterns[i], strlen(kind->patterns[i]), {}, &error
            ),
            WEIR_OK
        ) << error.text;
    weir_matcher matcher = {};
    std::string pieces;
    EXPECT_EQ(weir_matcher_init(&matcher), WEIR_OK);
    EXPECT_EQ(
        weir_pretokenizer_run(
            &pretokenizer, &matcher, text.data(), text.size(), add_piece, &pieces, &error
        ),
        WEIR_OK
    );
    weir_matcher_free(&matcher);
    weir_pretokenizer_free(&pretokenizer);
    return pieces;
}

/* As Oniguruma cuts by the published patterns. */
TEST(Pretokenizer, NamesOfGgufCutAsTheirModelsDo)
{
    const std::string text = "HelloWorld's 12345 漢字かな a//\n";
    for (const char *kind : { "gpt-4o", "minimax-m2" })
        EXPECT_EQ(pieces_of(kind, text), "Hello|World's| |123|45| 漢字かな| a|//\n|") << kind;
    EXPECT_EQ(pieces_of("kimi-k2", text), "Hello|World's| |123|45| |漢字|かな| a|//\n|");
    for (const char *kind : { "lfm2", "smaug-bpe", "dbrx", "glm4", "chatglm-bpe" })
        EXPECT_EQ(pieces_of(kind, text), pieces_of("llama-bpe", text)) << kind;
    EXPECT_EQ(pieces_of("refact", text), pieces_of("smollm", text));
    EXPECT_EQ(weir_pretokenizer_find("llama-bp"), nullptr);
}

struct Name {
    const char *name;
    const char *like; /* cuts as this one; NULL: not known */
    const char *why_not = nullptr;
};

const char *const encoder = "of text encoders, which no architecture here is";
const char *const pieces = "of vocabularies of pieces, whose model says how they are cut";
const char *const other = "a split of its own, of models that no architecture here covers";

/* The names of tokenizer.ggml.pre that llama.cpp knows (src/llama-vocab.cpp). */
const Name names[] = {
    { "default", nullptr, "says that the converter did not know the split" },
    { "minicpm5", nullptr, other },
    { "llama3", "llama-bpe" },
    { "llama-v3", "llama-bpe" },
    { "llama-bpe", "llama-bpe" },
    { "falcon3", "llama-bpe" },
    { "falcon-h1", "llama-bpe" },
    { "pixtral", "llama-bpe" },
    { "midm-2.0", "llama-bpe" },
    { "lfm2", "llama-bpe" },
    { "jina-v5-nano", "llama-bpe" },
    { "deepseek-llm", "deepseek-llm" },
    { "deepseek-coder", nullptr, other },
    { "deepseek-v3", "deepseek-v3" },
    { "spark2_5", nullptr, other },
    { "youtu", nullptr, other },
    { "falcon", nullptr, other },
    { "mpt", "gpt-2" },
    { "starcoder", "smollm" },
    { "gpt-2", "gpt-2" },
    { "phi-2", "gpt-2" },
    { "jina-es", nullptr, encoder },
    { "jina-de", nullptr, encoder },
    { "gigachat", "gpt-2" },
    { "jina-v2-es", nullptr, encoder },
    { "jina-v2-de", nullptr, encoder },
    { "a.x-4.0", "gpt-2" },
    { "mellum", "gpt-2" },
    { "modern-bert", nullptr, encoder },
    { "jais-2", nullptr, other },
    { "gemma4", nullptr, pieces },
    { "granite-embed-multi-311m", nullptr, encoder },
    { "sarvam-moe", nullptr, pieces },
    { "jina-v1-en", nullptr, encoder },
    { "jina-v2-code", nullptr, encoder },
    { "roberta-bpe", nullptr, encoder },
    { "whitespace", nullptr, encoder },
    { "refact", "smollm" },
    { "command-r", "smollm" },
    { "qwen2", "qwen2" },
    { "deepseek-r1-qwen", "qwen2" },
    { "kormo", "qwen2" },
    { "f2llmv2", "qwen2" },
    { "qwen35", "qwen35" },
    { "stablelm2", "qwen2" },
    { "olmo", "gpt-2" },
    { "dbrx", "llama-bpe" },
    { "smaug-bpe", "llama-bpe" },
    { "poro-chat", nullptr, other },
    { "chatglm-bpe", "llama-bpe" },
    { "glm4", "llama-bpe" },
    { "glm5", "llama-bpe" },
    { "viking", nullptr, other },
    { "jais", "gpt-2" },
    { "tekken", "tekken" },
    { "smollm", "smollm" },
    { "codeshell", "smollm" },
    { "bloom", nullptr, other },
    { "gpt3-finnish", nullptr, other },
    { "exaone", "smollm" },
    { "exaone4", "gpt-2" },
    { "exaone-moe", nullptr, other },
    { "chameleon", nullptr, other },
    { "minerva-7b", "smollm" },
    { "megrez", "qwen2" },
    { "gpt-4o", "gpt-4o" },
    { "llama4", "gpt-4o" },
    { "kanana2", "gpt-4o" },
    { "talkie", "gpt-4o" },
    { "granite-embed-multi-97m", nullptr, encoder },
    { "tiny_aya", nullptr, other },
    { "cohere2moe", nullptr, other },
    { "superbpe", nullptr, other },
    { "trillion", "gpt-2" },
    { "granite-docling", "gpt-2" },
    { "bailingmoe", nullptr, other },
    { "bailingmoe2", nullptr, other },
    { "llada-moe", nullptr, other },
    { "seed-coder", "seed-coder" },
    { "hunyuan", "qwen2" },
    { "hunyuan-dense", "deepseek-v3" },
    { "hy_v4", "deepseek-v3" },
    { "joyai-llm", "deepseek-v3" },
    { "kimi-k2", "kimi-k2" },
    { "ufakzeka", nullptr, other },
    { "grok-2", "qwen2" },
    { "afmoe", nullptr, other },
    { "laguna", nullptr, other },
    { "minimax-m2", "gpt-4o" },
    { "solar-open", "qwen2" },
    { "mellum2", "smollm" },
};

bool is_same_split(const weir_pretokenizer_kind *a, const weir_pretokenizer_kind *b)
{
    for (int i = 0; i < 6; i++) {
        const bool ends = a->patterns[i] == nullptr || b->patterns[i] == nullptr;
        if (ends) return a->patterns[i] == b->patterns[i];
        if (strcmp(a->patterns[i], b->patterns[i]) != 0) return false;
    }
    return true;
}

TEST(Pretokenizer, EveryNameOfLlamaCppIsKnownOrHasAReason)
{
    size_t n_known = 0, n_kinds = 0;
    for (const Name &name : names) {
        const weir_pretokenizer_kind *const kind = weir_pretokenizer_find(name.name);
        EXPECT_EQ(kind != nullptr, name.like != nullptr) << name.name;
        EXPECT_NE(name.like != nullptr, name.why_not != nullptr) << name.name;
        if (kind == nullptr || name.like == nullptr) continue;
        n_known++;
        EXPECT_TRUE(is_same_split(kind, weir_pretokenizer_find(name.like))) << name.name;
    }
    while (weir_pretokenizer_at(n_kinds) != nullptr) n_kinds++;
    EXPECT_EQ(n_known, n_kinds) << "a name that llama.cpp does not know";
    EXPECT_EQ(sizeof names / sizeof names[0], 91U);
}

/* What the name implies besides the split, as llama.cpp has it. */
TEST(Pretokenizer, LikeLlama3MeansItsMergesAndItsFirstToken)
{
    for (const char *name : { "pixtral", "falcon3", "falcon-h1", "midm-2.0" }) {
        const weir_pretokenizer_kind *const kind = weir_pretokenizer_find(name);
        ASSERT_NE(kind, nullptr) << name;
        EXPECT_TRUE(kind->add_bos && kind->ignore_merges) << name;
    }
    for (const char *name : { "glm4", "glm5" }) {
        const weir_pretokenizer_kind *const kind = weir_pretokenizer_find(name);
        ASSERT_NE(kind, nullptr) << name;
        EXPECT_TRUE(!kind->add_bos && kind->ignore_merges) << name;
    }
}

TEST(Pretokenizer, SeedCoderLeavesLineEndsToTheNextPiece)
{
    EXPECT_EQ(pieces_of("seed-coder", "a!\n 12"), "a|!|\n| |1|2|");
    EXPECT_EQ(pieces_of("qwen2", "a!\n 12"), "a|!\n| |1|2|");
}

TEST(Pretokenizer, ATextPastItsTimeIsRefusedAndTheNextOneIsCut)
{
    Cutter cutter("a+(?=b)|c");
    cutter.matcher.limit_ns = -1;
    EXPECT_EQ(cutter.run(std::string(4000, 'a')), WEIR_EFULL);
    EXPECT_NE(strstr(cutter.error.text, "limits on this text: time"), nullptr) << cutter.error.text;
    cutter.matcher.limit_ns = INT64_MAX / 2;
    cutter.n_pieces = 0;
    EXPECT_EQ(cutter.run("aab" + std::string(400, 'c')), WEIR_OK) << cutter.error.text;
    EXPECT_EQ(cutter.n_pieces, 402);
}

TEST(Pretokenizer, TheStackOfAMatchIsPaidFor)
{
    weir_memory_budget budget;
    weir_memory_budget_init(&budget, 256 << 10);
    weir_memory_tracker *const before = weir_memory_tracker_set(&budget.tracker);
    {
        Cutter cutter("(?:(a)|(b))+");
        EXPECT_EQ(cutter.run(std::string(100, 'a')), WEIR_OK) << cutter.error.text;
        EXPECT_EQ(cutter.run(std::string(100000, 'a')), WEIR_ENOMEM);
    }
    weir_memory_tracker_set(before);
    EXPECT_EQ(budget.left, size_t{ 256 << 10 });
}

TEST(Pretokenizer, MapsNoMemoryThatIsWritableAndExecutable)
{
    Cutter cutter(weir_pattern_gpt2);
    EXPECT_EQ(cutter.run("a text of words"), WEIR_OK);
    std::ifstream maps("/proc/self/maps");
    ASSERT_TRUE(maps.good());
    for (std::string line; std::getline(maps, line);)
        EXPECT_EQ(line.find("rwx"), std::string::npos) << line;
}

} // namespace
