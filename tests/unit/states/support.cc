#include "tests/unit/states/support.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/base/log.h"
#include "engine/session/file/session_file.h"

const uint64_t test_model[2] = { 0x1234, 0x5678 };

void write_session(
    const std::string &path, int32_t n_tokens, uint64_t model, int32_t bits, const char *isa
)
{
    static const weir_kv_pair format = { WEIR_KV_F16, WEIR_KV_F16 };
    static const weir_kv_geometry geometry = { 1, 8, 8, 0, 0, false };
    static const weir_kv_spec spec = { 1,  &geometry, &format, {}, 4096, nullptr,
                                       {}, false,     false,   0,  {} };
    weir_session_identity identity = {};
    identity.model[0] = model != 0 ? model : test_model[0], identity.model[1] = test_model[1];
    strcpy(identity.format, "f16");
    strcpy(identity.policy, "full:0");
    identity.numerics = { "", "cpu", "fast", "none", "none", false };
    strcpy(identity.numerics.isa, isa);
    identity.n_layers = identity.n_heads = 1, identity.geometry = &geometry;
    identity.block_bytes = (int64_t)weir_kv_block_bytes(&spec);
    const std::vector<int32_t> tokens((size_t)n_tokens, 7);
    const int64_t blocks = (n_tokens + 63) / 64;
    std::vector<std::vector<char>> pages(
        (size_t)blocks, std::vector<char>((size_t)identity.block_bytes, 'p')
    );
    std::vector<void *> table;
    for (auto &page : pages) table.push_back(page.data());
    weir_session_content content = {};
    content.tokens = tokens.data(), content.n_tokens = n_tokens;
    content.salt = WEIR_PREFIX_NO_SALT;
    content.pages = table.data(), content.page_stride = blocks;
    content.spec = &spec;
    float state[16] = {};
    weir_prefix_snapshot mark = { n_tokens, state };
    if (bits != 0) {
        identity.state_bytes = sizeof state;
        content.states = &mark, content.n_states = 1;
        content.form.state_bits = bits, content.form.packed_bytes = 24,
        content.form.is_merged = true;
    }
    size_t bytes = 0;
    weir_error error = {};
    ASSERT_EQ(weir_session_write(path.c_str(), &identity, &content, &bytes, &error), WEIR_OK)
        << error.text;
}

weir_status link_source(void *user, const char *path, int64_t, weir_error *error)
{
    Source *const source = static_cast<Source *>(user);
    source->calls++;
    if (!source->file.empty() && link(source->file.c_str(), path) == 0) return WEIR_OK;
    return weir_error_set(error, WEIR_EIO, "%s: no source", path);
}

std::string slurp(const std::string &path)
{
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
}

void spill(const std::string &path, const std::string &bytes)
{
    std::ofstream(path, std::ios::binary) << bytes;
}

void Database::SetUp()
{
    weir_log_set_level(WEIR_LOG_ERROR);
    work_ = std::string(getenv("TEST_TMPDIR")) + "/states";
    folder_ = work_ + "/db";
    log_ = folder_ + "/states.log";
    std::filesystem::remove_all(work_);
    std::filesystem::create_directory(work_);
    source_ = { work_ + "/source.session" };
    write_session(source_.file, 100);
    weir_states_kind kind = { { test_model[0], test_model[1] }, dim_, "test", 0 };
    ASSERT_EQ(weir_states_create(folder_.c_str(), &kind, &error_), WEIR_OK) << error_.text;
    open();
}

void Database::TearDown() { close(); }

void Database::open(bool writes, weir_memory_tracker *tracker)
{
    close();
    const weir_states_options options = { folder_.c_str(), test_model, writes, tracker, disk_ };
    ASSERT_EQ(weir_states_open(&states_, &options, &error_), WEIR_OK) << error_.text;
}

void Database::close()
{
    weir_states_close(states_);
    states_ = nullptr;
}

weir_status Database::add(
    const std::string &label, const std::vector<float> &vector, const char *metadata,
    uint64_t source
)
{
    weir_new_state state = {};
    state.label = label.c_str();
    state.metadata = metadata;
    state.vector = vector.empty() ? nullptr : vector.data();
    state.source[0] = source;
    state.write = link_source;
    state.user = &source_;
    return weir_states_add(states_, &state, &info_, &error_);
}

std::string Database::added(const std::string &label, const std::vector<float> &vector)
{
    EXPECT_EQ(add(label, vector), WEIR_OK) << error_.text;
    return info_.name;
}

std::vector<std::string> Database::names()
{
    weir_state_info *list = nullptr;
    size_t n = 0, total = 0;
    std::vector<std::string> out;
    const weir_states_page all = { 0, SIZE_MAX, nullptr, nullptr };
    EXPECT_EQ(weir_states_list(states_, &all, &list, &n, &total, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(n, total);
    for (size_t i = 0; i < n; i++) out.push_back(list[i].name);
    weir_memory_give(list);
    return out;
}

std::vector<std::string> Database::route(const std::vector<float> &vector, size_t most)
{
    const weir_states_question question = { vector.data(), most, nullptr, nullptr };
    std::vector<weir_state_hit> hits(most);
    std::vector<std::string> out;
    size_t n = 0;
    EXPECT_EQ(weir_states_route(states_, &question, hits.data(), &n, &error_), WEIR_OK)
        << error_.text;
    for (size_t i = 0; i < n; i++) out.push_back(hits[i].info.name);
    return out;
}

size_t Database::n_files() const
{
    size_t n = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder_))
        n += entry.path().string().find(".session") != std::string::npos;
    return n;
}

std::string Database::file_of(const std::string &name)
{
    weir_state_info info = {};
    EXPECT_EQ(weir_states_find(states_, name.c_str(), &info, &error_), WEIR_OK) << error_.text;
    return folder_ + "/" + info.name + "." + std::to_string(info.serial) + ".session";
}
