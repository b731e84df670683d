// Session files against everything that can happen to a file: cut, flipped, foreign, of the future,
// half written. Those of a failing disk are in session_disk_test.cc.
#include "engine/session/file/session_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/kv/session_file_fixture.h"

using namespace session_content;

namespace {

std::string slurp(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
}

/* A new file: ext4 waits for the disk when one with bytes is truncated and written again. */
void write_over(const std::string &path, const std::string &bytes)
{
    (void)std::remove(path.c_str());
    std::ofstream(path, std::ios::binary) << bytes;
}

/* A header's checksum is put right again after a change. */
void seal(std::string *bytes)
{
    const uint64_t sum = XXH3_64bits(bytes->data(), 4088);
    for (size_t i = 0; i < 8; i++) (*bytes)[4088 + i] = (char)(sum >> (8 * i));
}

/* Hands out copies of a sequence until it is taken away. */
struct Lender {
    const Content *content = nullptr;
    int n_left = INT32_MAX;
    std::vector<char> memory = std::vector<char>(weir_session_copy_bytes(&spec));
    weir_session_source source = { page, state, nullptr, this, memory.data() };
    static weir_status page(void *user, void *bytes, int64_t block, int64_t head, weir_error *error)
    {
        Lender *const self = static_cast<Lender *>(user);
        if (self->n_left-- <= 0) return weir_error_set(error, WEIR_ECANCELED, "taken away");
        EXPECT_EQ((uintptr_t)bytes % WEIR_LOWER_TIER_ALIGNMENT, 0u);
        memcpy(
            bytes, self->content->table[(size_t)(head * self->content->stride + block)],
            page_of((size_t)head, (size_t)block)
        );
        return WEIR_OK;
    }
    static weir_status state(
        void *user, void *bytes, int64_t index, size_t at, size_t n, weir_error *error
    )
    {
        Lender *const self = static_cast<Lender *>(user);
        if (self->n_left-- <= 0) return weir_error_set(error, WEIR_ECANCELED, "taken away");
        memcpy(bytes, (const char *)self->content->marks[(size_t)index].state + at, n);
        return WEIR_OK;
    }
};

TEST_F(SessionFile, ASequenceThatIsTakenAwayLeavesNoFile)
{
    Content content(1000, 16, 7);
    Lender lender;
    content.identity.state_bytes = 516;
    lender.content = &content;
    ASSERT_EQ(content.write(path_, &error_, &lender.source), WEIR_OK) << error_.text;
    EXPECT_EQ(read_all(path_, &error_, &content), WEIR_OK) << error_.text;
    std::filesystem::remove(path_);
    for (const int n : { 0, 5, 16, 17, 40, 111 }) { // of 16 states and 96 pages
        lender.n_left = n;
        EXPECT_EQ(content.write(path_, &error_, &lender.source), WEIR_ECANCELED) << n;
        EXPECT_EQ(n_files(), 0u) << n;
    }
    lender.n_left = 112;
    EXPECT_EQ(content.write(path_, &error_, &lender.source), WEIR_OK) << error_.text;
}

struct FileKind {
    int32_t n_sinks;
    bool is_pruned;
    int32_t bits = -1; /* of packed states, 0: none are; -1: the file is no state's */
};
class SessionFiles : public SessionFile, public ::testing::WithParamInterface<FileKind> {
  protected:
    static Content content(int32_t n_tokens, int32_t n_states, unsigned seed)
    {
        Content t(n_tokens, GetParam().is_pruned && n_states > 1 ? 1 : n_states, seed);
        if (GetParam().is_pruned)
            t.watch({ n_tokens, 0, 1, n_tokens / 2, n_tokens < 64 ? n_tokens : 64,
                      n_tokens < 65 ? 0 : 65 });
        if (GetParam().bits >= 0) t.shape(GetParam().bits);
        return t;
    }
    void SetUp() override
    {
        SessionFile::SetUp();
        spec.sinks = { { WEIR_KV_F32, WEIR_KV_F16 }, GetParam().n_sinks };
    }
    void TearDown() override
    {
        spec.sinks = {};
        SessionFile::TearDown();
    }
};
INSTANTIATE_TEST_SUITE_P(
    Sinks, SessionFiles,
    ::testing::Values(
        FileKind{ 0, false }, FileKind{ 1, false }, FileKind{ 3, false }, FileKind{ 0, true },
        FileKind{ 1, true }, FileKind{ 0, false, 0 }, FileKind{ 1, false, 8 },
        FileKind{ 0, false, 4 }
    )
);

TEST_P(SessionFiles, RoundTripIsTheSameBits)
{
    for (const int n_tokens : { 1, 63, 64, 65, 1000 }) {
        for (const int n_states : { 0, 1, 16 }) {
            if (n_states > n_tokens) continue;
            for (const size_t step : { size_t{ 0 }, size_t{ 777 } }) {
                Content content = SessionFiles::content(n_tokens, n_states, 7);
                if (GetParam().is_pruned && n_tokens == 1) continue; /* its turns need two */
                content.salt = n_states == 1 ? std::string(WEIR_PREFIX_SALT, 's') : content.salt;
                disk.short_calls = step;
                ASSERT_EQ(content.write(path_, &error_), WEIR_OK) << error_.text;
                ASSERT_EQ(read_all(path_, &error_, &content, &content.identity), WEIR_OK)
                    << error_.text;
                EXPECT_EQ(n_files(), 1u);
            }
        }
    }
}

TEST_P(SessionFiles, EveryTruncationIsSeen)
{
    Content content = SessionFiles::content(70, 2, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    const std::string whole = slurp(path_);
    for (size_t n = 0; n < whole.size(); n += n < 4200 ? 1 : 97) {
        ASSERT_EQ(truncate(path_.c_str(), (off_t)n), 0);
        ASSERT_EQ(read_all(path_, &error_), WEIR_EFORMAT) << n;
        if (n % 97 == 0) write_over(path_, whole);
    }
    write_over(path_, whole + "x");
    EXPECT_EQ(read_all(path_, &error_), WEIR_EFORMAT);
}

TEST_P(SessionFiles, EveryFlippedBitIsSeen)
{
    Content content = SessionFiles::content(70, 2, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    std::string bytes = slurp(path_);
    const int fd = open(path_.c_str(), O_WRONLY);
    for (size_t at = 0; at < bytes.size(); at += at < 4096 ? 1 : 61) {
        const char flipped = (char)(bytes[at] ^ (1 << at % 8));
        ASSERT_EQ(pwrite(fd, &flipped, 1, (off_t)at), 1);
        const weir_status status = read_all(path_, &error_);
        ASSERT_TRUE(status == WEIR_EFORMAT || (status == WEIR_EUNSUPPORTED && at >= 8 && at < 12))
            << at << " " << status;
        ASSERT_EQ(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
    }
    close(fd);
    EXPECT_EQ(read_all(path_, &error_, &content), WEIR_OK) << error_.text;
}

// Numbers that somebody chose, under a checksum that is right.
TEST_P(SessionFiles, SealedLiesAreSeen)
{
    Content content = SessionFiles::content(70, 2, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    const std::string whole = slurp(path_);
    std::mt19937_64 random(3);
    for (size_t at = 12; at < 760; at += 4) {
        for (const uint64_t value : { uint64_t{ 0 }, uint64_t{ 1 }, uint64_t{ 0x7fffffff },
                                      uint64_t{ 0xffffffff }, random() }) {
            std::string bytes = whole;
            for (size_t i = 0; i < 4; i++) bytes[at + i] = (char)(value >> (8 * i));
            if (bytes == whole) continue;
            seal(&bytes);
            write_over(path_, bytes);
            const weir_status status = read_all(path_, &error_, nullptr, &content.identity);
            /* Of creation; automatic; not merged */
            const bool is_stamp = (at >= 24 && at < 32) || (at == 264 && value == 1) ||
                                  (at == 732 && value == 0 && GetParam().bits > 0);
            ASSERT_EQ(status == WEIR_OK, is_stamp) << at << " = " << value;
            ASSERT_TRUE(is_stamp || status == WEIR_EFORMAT || status == WEIR_EMISMATCH)
                << at << " = " << value;
        }
    }
}

TEST_P(SessionFiles, OtherVersionsAreRefusedWhateverTheyHold)
{
    Content content = SessionFiles::content(70, 2, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    std::string bytes = slurp(path_);
    EXPECT_EQ(bytes[8], WEIR_SESSION_VERSION);
    for (const int version : { 0, 1, 2, 3, 4, 5, 6, 8 }) {
        bytes[8] = (char)version;
        write_over(path_, bytes);
        EXPECT_EQ(read_all(path_, &error_), WEIR_EUNSUPPORTED);
        const std::string said = "version " + std::to_string(version) + ",";
        EXPECT_NE(strstr(error_.text, said.c_str()), nullptr) << error_.text;
        seal(&bytes);
        write_over(path_, bytes);
        EXPECT_EQ(read_all(path_, &error_), WEIR_EUNSUPPORTED);
    }
}

// What a policy left, under checksums that are right: rows, turns and sizes that cannot be.
TEST_P(SessionFiles, SealedLiesAboutAPolicyAreSeen)
{
    if (!GetParam().is_pruned) return;
    const auto refused = [&](const std::function<void(Content *)> &change, const char *said) {
        Content content = SessionFiles::content(70, 1, 1);
        change(&content);
        ASSERT_EQ(content.write(path_, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(read_all(path_, &error_), WEIR_EFORMAT) << said;
        EXPECT_NE(strstr(error_.text, said), nullptr) << error_.text;
    };
    refused([](Content *t) { t->cut.past.turns[0].prompt = 0; }, "turns");
    refused([](Content *t) { t->cut.past.turns[0].end = 71; }, "turns");
    refused(
        [](Content *t) { t->cut.past.turns[0].end = t->cut.past.turns[0].prompt - 1; }, "turns"
    );
    refused([](Content *t) { t->cut.past.turns[1].end = 69; }, "turns");
    refused([](Content *t) { t->cut.past.turns[1].prompt = t->cut.past.turns[0].end; }, "turns");
    refused([](Content *t) { t->cut.past.n_pinned = 40; }, "turns");
    refused([](Content *t) { t->cut.past.n_pinned = -1; }, "turns");
    refused([](Content *t) { t->cut.past.budget = 0; }, "turns");
    refused([](Content *t) { t->cut.past.n_turns = 0; }, "sizes");
    refused([](Content *t) { t->cut.policy = ""; }, "policy");
    refused([](Content *t) { t->marks[0].at = 69; }, "the state is after token 69");
    Content content = SessionFiles::content(70, 1, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    const std::string whole = slurp(path_);
    const auto number = [&](size_t at) {
        uint64_t value = 0;
        for (size_t i = 8; i-- > 0;) value = value << 8 | (unsigned char)whole[at + i];
        return (size_t)value;
    };
    enum { ROWS = 280 + 7 * 40, POLICY = ROWS + 40 }; /* the sections' entries in the header */
    const size_t rows = number(ROWS + 8), policy = number(POLICY + 8);
    const auto lie = [&](size_t entry, size_t at, uint32_t value) {
        std::string bytes = whole;
        for (size_t i = 0; i < 4; i++) bytes[at + i] = (char)(value >> (8 * i));
        const size_t offset = number(entry + 8), size = (number(entry + 16) + 4095) / 4096 * 4096;
        const XXH128_hash_t hash = XXH3_128bits(bytes.data() + offset, size);
        for (size_t i = 0; i < 8; i++)
            bytes[entry + 24 + i] = (char)(hash.low64 >> (8 * i)),
                               bytes[entry + 32 + i] = (char)(hash.high64 >> (8 * i));
        seal(&bytes);
        write_over(path_, bytes);
        return read_all(path_, &error_);
    };
    EXPECT_EQ(lie(ROWS, rows, 70), WEIR_OK) << error_.text;
    for (const uint32_t value : { 71u, 0xffffffffu, 0x80000000u, 1u })
        EXPECT_EQ(lie(ROWS, rows, value), WEIR_EFORMAT) << value;
    EXPECT_EQ(lie(ROWS, rows + 8, 0), WEIR_EFORMAT) << "a page fewer than the file holds";
    for (const size_t at : { size_t{ 16 }, size_t{ 28 }, size_t{ 32 }, size_t{ 36 } })
        for (const uint32_t value : { 0u, 4097u, 0x7fffffffu, 0xffffffffu }) {
            const weir_status status = lie(POLICY, policy + at, value);
            EXPECT_TRUE(status == WEIR_EFORMAT || (at == 36 && value == 0))
                << at << " = " << value << ": " << status;
        }
}

/* As many heads in all as the sequence has, and pages of as many bytes. */
const weir_kv_geometry swapped[] = { { 3, 8, 8, 0, 0, false },
                                     { 2, 8, 8, 0, 3, false },
                                     { 1, 8, 8, 16, 5, false } },
                       windowed[] = { { 2, 8, 8, 0, 0, false },
                                      { 3, 8, 8, 0, 2, false },
                                      { 1, 8, 8, 8, 5, false } };

TEST_F(SessionFile, WhatDiffersIsNamed)
{
    Content content(70, 2, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    const struct {
        void (*change)(weir_session_identity *);
        const char *said;
    } cases[] = {
        { [](weir_session_identity *id) { id->model[1]++; }, "another model" },
        { [](weir_session_identity *id) { id->tokenizer[0]++; }, "another tokenizer" },
        { [](weir_session_identity *id) { strcpy(id->format, "q8_0"); }, "kv.format" },
        { [](weir_session_identity *id) { strcpy(id->policy, "h2o:64"); }, "kv.policy" },
        { [](weir_session_identity *id) { id->n_layers++; }, "layers with KV" },
        { [](weir_session_identity *id) { id->n_heads--; }, "KV heads in all layers" },
        { [](weir_session_identity *id) { id->geometry = swapped; },
          "KV layer 0 has 2 KV heads, keys of 8, values of 8, window 0; here 3 KV heads" },
        { [](weir_session_identity *id) { id->geometry = windowed; },
          "KV layer 2 has 1 KV heads, keys of 8, values of 8, window 16; here 1 KV heads, "
          "keys of 8, values of 8, window 8" },
        { [](weir_session_identity *id) { id->block_bytes *= 2; }, "bytes per 64 tokens" },
        { [](weir_session_identity *id) { id->state_bytes += 4; }, "bytes per state" },
        { [](weir_session_identity *id) { id->n_sinks = 1; }, "kv.wide_sinks" },
        { [](weir_session_identity *id) { strcpy(id->sink_format, "f16"); }, "kv.wide_sinks" },
        { [](weir_session_identity *id) { id->sink_block_bytes = 77; },
          "bytes per 64 wide tokens" },
    };
    for (const auto &test : cases) {
        weir_session_identity own = content.identity;
        test.change(&own);
        EXPECT_EQ(read_all(path_, &error_, nullptr, &own), WEIR_EMISMATCH);
        EXPECT_NE(strstr(error_.text, test.said), nullptr) << error_.text;
        EXPECT_NE(strstr(error_.text, "a.session"), nullptr) << error_.text;
    }
}

TEST_F(SessionFile, EachFieldOfNumericsIsNamedAndAllowedOnlyWithAny)
{
    Content content(70, 2, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    const struct {
        void (*change)(weir_numerics *);
        const char *said;
    } cases[] = {
        { [](weir_numerics *n) { strcpy(n->isa, "v4+bf16"); },
          "computed with instruction set v3 (here v4+bf16); set sessions.numerics=any" },
        { [](weir_numerics *n) { strcpy(n->device, "gpu sm_90 H100"); },
          "computed with device cpu (here gpu sm_90 H100);" },
        { [](weir_numerics *n) { strcpy(n->activations, "f32"); },
          "computed with activations fast (here f32);" },
        { [](weir_numerics *n) { strcpy(n->adapter, "0123"); },
          "computed with adapter none (here 0123);" },
        { [](weir_numerics *n) { strcpy(n->pins, "add=omp.add.v2"); },
          "computed with kernel pins none (here add=omp.add.v2);" },
        { [](weir_numerics *n) { strcpy(n->isa, "v2"), strcpy(n->device, "gpu"); },
          "computed with instruction set v3 (here v2), device cpu (here gpu);" },
    };
    for (const auto &test : cases) {
        weir_session_identity own = content.identity;
        test.change(&own.numerics);
        EXPECT_EQ(read_all(path_, &error_, nullptr, &own), WEIR_EMISMATCH);
        EXPECT_NE(strstr(error_.text, test.said), nullptr) << error_.text;
        own.takes_any_numerics = true;
        EXPECT_EQ(read_all(path_, &error_, &content, &own), WEIR_OK) << error_.text;
        own.model[0]++;
        EXPECT_EQ(read_all(path_, &error_, nullptr, &own), WEIR_EMISMATCH) << "any is not all";
    }
}

TEST_F(SessionFile, MixedNumericsAreEqualToNone)
{
    Content content(70, 2, 1);
    const weir_numerics begun = content.identity.numerics;
    content.begun = &begun;
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    EXPECT_EQ(read_all(path_, &error_, nullptr, &content.identity), WEIR_EMISMATCH);
    EXPECT_NE(strstr(error_.text, "continued elsewhere"), nullptr) << error_.text;
    content.identity.takes_any_numerics = true;
    EXPECT_EQ(read_all(path_, &error_, &content, &content.identity), WEIR_OK) << error_.text;
}

/* Numerics that are none, under checksums that are right: nothing of them reaches a header or a
 * log. */
TEST_F(SessionFile, HostileNumericsAreRefused)
{
    enum { NUMERICS = 752, FLAGS = NUMERICS + WEIR_NUMERICS_BYTES };
    Content content(70, 2, 1);
    ASSERT_EQ(content.write(path_, &error_), WEIR_OK);
    const std::string whole = slurp(path_);
    size_t at = NUMERICS;
    const auto refused = [&](size_t place, const std::string &value) {
        std::string bytes = whole;
        bytes.replace(place, value.size(), value);
        seal(&bytes);
        write_over(path_, bytes);
        EXPECT_EQ(read_all(path_, &error_), WEIR_EFORMAT) << place << " " << value;
        EXPECT_NE(strstr(error_.text, "numerics"), nullptr) << error_.text;
    };
    for (const size_t size : { sizeof(weir_numerics::isa), sizeof(weir_numerics::device),
                               sizeof(weir_numerics::activations), sizeof(weir_numerics::adapter),
                               sizeof(weir_numerics::pins) }) {
        refused(at, std::string(size, 'a'));
        refused(at, std::string(size, '\0'));
        for (const char *const bad : { "\r\n", "\"", "\x80", "\\", "%", ";" }) refused(at, bad);
        refused(at + size - 1, "x");
        at += size;
    }
    ASSERT_EQ(at, (size_t)FLAGS);
    refused(FLAGS, "\x02");
    refused(FLAGS + 7, "\x01");
    write_over(path_, whole);
    EXPECT_EQ(read_all(path_, &error_), WEIR_OK) << error_.text;
}

TEST(Numerics, FieldsTakeAnyText)
{
    char out[8];
    weir_numerics_field(out, sizeof out, "a\r\n\"b:\xff too long");
    EXPECT_STREQ(out, "a___b__");
    weir_numerics numerics = { "v4+bf16", "", "f32", "none", "none", false };
    EXPECT_FALSE(weir_numerics_are_sound(&numerics));
    strcpy(numerics.device, "cpu");
    EXPECT_TRUE(weir_numerics_are_sound(&numerics));
    char content[WEIR_NUMERICS_TEXT];
    weir_numerics_print(content, &numerics);
    EXPECT_STREQ(
        content,
        "instruction set v4+bf16, device cpu, activations f32, adapter none, kernel pins none"
    );
    numerics.is_mixed = true;
    memset(numerics.pins, 'p', sizeof numerics.pins - 1);
    memset(numerics.device, 'd', sizeof numerics.device - 1);
    weir_numerics_print(content, &numerics);
    EXPECT_NE(strstr(content, "pppp; continued with others"), nullptr) << content;
}

} // namespace
