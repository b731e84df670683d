// Session files: writing, reading, and the loss of power while one is written.
#include <filesystem>

#include "engine/base/log.h"
#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"
#include "tests/unit/kv/session_content.h"

namespace {

using fault::Files;

/* Sequences with states, sinks left out: as they are, as a database keeps them, as a policy left
 * them.
 */
enum class Kind { kPlain, kPacked, kWatched };

class SessionFiles : public ::testing::TestWithParam<Kind> {
  protected:
    SessionFiles()
        : content_(session_content::Content(200, GetParam() == Kind::kPlain ? 2 : 1, 1)),
          other_(session_content::Content(100, 1, 2))
    {
        if (GetParam() == Kind::kPacked) content_.shape(8);
        if (GetParam() == Kind::kWatched) content_.watch({ 200, 60, 130, 64, 1, 190 });
        weir_error error = {};
        fault::make_folder(folder_, {});
        EXPECT_EQ(other_.write(path_, &error), WEIR_OK) << error.text;
        old_ = fault::files_of(folder_);
    }
    weir_session_content borrowed() const
    {
        weir_session_content out = {};
        out.tokens = content_.tokens.data();
        out.n_tokens = content_.n_kept();
        out.n_states = static_cast<int32_t>(content_.marks.size());
        out.salt = content_.salt.c_str();
        out.pages = content_.table.data();
        out.page_stride = content_.stride;
        out.spec = &session_content::spec;
        out.states = content_.marks.data();
        out.pruned = content_.head_rows.empty() ? nullptr : &content_.cut;
        out.form = content_.form;
        return out;
    }
    /* One of the two sequences, whole. */
    void expect_whole(bool must_be_new)
    {
        weir_error error = {};
        const bool is_old = fault::files_of(folder_).at("a.session") == old_.at("a.session");
        EXPECT_FALSE(must_be_new && is_old) << "the old file is still there";
        EXPECT_EQ(session_content::read_all(path_, &error, is_old ? &other_ : &content_), WEIR_OK)
            << error.text;
    }
    std::string folder_ = std::string(getenv("TEST_TMPDIR")) + "/sessions";
    std::string path_ = folder_ + "/a.session";
    session_content::Content content_, other_;
    Files old_;
};

TEST_P(SessionFiles, Write)
{
    const weir_session_content content = borrowed();
    fault::Operation operation;
    operation.prepare = [this] { fault::make_folder(folder_, old_); };
    operation.run = [&](weir_error *error) {
        size_t n = 0;
        return weir_session_write(path_.c_str(), &content_.identity, &content, &n, error);
    };
    operation.check = [this](weir_status status) {
        expect_whole(status == WEIR_OK);
        if (status == WEIR_OK) EXPECT_EQ(fault::files_of(folder_).size(), 1u);
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

TEST_P(SessionFiles, APowerLossLeavesTheOldOrTheNew)
{
    const weir_session_content content = borrowed();
    fault::make_folder(folder_, old_);
    const size_t n = fault::every_power_loss(
        folder_,
        [&] {
            weir_error error = {};
            size_t bytes = 0;
            ASSERT_EQ(
                weir_session_write(path_.c_str(), &content_.identity, &content, &bytes, &error),
                WEIR_OK
            ) << error.text;
        },
        [this](const Files &files, bool is_over) {
            fault::make_folder(folder_, files);
            ASSERT_EQ(files.count("a.session"), 1u);
            expect_whole(is_over);
        }
    );
    EXPECT_GT(n, 5u) << "calls were not recorded";
}

/* All sections into memory that was there before. */
struct Memory {
    std::vector<int32_t> tokens = std::vector<int32_t>(400), rows = tokens;
    std::vector<std::vector<char>> pages;
    std::vector<void *> table;
    std::vector<float> state = std::vector<float>(400);
    std::vector<float *> states = { state.data(), state.data() };
    std::vector<char> policy = std::vector<char>(1 << 16), open = policy;
    Memory()
    {
        for (size_t i = 0; i < 6 * 4; i++)
            pages.emplace_back(session_content::page_of(i / 4, i % 4) + 1);
        for (auto &page : pages) table.push_back(page.data());
    }
};

weir_status read_sections(weir_session_reader *reader, Memory *to, weir_error *error)
{
    const weir_kv_spec *const spec = &session_content::spec;
    int32_t places[WEIR_SESSION_STATES];
    char salt[WEIR_PREFIX_SALT + 1];
    weir_session_pruned cut = {};
    WEIR_TRY(weir_session_check_layers(reader, session_content::geometry, error));
    WEIR_TRY(weir_session_read_tokens(reader, to->tokens.data(), 1000, error));
    WEIR_TRY(weir_session_read_salt(reader, salt, error));
    WEIR_TRY(weir_session_read_places(reader, places, error));
    WEIR_TRY(weir_session_read_states(reader, to->states.data(), error));
    if (!weir_session_header_of(reader)->is_pruned)
        return weir_session_read_pages(reader, to->table.data(), 4, spec, error);
    WEIR_TRY(weir_session_read_rows(reader, to->rows.data(), spec, error));
    WEIR_TRY(weir_session_read_policy(reader, &cut, to->policy.data(), error));
    WEIR_TRY(weir_session_read_unsealed(reader, to->open.data(), error));
    return weir_session_read_pruned_pages(
        reader, to->table.data(), 4, to->rows.data(), spec, error
    );
}

TEST_P(SessionFiles, Read)
{
    weir_error error = {};
    ASSERT_EQ(content_.write(path_, &error), WEIR_OK) << error.text;
    Memory memory;
    fault::Operation operation;
    operation.prepare = [&] {
        std::fill(memory.tokens.begin(), memory.tokens.end(), 0);
        for (auto &page : memory.pages) std::fill(page.begin(), page.end(), '\0');
    };
    operation.run = [&](weir_error *why) {
        weir_session_reader *reader = nullptr;
        WEIR_TRY(weir_session_open(&reader, path_.c_str(), why));
        const weir_status status = read_sections(reader, &memory, why);
        weir_session_close(reader);
        return status;
    };
    operation.check = [&](weir_status status) {
        if (status != WEIR_OK) return;
        EXPECT_TRUE(
            std::equal(content_.tokens.begin(), content_.tokens.end(), memory.tokens.begin())
        );
        const auto &page = content_.pages[0];
        EXPECT_EQ(memcmp(page.data(), memory.pages[0].data(), page.size()), 0);
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SessionFiles, ::testing::Values(Kind::kPlain, Kind::kPacked, Kind::kWatched)
);

} // namespace
