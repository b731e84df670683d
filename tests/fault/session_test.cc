// Session files: writing, reading, and the loss of power while one is written.
#include <filesystem>

#include "engine/base/log.h"
#include "tests/fault/drive.h"
#include "tests/fault/power_loss.h"
#include "tests/unit/kv/session_text.h"

namespace {

using fault::Files;

/* Texts with states, sinks left out: as they are, as a database keeps them, as a policy left them.
 */
enum class Kind { kPlain, kPacked, kWatched };

class SessionFiles : public ::testing::TestWithParam<Kind> {
  protected:
    SessionFiles()
        : text_(session_text::Text(200, GetParam() == Kind::kPlain ? 2 : 1, 1)),
          other_(session_text::Text(100, 1, 2))
    {
        if (GetParam() == Kind::kPacked) text_.shape(8);
        if (GetParam() == Kind::kWatched) text_.watch({ 200, 60, 130, 64, 1, 190 });
        weir_error error = {};
        fault::make_folder(folder_, {});
        EXPECT_EQ(other_.write(path_, &error), WEIR_OK) << error.text;
        old_ = fault::files_of(folder_);
    }
    weir_session_text borrowed() const
    {
        weir_session_text out = {};
        out.tokens = text_.tokens.data();
        out.n_tokens = text_.n_kept();
        out.n_states = static_cast<int32_t>(text_.marks.size());
        out.salt = text_.salt.c_str();
        out.pages = text_.table.data();
        out.page_stride = text_.stride;
        out.spec = &session_text::spec;
        out.states = text_.marks.data();
        out.pruned = text_.head_rows.empty() ? nullptr : &text_.cut;
        out.form = text_.form;
        return out;
    }
    /* One of the two texts, whole. */
    void expect_whole(bool must_be_new)
    {
        weir_error error = {};
        const bool is_old = fault::files_of(folder_).at("a.session") == old_.at("a.session");
        EXPECT_FALSE(must_be_new && is_old) << "the old file is still there";
        EXPECT_EQ(session_text::read_all(path_, &error, is_old ? &other_ : &text_), WEIR_OK)
            << error.text;
    }
    std::string folder_ = std::string(getenv("TEST_TMPDIR")) + "/sessions";
    std::string path_ = folder_ + "/a.session";
    session_text::Text text_, other_;
    Files old_;
};

TEST_P(SessionFiles, Write)
{
    const weir_session_text text = borrowed();
    fault::Operation operation;
    operation.prepare = [this] { fault::make_folder(folder_, old_); };
    operation.run = [&](weir_error *error) {
        size_t n = 0;
        return weir_session_write(path_.c_str(), &text_.identity, &text, &n, error);
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
    const weir_session_text text = borrowed();
    fault::make_folder(folder_, old_);
    const size_t n = fault::every_power_loss(
        folder_,
        [&] {
            weir_error error = {};
            size_t bytes = 0;
            ASSERT_EQ(
                weir_session_write(path_.c_str(), &text_.identity, &text, &bytes, &error), WEIR_OK
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
            pages.emplace_back(session_text::page_of(i / 4, i % 4) + 1);
        for (auto &page : pages) table.push_back(page.data());
    }
};

weir_status read_sections(weir_session_reader *reader, Memory *to, weir_error *error)
{
    const weir_kv_spec *const spec = &session_text::spec;
    int32_t places[WEIR_SESSION_STATES];
    char salt[WEIR_PREFIX_SALT + 1];
    weir_session_pruned cut = {};
    WEIR_TRY(weir_session_check_layers(reader, session_text::geometry, error));
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
    ASSERT_EQ(text_.write(path_, &error), WEIR_OK) << error.text;
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
        EXPECT_TRUE(std::equal(text_.tokens.begin(), text_.tokens.end(), memory.tokens.begin()));
        const auto &page = text_.pages[0];
        EXPECT_EQ(memcmp(page.data(), memory.pages[0].data(), page.size()), 0);
    };
    fault::every_allocation(operation);
    fault::every_file_call(operation);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SessionFiles, ::testing::Values(Kind::kPlain, Kind::kPacked, Kind::kWatched)
);

} // namespace
