// A database of states: names, lists, nearest vectors, what is refused, removing.
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "engine/states/states_internal.h"
#include "offload/ledger.h"
#include "tests/unit/states/support.h"

namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

std::string label_of(const char *text)
{
    char out[WEIR_STATE_LABEL + 1];
    weir_error error = {};
    return weir_state_label(out, text, &error) == WEIR_OK ? out : "!" + std::string(error.text);
}

std::string slug_of(const char *text)
{
    char out[WEIR_STATE_NAME + 1];
    weir_state_slug(out, text);
    return out;
}

TEST(Label, IsStrippedAndChecked)
{
    EXPECT_EQ(label_of(" \t My  paper\n"), "My  paper");
    EXPECT_EQ(label_of("na\xC3\xAFve"), "na\xC3\xAFve");
    for (const char *empty : { "", "   ", "\n\t " })
        EXPECT_NE(label_of(empty).find("label"), std::string::npos);
    EXPECT_NE(label_of("a\tb").find("control"), std::string::npos);
    EXPECT_NE(label_of("a\xFF").find("UTF-8"), std::string::npos);
    EXPECT_EQ(label_of(std::string(255, 'x').c_str()), std::string(255, 'x'));
    EXPECT_NE(label_of(std::string(256, 'x').c_str()).find("256 bytes"), std::string::npos);
}

TEST(Label, BecomesAName)
{
    EXPECT_EQ(slug_of("Demo Doc"), "demo-doc");
    EXPECT_EQ(slug_of("--A  b/../C!!"), "a-b-c");
    EXPECT_EQ(slug_of("\xE6\x97\xA5\xE6\x9C\xAC"), "state");
    EXPECT_EQ(slug_of("...."), "state");
    EXPECT_EQ(slug_of(std::string(200, 'Q').c_str()), std::string(48, 'q'));
    EXPECT_EQ(slug_of((std::string(47, 'a') + " b").c_str()), std::string(47, 'a'));
}

using States = Database;

TEST_F(States, NamesAreUniqueAndTheLowestNumberIsTaken)
{
    EXPECT_EQ(added("Demo doc"), "demo-doc");
    EXPECT_EQ(added("demo DOC"), "demo-doc-2");
    EXPECT_EQ(added("demo doc"), "demo-doc-3");
    EXPECT_EQ(added("demo doc 2"), "demo-doc-2-2");
    ASSERT_EQ(weir_states_remove(states_, "demo-doc-2", &error_), WEIR_OK);
    EXPECT_EQ(added("demo doc"), "demo-doc-2");
    EXPECT_EQ(added("demo doc"), "demo-doc-4");
    EXPECT_EQ(added("demo doc 02"), "demo-doc-02");
    EXPECT_EQ(added("demo doc"), "demo-doc-5");
    EXPECT_EQ(
        names(), (Names{ "demo-doc-5", "demo-doc-02", "demo-doc-4", "demo-doc-2", "demo-doc-2-2",
                         "demo-doc-3", "demo-doc" })
    );
}

TEST_F(States, WhatIsAddedIsThereAgainWhenOpened)
{
    const std::string metadata = "{\"pages\": 12, \"from\": \"na\xC3\xAFve\"}";
    ASSERT_EQ(add(" Paper one ", { 1, 2, 3, 4 }, metadata.c_str(), 99), WEIR_OK) << error_.text;
    const weir_state_info before = info_;
    EXPECT_EQ(before.serial, 1);
    EXPECT_EQ(before.n_tokens, 100);
    EXPECT_EQ(before.n_bytes, (int64_t)fs::file_size(source_.file));
    EXPECT_STREQ(before.label, "Paper one");
    for (bool writes : { true, false }) {
        open(writes);
        weir_state_info after = {};
        weir_buffer text = {};
        ASSERT_EQ(weir_states_find(states_, "paper-one", &after, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(after.serial, before.serial);
        EXPECT_EQ(after.created, before.created);
        EXPECT_EQ(after.n_tokens, before.n_tokens);
        EXPECT_EQ(after.n_bytes, before.n_bytes);
        EXPECT_EQ(memcmp(after.payload, before.payload, sizeof after.payload), 0);
        EXPECT_EQ(after.source[0], 99u);
        EXPECT_TRUE(after.has_vector);
        EXPECT_STREQ(after.label, before.label);
        ASSERT_EQ(weir_states_metadata(states_, &after, &text, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(std::string(text.data, text.size), metadata);
        weir_buffer_free(&text);
        char path[PATH_MAX];
        ASSERT_EQ(weir_states_payload(states_, &after, path, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(slurp(path), slurp(source_.file));
        const uint64_t source[2] = { 99, 0 }, other[2] = { 98, 0 };
        EXPECT_EQ(
            weir_states_find_source(states_, source, nullptr, nullptr, &after, &error_), WEIR_OK
        );
        EXPECT_EQ(
            weir_states_find_source(states_, other, nullptr, nullptr, &after, &error_),
            WEIR_ENOTFOUND
        );
        const weir_states_kind *const kind = weir_states_kind_of(states_);
        EXPECT_EQ(kind->dim, 4);
        EXPECT_STREQ(kind->embedding, "test");
        EXPECT_EQ(memcmp(kind->model, test_model, sizeof kind->model), 0);
    }
}

TEST_F(States, MetadataIsAnObjectOrNothing)
{
    weir_buffer text = {};
    ASSERT_EQ(add("none"), WEIR_OK);
    ASSERT_EQ(weir_states_metadata(states_, &info_, &text, &error_), WEIR_OK);
    EXPECT_STREQ(text.data, "{}");
    weir_buffer_free(&text);
    const std::string most = "{\"a\":\"" + std::string(WEIR_STATE_METADATA - 8, 'x') + "\"}";
    EXPECT_EQ(most.size(), (size_t)WEIR_STATE_METADATA);
    EXPECT_EQ(add("most", {}, most.c_str()), WEIR_OK) << error_.text;
    for (const std::string &bad : { std::string("[1]"), std::string("1"), std::string("{"),
                                    std::string(""), std::string("{} {}"), most + " " }) {
        EXPECT_EQ(add("bad", {}, bad.c_str()), WEIR_EINVAL) << bad;
        EXPECT_NE(std::string(error_.text).find("metadata"), std::string::npos) << error_.text;
    }
    EXPECT_EQ(names(), (Names{ "most", "none" }));
    EXPECT_EQ(source_.calls, 2);
}

TEST_F(States, ListsInPagesNewestFirst)
{
    for (int i = 0; i < 5; i++) added("s" + std::to_string(i));
    ASSERT_EQ(weir_states_remove(states_, "s3", &error_), WEIR_OK);
    weir_state_info *list = nullptr;
    size_t n = 0, total = 0;
    int64_t before = 0;
    Names seen;
    do {
        const weir_states_page page = { before, 2, nullptr, nullptr };
        ASSERT_EQ(weir_states_list(states_, &page, &list, &n, &total, &error_), WEIR_OK);
        EXPECT_EQ(total, 4u);
        EXPECT_LE(n, 2u);
        for (size_t i = 0; i < n; i++) seen.push_back(list[i].name), before = list[i].serial;
        weir_memory_give(list);
    } while (n > 0);
    EXPECT_EQ(seen, (Names{ "s4", "s2", "s1", "s0" }));
}

TEST_F(States, NearestByCosine)
{
    added("east", { 1, 0, 0, 0 });
    added("far east", { 1000, 0, 0, 0 });
    added("north", { 0, 1e-6f, 0, 0 });
    added("west", { -3, 0, 0, 0 });
    added("nowhere");
    added("north east", { 1, 1, 0, 0 });
    EXPECT_EQ(
        route({ 2, 0, 0, 0 }, 10), (Names{ "far-east", "east", "north-east", "north", "west" })
    );
    EXPECT_EQ(route({ 2, 0, 0, 0 }, 2), (Names{ "far-east", "east" }));
    EXPECT_EQ(route({ 0, 5, 0, 0 }, 1), (Names{ "north" }));
    open();
    const float vector[] = { 1, 0, 0, 0 };
    const weir_states_question question = { vector, 3,
                                            [](void *, const weir_state_info *info) {
                                                return strchr(info->name, '-') != nullptr;
                                            },
                                            nullptr };
    weir_state_hit hits[3];
    size_t n = 0;
    ASSERT_EQ(weir_states_route(states_, &question, hits, &n, &error_), WEIR_OK);
    ASSERT_EQ(n, 2u);
    EXPECT_STREQ(hits[1].info.name, "north-east");
    EXPECT_NEAR(hits[0].similarity, 1, 1e-6);
    EXPECT_NEAR(hits[1].similarity, std::sqrt(0.5), 1e-6);
    ASSERT_EQ(weir_states_remove(states_, "far-east", &error_), WEIR_OK);
    EXPECT_EQ(route({ 1, 0, 0, 0 }, 1), (Names{ "east" }));
}

TEST_F(States, VectorsThatHaveNoDirectionAreRefused)
{
    const float nan = NAN, inf = INFINITY;
    for (const std::vector<float> &bad : std::vector<std::vector<float>>{ { 0, 0, 0, 0 },
                                                                          { nan, 1, 1, 1 },
                                                                          { inf, 0, 0, 0 },
                                                                          { 1e-38f, 0, 0, 0 },
                                                                          { 3e38f, 0, 0, 0 } }) {
        EXPECT_EQ(add("bad", bad), WEIR_EINVAL);
        EXPECT_NE(std::string(error_.text).find("direction"), std::string::npos) << error_.text;
        const weir_states_question question = { bad.data(), 1, nullptr, nullptr };
        weir_state_hit hit;
        size_t n = 0;
        EXPECT_EQ(weir_states_route(states_, &question, &hit, &n, &error_), WEIR_EINVAL);
    }
    const std::vector<float> good = { 1, 0, 0, 0 };
    const weir_states_question none = { good.data(), 0, nullptr, nullptr },
                               many = { good.data(), WEIR_STATE_HITS + 1, nullptr, nullptr };
    weir_state_hit hit;
    size_t n = 0;
    EXPECT_EQ(weir_states_route(states_, &none, &hit, &n, &error_), WEIR_EINVAL);
    EXPECT_EQ(weir_states_route(states_, &many, &hit, &n, &error_), WEIR_EINVAL);
    EXPECT_EQ(names(), Names{});
}

class WithoutVectors : public Database {
  protected:
    WithoutVectors() { dim_ = 0; }
};

TEST_F(WithoutVectors, AreListedAndNotRouted)
{
    added("a"), added("b");
    open();
    EXPECT_EQ(names(), (Names{ "b", "a" }));
    EXPECT_EQ(add("c", { 1 }), WEIR_EINVAL);
    EXPECT_NE(std::string(error_.text).find("no vectors"), std::string::npos);
}

/* ---- adding that fails ----------------------------------------------------------------------- */
TEST_F(States, FilesOfOtherModelsAndNoFilesAreRefused)
{
    added("good");
    source_.file = work_ + "/foreign.session";
    write_session(source_.file, 10, 0x999);
    EXPECT_EQ(add("foreign"), WEIR_EMISMATCH);
    EXPECT_NE(std::string(error_.text).find("another model"), std::string::npos) << error_.text;
    spill(source_.file, "no session");
    EXPECT_EQ(add("text"), WEIR_EFORMAT) << error_.text;
    source_.file = "";
    EXPECT_EQ(add("nothing"), WEIR_EIO);
    EXPECT_EQ(names(), Names{ "good" });
    EXPECT_EQ(n_files(), 1u);
    open();
    EXPECT_EQ(names(), Names{ "good" });
}

TEST_F(States, ReadersDoNotWrite)
{
    added("a");
    spill(folder_ + "/left-over.2.session", "x");
    open(false);
    EXPECT_EQ(add("b"), WEIR_EINVAL);
    EXPECT_EQ(weir_states_remove(states_, "a", &error_), WEIR_EINVAL);
    EXPECT_EQ(n_files(), 2u);
    EXPECT_EQ(names(), Names{ "a" });
}

TEST_F(States, RemovingWhatIsNotThere)
{
    EXPECT_EQ(weir_states_remove(states_, "a", &error_), WEIR_ENOTFOUND);
    EXPECT_NE(std::string(error_.text).find("no state a"), std::string::npos);
    EXPECT_EQ(
        weir_states_find(states_, std::string(1000, 'x').c_str(), &info_, &error_), WEIR_ENOTFOUND
    );
}

/* ---- removing -------------------------------------------------------------------------------- */
TEST_F(States, ALogOfWhatIsGoneIsWrittenAnewAndSerialsAreNotUsedAgain)
{
    const size_t record = state_record_bytes(4);
    added("keep", { 1, 0, 0, 0 });
    weir_states *reader = nullptr;
    const weir_states_options options = { folder_.c_str(), test_model, false, nullptr, 0 };
    ASSERT_EQ(weir_states_open(&reader, &options, &error_), WEIR_OK);
    for (int i = 0; i < 60; i++) {
        added("gone");
        ASSERT_EQ(weir_states_remove(states_, "gone", &error_), WEIR_OK) << error_.text;
        ASSERT_EQ(weir_states_find(reader, "keep", &info_, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(weir_states_find(reader, "gone", &info_, &error_), WEIR_ENOTFOUND);
    }
    EXPECT_LT(fs::file_size(log_), STATE_HEADER + 80 * record);
    ASSERT_EQ(weir_states_remove(states_, "keep", &error_), WEIR_OK);
    open();
    EXPECT_EQ(n_files(), 0u);
    added("next", { 0, 1, 0, 0 });
    EXPECT_EQ(info_.serial, 62);
    ASSERT_EQ(weir_states_find(reader, "next", &info_, &error_), WEIR_OK);
    EXPECT_EQ(weir_states_find(reader, "keep", &info_, &error_), WEIR_ENOTFOUND);
    weir_states_close(reader);
}

TEST_F(States, TwoWritersAndAReaderSeeTheSame)
{
    weir_states *const first = states_;
    states_ = nullptr;
    open();
    weir_states *const second = states_;
    states_ = nullptr;
    open(false);
    weir_states *const reader = states_;
    for (int i = 0; i < 4; i++) {
        states_ = i % 2 == 0 ? first : second;
        EXPECT_EQ(
            added("doc", { 1, (float)i, 0, 0 }), i == 0 ? "doc" : "doc-" + std::to_string(i + 1)
        );
        states_ = reader;
        EXPECT_EQ(names().size(), (size_t)i + 1);
    }
    ASSERT_EQ(weir_states_remove(second, "doc", &error_), WEIR_OK);
    for (weir_states *each : { first, second, reader }) {
        states_ = each;
        EXPECT_EQ(names(), (Names{ "doc-4", "doc-3", "doc-2" }));
        EXPECT_EQ(route({ 1, 0, 0, 0 }, 1), Names{ "doc-2" });
    }
    weir_states_close(first);
    weir_states_close(second);
}

} // namespace
