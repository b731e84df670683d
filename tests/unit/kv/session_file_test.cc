// Session files against everything that can happen to a file: cut, flipped, foreign, of the future,
// half written, on a full or failing disk.
#include "engine/session/file/session_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/kv/session_text.h"

using namespace session_text;

namespace {

/* How the disk fails, if it does: after `good_bytes` more bytes, with this error. short_calls: the
 * most bytes that a call moves. */
struct Disk {
    int64_t good_bytes = INT64_MAX;
    int error = 0;
    size_t short_calls = 0;
    bool sync_fails = false;
};
Disk disk;

ssize_t limited(
    const struct iovec *pieces, int n, ssize_t (*real)(int, const struct iovec *, int, off_t),
    int fd, off_t at
)
{
    if (disk.error != 0 && disk.good_bytes <= 0) {
        errno = disk.error;
        return -1;
    }
    struct iovec first = pieces[0];
    if (disk.short_calls > 0 && first.iov_len > disk.short_calls) first.iov_len = disk.short_calls;
    const bool is_short = disk.short_calls > 0 || disk.error != 0;
    const ssize_t moved = is_short ? real(fd, &first, 1, at) : real(fd, pieces, n, at);
    if (moved > 0) disk.good_bytes -= moved;
    return moved;
}

} // namespace

/* The process's calls come here first. */
extern "C" ssize_t preadv(int fd, const struct iovec *pieces, int n, off_t at)
{
    static const auto real = reinterpret_cast<ssize_t (*)(int, const struct iovec *, int, off_t)>(
        dlsym(RTLD_NEXT, "preadv")
    );
    return limited(pieces, n, real, fd, at);
}
extern "C" ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t at)
{
    static const auto real = reinterpret_cast<ssize_t (*)(int, const struct iovec *, int, off_t)>(
        dlsym(RTLD_NEXT, "pwritev")
    );
    return limited(pieces, n, real, fd, at);
}
extern "C" int fsync(int fd)
{
    static const auto real = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
    if (disk.sync_fails) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

namespace {

std::string slurp(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
}

void write_over(const std::string &path, const std::string &bytes)
{
    std::ofstream(path, std::ios::binary) << bytes;
}

class SessionFile : public ::testing::Test {
  protected:
    void SetUp() override
    {
        folder_ = std::string(getenv("TEST_TMPDIR")) + "/files";
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directory(folder_);
        path_ = folder_ + "/a.session";
        disk = Disk();
    }
    void TearDown() override { disk = Disk(); }
    size_t n_files() const
    {
        size_t n = 0;
        for (const auto &entry : std::filesystem::directory_iterator(folder_)) n += entry.exists();
        return n;
    }
    /* A header's checksum is put right again after a change. */
    static void seal(std::string *bytes)
    {
        const uint64_t sum = XXH3_64bits(bytes->data(), 4088);
        for (size_t i = 0; i < 8; i++) (*bytes)[4088 + i] = (char)(sum >> (8 * i));
    }
    std::string folder_, path_;
    weir_error error_ = {};
};

/* Hands out copies of a text until it is taken away. */
struct Lender {
    const Text *text = nullptr;
    int n_left = INT32_MAX;
    std::vector<char> memory = std::vector<char>(weir_session_copy_bytes(&spec));
    weir_session_source source = { page, state, this, memory.data() };
    static weir_status page(void *user, void *bytes, int64_t block, int64_t head, weir_error *error)
    {
        Lender *const self = static_cast<Lender *>(user);
        if (self->n_left-- <= 0) return weir_error_set(error, WEIR_ECANCELED, "taken away");
        EXPECT_EQ((uintptr_t)bytes % WEIR_LOWER_TIER_ALIGNMENT, 0u);
        memcpy(
            bytes, self->text->table[(size_t)(head * self->text->stride + block)],
            page_of((size_t)head, (size_t)block)
        );
        return WEIR_OK;
    }
    static weir_status state(
        void *user, void *bytes, int32_t index, size_t at, size_t n, weir_error *error
    )
    {
        Lender *const self = static_cast<Lender *>(user);
        if (self->n_left-- <= 0) return weir_error_set(error, WEIR_ECANCELED, "taken away");
        memcpy(bytes, (const char *)self->text->marks[(size_t)index].state + at, n);
        return WEIR_OK;
    }
};

TEST_F(SessionFile, ATextThatIsTakenAwayLeavesNoFile)
{
    Text text(1000, 16, 7);
    Lender lender;
    text.identity.state_bytes = 516;
    lender.text = &text;
    ASSERT_EQ(text.write(path_, &error_, &lender.source), WEIR_OK) << error_.text;
    EXPECT_EQ(read_all(path_, &error_, &text), WEIR_OK) << error_.text;
    std::filesystem::remove(path_);
    for (const int n : { 0, 5, 16, 17, 40, 111 }) { // of 16 states and 96 pages
        lender.n_left = n;
        EXPECT_EQ(text.write(path_, &error_, &lender.source), WEIR_ECANCELED) << n;
        EXPECT_EQ(n_files(), 0u) << n;
    }
    lender.n_left = 112;
    EXPECT_EQ(text.write(path_, &error_, &lender.source), WEIR_OK) << error_.text;
}

struct FileKind {
    int32_t n_sinks;
    bool is_pruned;
    int32_t bits = -1; /* of packed states, 0: none are; -1: the file is no state's */
};
class SessionFiles : public SessionFile, public ::testing::WithParamInterface<FileKind> {
  protected:
    static Text text(int32_t n_tokens, int32_t n_states, unsigned seed)
    {
        Text t(n_tokens, GetParam().is_pruned && n_states > 1 ? 1 : n_states, seed);
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
                Text text = SessionFiles::text(n_tokens, n_states, 7);
                if (GetParam().is_pruned && n_tokens == 1) continue; /* its turns need two */
                text.salt = n_states == 1 ? std::string(WEIR_PREFIX_SALT, 's') : text.salt;
                disk.short_calls = step;
                ASSERT_EQ(text.write(path_, &error_), WEIR_OK) << error_.text;
                ASSERT_EQ(read_all(path_, &error_, &text, &text.identity), WEIR_OK) << error_.text;
                EXPECT_EQ(n_files(), 1u);
            }
        }
    }
}

TEST_P(SessionFiles, EveryTruncationIsSeen)
{
    Text text = SessionFiles::text(70, 2, 1);
    ASSERT_EQ(text.write(path_, &error_), WEIR_OK);
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
    Text text = SessionFiles::text(70, 2, 1);
    ASSERT_EQ(text.write(path_, &error_), WEIR_OK);
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
    EXPECT_EQ(read_all(path_, &error_, &text), WEIR_OK) << error_.text;
}

// Numbers that somebody chose, under a checksum that is right.
TEST_P(SessionFiles, SealedLiesAreSeen)
{
    Text text = SessionFiles::text(70, 2, 1);
    ASSERT_EQ(text.write(path_, &error_), WEIR_OK);
    const std::string whole = slurp(path_);
    std::mt19937_64 random(3);
    for (size_t at = 12; at < 720; at += 4) {
        for (const uint64_t value : { uint64_t{ 0 }, uint64_t{ 1 }, uint64_t{ 0x7fffffff },
                                      uint64_t{ 0xffffffff }, random() }) {
            std::string bytes = whole;
            for (size_t i = 0; i < 4; i++) bytes[at + i] = (char)(value >> (8 * i));
            if (bytes == whole) continue;
            seal(&bytes);
            write_over(path_, bytes);
            const weir_status status = read_all(path_, &error_, nullptr, &text.identity);
            /* Of creation; automatic; not merged */
            const bool is_stamp = (at >= 24 && at < 32) || (at == 264 && value == 1) ||
                                  (at == 692 && value == 0 && GetParam().bits > 0);
            ASSERT_EQ(status == WEIR_OK, is_stamp) << at << " = " << value;
            ASSERT_TRUE(is_stamp || status == WEIR_EFORMAT || status == WEIR_EMISMATCH)
                << at << " = " << value;
        }
    }
}

TEST_P(SessionFiles, OtherVersionsAreRefusedWhateverTheyHold)
{
    Text text = SessionFiles::text(70, 2, 1);
    ASSERT_EQ(text.write(path_, &error_), WEIR_OK);
    std::string bytes = slurp(path_);
    EXPECT_EQ(bytes[8], WEIR_SESSION_VERSION);
    for (const int version : { 0, 1, 2, 3, 4, 6, 9 }) {
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
    const auto refused = [&](const std::function<void(Text *)> &change, const char *said) {
        Text text = SessionFiles::text(70, 1, 1);
        change(&text);
        ASSERT_EQ(text.write(path_, &error_), WEIR_OK) << error_.text;
        EXPECT_EQ(read_all(path_, &error_), WEIR_EFORMAT) << said;
        EXPECT_NE(strstr(error_.text, said), nullptr) << error_.text;
    };
    refused([](Text *t) { t->cut.past.turns[0].prompt = 0; }, "turns");
    refused([](Text *t) { t->cut.past.turns[0].end = 71; }, "turns");
    refused([](Text *t) { t->cut.past.turns[0].end = t->cut.past.turns[0].prompt - 1; }, "turns");
    refused([](Text *t) { t->cut.past.turns[1].end = 69; }, "turns");
    refused([](Text *t) { t->cut.past.turns[1].prompt = t->cut.past.turns[0].end; }, "turns");
    refused([](Text *t) { t->cut.past.n_pinned = 40; }, "turns");
    refused([](Text *t) { t->cut.past.n_pinned = -1; }, "turns");
    refused([](Text *t) { t->cut.past.budget = 0; }, "turns");
    refused([](Text *t) { t->cut.past.n_turns = 0; }, "sizes");
    refused([](Text *t) { t->cut.policy = ""; }, "policy");
    refused([](Text *t) { t->marks[0].at = 69; }, "the state is after token 69");
    Text text = SessionFiles::text(70, 1, 1);
    ASSERT_EQ(text.write(path_, &error_), WEIR_OK);
    const std::string whole = slurp(path_);
    const auto number = [&](size_t at) {
        uint64_t value = 0;
        for (size_t i = 8; i-- > 0;) value = value << 8 | (unsigned char)whole[at + i];
        return (size_t)value;
    };
    enum { ROWS = 280 + 6 * 40, POLICY = ROWS + 40 }; /* the sections' entries in the header */
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

/* As many heads in all as the text has, and pages of as many bytes. */
const weir_kv_geometry swapped[] = { { 3, 8, 8, 0, 0 }, { 2, 8, 8, 0, 3 }, { 1, 8, 8, 16, 5 } },
                       windowed[] = { { 2, 8, 8, 0, 0 }, { 3, 8, 8, 0, 2 }, { 1, 8, 8, 8, 5 } };

TEST_F(SessionFile, WhatDiffersIsNamed)
{
    Text text(70, 2, 1);
    ASSERT_EQ(text.write(path_, &error_), WEIR_OK);
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
        weir_session_identity own = text.identity;
        test.change(&own);
        EXPECT_EQ(read_all(path_, &error_, nullptr, &own), WEIR_EMISMATCH);
        EXPECT_NE(strstr(error_.text, test.said), nullptr) << error_.text;
        EXPECT_NE(strstr(error_.text, "a.session"), nullptr) << error_.text;
    }
}

// Wherever a disk begins to fail, the old file stays and nothing else.
TEST_F(SessionFile, AFailingDiskLeavesTheOldFile)
{
    const Text old(130, 2, 1), fresh(130, 2, 2);
    ASSERT_EQ(old.write(path_, &error_), WEIR_OK);
    const size_t size = std::filesystem::file_size(path_);
    for (const int reason : { ENOSPC, EIO, EDQUOT }) {
        for (size_t at = 0; at < size; at += 1001) {
            disk = { (int64_t)at, reason, 500, false };
            ASSERT_EQ(fresh.write(path_, &error_), WEIR_EIO) << at;
            ASSERT_NE(strstr(error_.text, strerror(reason)), nullptr) << error_.text;
        }
    }
    disk = Disk();
    disk.sync_fails = true;
    EXPECT_EQ(fresh.write(path_, &error_), WEIR_EIO);
    disk = Disk();
    EXPECT_EQ(read_all(path_, &error_, &old), WEIR_OK) << error_.text;
    EXPECT_EQ(n_files(), 1u);
}

TEST_F(SessionFile, AFullDiskIsFoundBeforeAnythingIsWritten)
{
    const Text text(130, 2, 1);
    const pid_t child = fork();
    if (child == 0) { /* a file may have 20000 bytes: the kernel says so when they are reserved */
        const struct rlimit limit = { 20000, 20000 };
        (void)signal(SIGXFSZ, SIG_IGN);
        weir_error error = {};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
        _exit(
            text.write(path_, &error) == WEIR_EIO && strstr(error.text, "reserve") != nullptr ? 0
                                                                                              : 1
        );
    }
    int how = 0;
    ASSERT_EQ(waitpid(child, &how, 0), child);
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
    EXPECT_EQ(n_files(), 0u);
}

TEST_F(SessionFile, ReadErrorsAreSaid)
{
    const Text text(130, 2, 1);
    ASSERT_EQ(text.write(path_, &error_), WEIR_OK);
    const size_t size = std::filesystem::file_size(path_);
    for (size_t at = 0; at < size; at += 1001) {
        disk = { (int64_t)at, EIO, 500, false };
        ASSERT_EQ(read_all(path_, &error_), WEIR_EIO) << at;
        ASSERT_NE(strstr(error_.text, strerror(EIO)), nullptr) << error_.text;
    }
}

TEST_F(SessionFile, UnwritableFoldersAreNamed)
{
    const Text text(70, 0, 1);
    EXPECT_EQ(text.write(folder_ + "/none/a.session", &error_), WEIR_EIO);
    EXPECT_NE(strstr(error_.text, "none/a.session"), nullptr) << error_.text;
    std::filesystem::create_directory(path_);
    EXPECT_EQ(text.write(path_, &error_), WEIR_EIO);
    EXPECT_EQ(read_all(path_, &error_), WEIR_EIO);
    EXPECT_EQ(read_all(folder_ + "/none.session", &error_), WEIR_ENOTFOUND);
}

/* Writes the second and the first text in turns, n times, and waits to be killed. Says each one. */
[[noreturn]] void write_in_turns(const Text texts[2], const std::string &path, int n, int said)
{
    weir_error error = {};
    for (int i = 0; i < n; i++)
        if (texts[(i + 1) % 2].write(path, &error) != WEIR_OK || write(said, "w", 1) != 1) _exit(1);
    for (;;) pause();
}

// kill -9 at any moment of a writer that alternates between two texts, or after one or two files:
// the file is always one of them.
TEST_F(SessionFile, AKilledWriterLeavesTheOldOrTheNewFile)
{
    const Text texts[2] = { Text(3000, 4, 1), Text(2000, 4, 2) };
    std::mt19937 random(5);
    ASSERT_EQ(texts[0].write(path_, &error_), WEIR_OK);
    bool saw[2] = { false, false };
    for (int round = 0; round < 60; round++) {
        const bool is_waited = round % 4 == 0;
        const int n = is_waited ? 1 + round / 4 % 2 : 1 << 20;
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) write_in_turns(texts, path_, n, ends[1]);
        char said = 0;
        for (int i = 0; is_waited && i < n; i++) ASSERT_EQ(read(ends[0], &said, 1), 1);
        if (!is_waited) usleep(random() % 20000);
        ASSERT_EQ(kill(child, SIGKILL), 0);
        int how = 0;
        ASSERT_EQ(waitpid(child, &how, 0), child);
        ASSERT_TRUE(WIFSIGNALED(how)) << "the writer failed";
        for (const int fd : ends) close(fd);
        weir_session_reader *reader = nullptr;
        ASSERT_EQ(weir_session_open(&reader, path_.c_str(), &error_), WEIR_OK) << error_.text;
        const bool is_second = weir_session_header_of(reader)->n_tokens == 2000;
        weir_session_close(reader);
        ASSERT_EQ(read_all(path_, &error_, &texts[is_second]), WEIR_OK) << error_.text;
        if (is_waited) EXPECT_EQ(is_second, n % 2 == 1) << "after " << n << " files";
        saw[is_second] = true;
    }
    EXPECT_TRUE(saw[0] && saw[1]);
}

} // namespace
