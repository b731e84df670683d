/* tests/unit/constrain/cases_test.cc - the cases of tests/structured: what is accepted, refused,
 * and where. */
#include <cstring>

#include "tests/unit/constrain/support.h"
#include "tools/eval/structured.h"

namespace {

std::string name_of(const weir_tree *value) { return std::string(value->text, value->length); }

bool holds_keyword(const weir_tree *keywords, const std::string &message)
{
    for (size_t i = 0; i < keywords->n; i++) {
        if (message.find(name_of(&keywords->items[i])) != std::string::npos) return true;
    }
    return keywords->n == 0;
}

void check_texts(const structured_case &c, const weir_tree *answer, const std::string &id)
{
    const weir_tree *const want = weir_tree_get(c.root, "texts");
    const weir_tree *const have = weir_tree_get(answer, "texts");
    ASSERT_NE(have, nullptr) << id;
    ASSERT_EQ(have->n, want->n) << id;
    for (size_t i = 0; i < want->n; i++) {
        const weir_tree *const w = &want->items[i], *const h = &have->items[i];
        const weir_tree *const ok = weir_tree_get(w, "ok");
        const weir_tree *const at = weir_tree_get(w, "at"), *const sure = weir_tree_get(w, "sure");
        if (ok->kind == WEIR_TREE_NULL) continue;
        EXPECT_EQ(weir_tree_get(h, "ok")->kind, ok->kind)
            << id << ": " << name_of(weir_tree_get(w, "t"));
        if (ok->kind != WEIR_TREE_FALSE || at == nullptr || sure == nullptr) continue;
        const weir_tree *const found = weir_tree_get(h, "at");
        ASSERT_NE(found, nullptr) << id;
        EXPECT_EQ(name_of(found), name_of(at)) << id << ": " << name_of(weir_tree_get(w, "t"));
    }
}

void check(const std::string &line)
{
    const structured_case c(line);
    const std::string id = c.text_of("id"), expect = c.text_of("expect");
    weir_buffer out = {};
    weir_error error = {};
    ASSERT_EQ(weir_structured_run(&out, line.data(), line.size(), 1, &error), WEIR_OK)
        << id << ": " << error.text;
    weir_tree_reader reader = {};
    const weir_tree *answer = nullptr;
    ASSERT_EQ(weir_tree_read(&reader, &answer, out.data, out.size, "answer", &error), WEIR_OK)
        << id << ": " << error.text;
    const weir_tree *const peak = weir_tree_get(answer, "peak_bytes");
    const weir_tree *const most = weir_tree_get(c.root, "max_mib");
    EXPECT_LE(atoll(peak->text), (most == nullptr ? 256LL : atoll(most->text)) << 20) << id;
    if (weir_tree_is(weir_tree_get(answer, "status"), "refused")) {
        const std::string message = name_of(weir_tree_get(answer, "message"));
        EXPECT_NE(expect, "supported") << id << ": " << message;
        EXPECT_FALSE(message.empty()) << id;
        const weir_tree *const keywords = weir_tree_get(c.root, "keywords");
        if (expect == "refused" && keywords != nullptr) {
            EXPECT_TRUE(
                holds_keyword(keywords, message + " " + name_of(weir_tree_get(answer, "keyword")))
            ) << id
              << ": " << message;
        }
    } else {
        EXPECT_NE(expect, "refused") << id;
        check_texts(c, answer, id);
    }
    weir_tree_reader_free(&reader);
    weir_buffer_free(&out);
}

class Cases : public testing::TestWithParam<std::pair<const char *, size_t>> {};

TEST_P(Cases, AreRight)
{
    const std::vector<std::string> lines = lines_of(GetParam().first);
    EXPECT_EQ(lines.size(), GetParam().second);
    for (const std::string &line : lines) check(line);
}

INSTANTIATE_TEST_SUITE_P(
    Structured, Cases,
    testing::Values(
        std::make_pair("schemas/suite.jsonl", 78), std::make_pair("schemas/plain.jsonl", 76),
        std::make_pair("schemas/real.jsonl", 92), std::make_pair("schemas/peers.jsonl", 21),
        std::make_pair("schemas/refused.jsonl", 100), std::make_pair("schemas/hostile.jsonl", 37),
        std::make_pair("grammars/grammars.jsonl", 70)
    )
);

} // namespace
