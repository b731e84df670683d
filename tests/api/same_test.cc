/* The same answers: as the programs give, whatever was computed before, and after a restart. */
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/unit/cli/program.h" /* headers of the engine come before weir.h */

#include "tests/api/support.h"

namespace {

using api::Engine;
using api::Ids;
using api::Keys;
using api::Sequence;

std::string list(const Ids &ids)
{
    std::string text;
    for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
    return text;
}

/* "tokens": [1,2] of a line of JSON, as "1,2". */
std::string tokens_of(const std::string &json)
{
    const size_t begin = json.find("\"tokens\":[") + 10;
    return json.substr(begin, json.find(']', begin) - begin);
}

TEST(Same, GreedyTokensAreThoseOfTheProgram)
{
    const Engine engine;
    ASSERT_EQ(engine.status, WEIR_OK) << engine.error.text;
    const std::string prompt = "The price of the museum is 1212.\n\nWhat is the price?";
    Sequence sequence(engine);
    weir_sampling_params params = Sequence::greedy(40);
    params.ignore_eos = 0;
    const Ids before = engine.ids(prompt);
    ASSERT_EQ(sequence.sync(before), WEIR_OK) << sequence.error.text;
    ASSERT_EQ(weir_generate(sequence.sequence, &params, nullptr, nullptr, &sequence.error), WEIR_OK)
        << sequence.error.text;
    const Ids all = sequence.ids();
    const Ids answer(all.begin() + static_cast<long>(before.size()), all.end());
    ASSERT_GT(answer.size(), 2u);
    const program::Outcome outcome =
        program::run({ "generate", "--model", api::model, "--tokens", list(before), "--json",
                       "--set", "memory.host=256MiB", "--temperature", "0", "--max-tokens", "40" });
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(list(answer), tokens_of(outcome.out));
}

/* The logits of a text that nothing was known of. */
std::vector<float> cold(const Ids &ids, const Keys &keys = {})
{
    const Engine engine(keys);
    Sequence sequence(engine);
    EXPECT_EQ(sequence.sync(ids), WEIR_OK) << sequence.error.text;
    EXPECT_EQ(sequence.usage().cached_tokens, 0);
    return sequence.logits();
}

TEST(Same, SyncAfterAnEditInTheMiddleIsAsCold)
{
    const Engine engine;
    Sequence sequence(engine);
    Ids ids = engine.ids(api::lines(24));
    ASSERT_GT(ids.size(), 600u);
    ASSERT_EQ(sequence.sync(ids), WEIR_OK) << sequence.error.text;
    ids[ids.size() / 2] = ids[0] == 100 ? 101 : 100;
    ASSERT_EQ(sequence.sync(ids), WEIR_OK) << sequence.error.text;
    EXPECT_EQ(sequence.ids(), ids);
    EXPECT_EQ(sequence.logits(), cold(ids));
    /* The model keeps recurrent states, which cannot be cut anywhere: the second edit there finds
     * the one that the first left. */
    ids[ids.size() / 2 + 1] = 102;
    ASSERT_EQ(sequence.sync(ids), WEIR_OK) << sequence.error.text;
    EXPECT_GT(sequence.usage().cached_tokens, static_cast<int64_t>(ids.size()) / 2 - 2);
    EXPECT_EQ(sequence.logits(), cold(ids));
}

TEST(Same, OneTokenAtATimeIsAsAllAtOnceAndComputesOneRowEach)
{
    const Engine engine;
    Sequence sequence(engine);
    const Ids ids = engine.ids(api::lines(3));
    Ids part(ids.begin(), ids.begin() + 20);
    ASSERT_EQ(sequence.sync(part), WEIR_OK) << sequence.error.text;
    while (part.size() < ids.size()) {
        part.push_back(ids[part.size()]);
        ASSERT_EQ(sequence.sync(part), WEIR_OK) << sequence.error.text;
        ASSERT_EQ(sequence.usage().computed_tokens, 1) << part.size();
    }
    EXPECT_EQ(sequence.logits(), cold(ids));
}

TEST(Same, SequencesThatBeginAlikeAreComputedOnce)
{
    const Engine engine;
    Sequence first(engine), second(engine);
    Ids ids = engine.ids(api::lines(10));
    ASSERT_EQ(first.sync(ids), WEIR_OK);
    ids.insert(ids.end(), { 100, 101, 102 });
    ASSERT_EQ(second.sync(ids), WEIR_OK);
    EXPECT_EQ(second.usage().computed_tokens, 3);
    EXPECT_EQ(second.logits(), cold(ids));
}

TEST(Same, LogitsAfterAnAnswerBelongToItsLastToken)
{
    const Engine engine;
    Sequence sequence(engine);
    ASSERT_EQ(sequence.sync(engine.ids(api::lines(2))), WEIR_OK);
    const Ids answer = sequence.generate(8);
    const std::vector<float> row = sequence.logits();
    ASSERT_EQ(answer.size(), 8u);
    EXPECT_EQ(sequence.usage().computed_tokens, 1);
    const Ids next = sequence.generate(1);
    ASSERT_EQ(next.size(), 1u);
    EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), next[0]);
}

/* From the file of another engine: the same tokens and logits as going on, nothing computed but the
 * last token. */
void restored_goes_on(const Keys &keys)
{
    const std::string path = testing::TempDir() + "/text.weir";
    (void)std::remove(path.c_str());
    Ids text, rest;
    std::vector<float> row;
    {
        const Engine engine(keys);
        ASSERT_EQ(engine.status, WEIR_OK) << engine.error.text;
        Sequence sequence(engine);
        ASSERT_EQ(sequence.sync(engine.ids(api::lines(12))), WEIR_OK) << sequence.error.text;
        ASSERT_EQ(sequence.generate(10).size(), 10u);
        ASSERT_EQ(weir_sequence_save(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK)
            << sequence.error.text;
        text = sequence.ids();
        row = sequence.logits();
        rest = sequence.generate(20);
    }
    const Engine engine(keys);
    Sequence sequence(engine);
    ASSERT_EQ(weir_sequence_restore(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK)
        << sequence.error.text;
    EXPECT_EQ(sequence.ids(), text);
    EXPECT_EQ(sequence.generate(20), rest);
    EXPECT_LE(sequence.usage().computed_tokens, 64);
    ASSERT_EQ(sequence.sync(text), WEIR_OK);
    EXPECT_EQ(sequence.logits(), row);
}

TEST(Same, RestoredInAnotherProcessItGoesOnWithTheSameBits) { restored_goes_on({}); }

TEST(Same, RestoredWithQuantisedKvItGoesOnWithTheSameBits)
{
    restored_goes_on({ { "kv.format", "q8_0" } });
}

TEST(Same, ADocumentIsSavedBeforeItsFirstQuestion)
{
    const std::string path = testing::TempDir() + "/document.weir";
    Ids document;
    std::vector<float> row;
    {
        const Engine engine;
        Sequence sequence(engine);
        document = engine.ids(api::lines(20));
        ASSERT_EQ(sequence.sync(document), WEIR_OK);
        row = sequence.logits();
        ASSERT_EQ(weir_sequence_save(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK)
            << sequence.error.text;
    }
    const Engine engine;
    Sequence sequence(engine);
    ASSERT_EQ(weir_sequence_restore(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK);
    EXPECT_EQ(sequence.ids(), document);
    EXPECT_EQ(sequence.logits(), row);
    EXPECT_EQ(sequence.usage().computed_tokens, 1);
}

TEST(Same, ASequenceThatAPolicyPrunedIsRestoredAsItWas)
{
    const Keys keys = { { "kv.policy.name", "snapkv" }, { "kv.policy.budget", "256" } };
    const std::string path = testing::TempDir() + "/pruned.weir";
    Ids text, rest;
    {
        const Engine engine(keys);
        ASSERT_EQ(engine.status, WEIR_OK) << engine.error.text;
        Sequence sequence(engine);
        ASSERT_EQ(sequence.sync(engine.ids(api::lines(20))), WEIR_OK) << sequence.error.text;
        ASSERT_EQ(sequence.generate(10).size(), 10u);
        EXPECT_GT(sequence.usage().evicted_rows, 0);
        EXPECT_LE(sequence.usage().kept_rows, 512);
        ASSERT_EQ(weir_sequence_save(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK)
            << sequence.error.text;
        text = sequence.ids();
        Ids more = text;
        more.insert(more.end(), { 100, 101, 102 });
        ASSERT_EQ(sequence.sync(more), WEIR_OK);
        rest = sequence.generate(20);
    }
    const Engine engine(keys);
    Sequence sequence(engine);
    ASSERT_EQ(weir_sequence_restore(sequence.sequence, path.c_str(), &sequence.error), WEIR_OK)
        << sequence.error.text;
    EXPECT_EQ(sequence.ids(), text);
    text.insert(text.end(), { 100, 101, 102 });
    ASSERT_EQ(sequence.sync(text), WEIR_OK);
    EXPECT_EQ(sequence.usage().computed_tokens, 3);
    EXPECT_EQ(sequence.generate(20), rest);
}

TEST(Same, SequencesOfSeveralThreadsAnswerAsAlone)
{
    enum { N = 4 };
    const Engine engine;
    Ids alone[N], together[N];
    for (int i = 0; i < N; i++) {
        const Engine fresh;
        Sequence sequence(fresh);
        ASSERT_EQ(sequence.sync(fresh.ids(api::lines(3 + 2 * i))), WEIR_OK);
        alone[i] = sequence.generate(24);
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < N; i++)
        threads.emplace_back([&engine, &together, i] {
            Sequence sequence(engine);
            EXPECT_EQ(sequence.sync(engine.ids(api::lines(3 + 2 * i))), WEIR_OK);
            together[i] = sequence.generate(24);
        });
    for (std::thread &thread : threads) thread.join();
    for (int i = 0; i < N; i++) EXPECT_EQ(together[i], alone[i]) << i;
}

} // namespace
