// A sequence of noise with its memory, to be written to session files and compared with what is
// read.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/session/file/session_file.h"

namespace session_content {

/* Layers of different formats: pages of three sizes. */
inline const weir_kv_pair formats[] = { { WEIR_KV_F16, WEIR_KV_F16 },
                                        { WEIR_KV_INT8, WEIR_KV_F16 },
                                        { WEIR_KV_F32, WEIR_KV_F32 } };
/* ... and of unlike numbers of heads: six in all. */
inline const weir_kv_geometry geometry[] = { { 2, 8, 8, 0, 0, false },
                                             { 3, 8, 8, 0, 2, false },
                                             { 1, 8, 8, 16, 5, false } };
inline weir_kv_spec spec = { 3, geometry, formats, {}, 4096, nullptr, {}, false, false, 0, {} };
inline size_t page_of(size_t head, size_t block)
{
    return weir_kv_page_bytes_at(&spec, weir_kv_layer_of(&spec, (int64_t)head), (int64_t)block);
}

/* A sequence with its memory, filled from a seed. */
struct Content {
    weir_session_identity identity = {};
    std::vector<int32_t> tokens;
    std::string salt = WEIR_PREFIX_NO_SALT;
    std::vector<std::vector<char>> pages;
    std::vector<void *> table;
    std::vector<std::vector<float>> states;
    std::vector<weir_prefix_snapshot> marks;
    int64_t stride = 0;
    std::vector<int32_t> head_rows; /* not empty: a policy watched it */
    std::vector<char> open, state;
    weir_session_form form = {};
    weir_session_pruned cut = {};
    const weir_numerics *begun = nullptr; /* with these, if not NULL */

    /* As a database keeps it: tokens after it, and with `bits` one packed state that was merged. */
    void shape(int32_t bits)
    {
        form.n_rest = 5;
        for (int32_t i = 0; i < form.n_rest; i++) tokens.push_back(900 + i);
        if (bits == 0 || marks.empty()) return;
        marks.resize(1);
        form.state_bits = bits, form.packed_bytes = 300, form.is_merged = true;
    }
    int32_t n_kept() const { return (int32_t)tokens.size() - form.n_rest; }
    /* A policy left these numbers of rows of the heads. */
    void watch(const std::vector<int32_t> &rows)
    {
        const int32_t n = (int32_t)tokens.size();
        head_rows = rows;
        open.assign(weir_kv_unsealed_rows_bytes(&spec), 'o');
        state.assign(1000, 's');
        cut.head_rows = head_rows.data();
        cut.unsealed = open.data();
        cut.past.policy[0] = 7, cut.past.policy[1] = 8;
        cut.past.budget = 64;
        cut.past.n_turns = 2;
        cut.past.turns[0] = { n / 2 + 1, n / 2 + 1 };
        cut.past.turns[1] = { n - 1, n };
        cut.past.n_pinned = 3;
        cut.policy = "h2o sinks=4,recent=8";
        cut.state = state.data();
        cut.state_bytes = state.size();
        if (!marks.empty()) marks.back().at = n;
    }
    int64_t pages_of(size_t head) const
    {
        return head_rows.empty() ? ((int64_t)tokens.size() + 63) / 64 : (head_rows[head] + 63) / 64;
    }
    Content(int32_t n_tokens, int32_t n_states, unsigned seed)
    {
        std::mt19937 random(seed);
        identity.model[0] = 0x1234, identity.tokenizer[1] = 0x5678;
        strcpy(identity.format, "f16");
        strcpy(identity.policy, "full:0");
        identity.numerics = { "v3", "cpu", "fast", "none", "none", false };
        identity.n_layers = 3, identity.n_heads = 6, identity.geometry = geometry;
        identity.block_bytes = (int64_t)weir_kv_block_bytes(&spec);
        identity.n_sinks = spec.sinks.n_pages,
        identity.sink_block_bytes = (int64_t)weir_kv_sink_block_bytes(&spec);
        if (identity.n_sinks > 0) strcpy(identity.sink_format, "f32/f16");
        identity.state_bytes = n_states > 0 ? 516 : 0;
        for (int i = 0; i < n_tokens; i++) tokens.push_back((int32_t)(random() % 1000));
        const size_t blocks = ((size_t)n_tokens + 63) / 64;
        stride = (int64_t)blocks + 3;
        table.resize(6 * (size_t)stride);
        for (size_t head = 0; head < 6; head++)
            for (size_t block = 0; block < blocks; block++) {
                pages.emplace_back(page_of(head, block));
                for (char &byte : pages.back()) byte = (char)random();
                table[head * (size_t)stride + block] = pages.back().data();
            }
        for (int i = 0; i < n_states; i++) {
            states.emplace_back(129);
            for (float &value : states.back()) value = (float)random();
        }
        for (int i = 0; i < n_states; i++)
            marks.push_back({ (i + 1) * n_tokens / n_states, states[(size_t)i].data() });
    }
    weir_status write(
        const std::string &path, weir_error *error, const weir_session_source *source = nullptr
    ) const
    {
        const weir_session_content content = {
            tokens.data(), n_kept(),     (int32_t)marks.size(),
            salt.c_str(),  table.data(), stride,
            &spec,         {},           nullptr,
            marks.data(),  source,       head_rows.empty() ? nullptr : &cut,
            false,         form,         begun,
            nullptr
        };
        size_t bytes = 0;
        const weir_status status =
            weir_session_write(path.c_str(), &identity, &content, &bytes, error);
        if (status == WEIR_OK) {
            EXPECT_EQ(bytes, std::filesystem::file_size(path));
            EXPECT_EQ(bytes, weir_session_file_bytes(&identity, &content));
        }
        return status;
    }
};

/* Reads all of a file; OK only if it equals `content` (when given). */
inline weir_status read_all(
    const std::string &path, weir_error *error, const Content *content = nullptr,
    const weir_session_identity *own = nullptr
)
{
    weir_session_reader *reader = nullptr;
    weir_status status = weir_session_open(&reader, path.c_str(), error);
    if (status != WEIR_OK) {
        EXPECT_EQ(reader, nullptr);
        return status;
    }
    const weir_session_header *const header = weir_session_header_of(reader);
    const weir_session_identity &id = header->identity;
    const size_t heads = (size_t)id.n_heads, blocks = ((size_t)header->n_tokens + 63) / 64;
    std::vector<int32_t> tokens((size_t)(header->n_tokens + header->form.n_rest)),
        places(WEIR_SESSION_STATES);
    std::vector<std::vector<char>> pages;
    std::vector<std::vector<float>> states(
        (size_t)header->n_states, std::vector<float>(weir_session_state_bytes(header) / 4 + 1)
    );
    std::vector<void *> table;
    std::vector<float *> into;
    char salt[WEIR_PREFIX_SALT + 1] = "";
    for (size_t i = 0; i < heads * blocks; i++) pages.emplace_back(page_of(i / blocks, i % blocks));
    for (auto &page : pages) table.push_back(page.data());
    for (auto &state : states) into.push_back(state.data());
    status = own != nullptr     ? weir_session_check(reader, own, error)
             : id.n_layers == 3 ? weir_session_check_layers(reader, geometry, error)
                                : weir_error_set(error, WEIR_EMISMATCH, "other layers");
    if (status == WEIR_OK) status = weir_session_read_tokens(reader, tokens.data(), 1000, error);
    if (status == WEIR_OK) status = weir_session_read_salt(reader, salt, error);
    if (status == WEIR_OK) status = weir_session_read_places(reader, places.data(), error);
    if (status == WEIR_OK) status = weir_session_read_states(reader, into.data(), error);
    std::vector<int32_t> head_rows(heads);
    std::vector<char> policy(header->policy_bytes + 1), open(header->unsealed_bytes);
    weir_session_pruned cut = {};
    if (status == WEIR_OK && !header->is_pruned)
        status = weir_session_read_pages(reader, table.data(), (int64_t)blocks, &spec, error);
    if (status == WEIR_OK && header->is_pruned) {
        status = weir_session_read_rows(reader, head_rows.data(), &spec, error);
        if (status == WEIR_OK)
            status = weir_session_read_policy(reader, &cut, policy.data(), error);
        if (status == WEIR_OK) status = weir_session_read_unsealed(reader, open.data(), error);
        if (status == WEIR_OK)
            status = weir_session_read_pruned_pages(
                reader, table.data(), (int64_t)blocks, head_rows.data(), &spec, error
            );
    }
    const weir_session_windows no_windows = {};
    if (status == WEIR_OK)
        status = weir_session_read_windows(reader, &no_windows, &spec.windows, error);
    if (status == WEIR_OK && content != nullptr) {
        EXPECT_EQ(tokens, content->tokens);
        EXPECT_EQ(content->salt, salt);
        for (size_t i = 0; i < states.size(); i++) {
            EXPECT_EQ(places[i], content->marks[i].at);
            EXPECT_EQ(
                0, memcmp(
                       states[i].data(), content->states[i].data(), weir_session_state_bytes(header)
                   )
            );
        }
        EXPECT_EQ(header->is_pruned, !content->head_rows.empty());
        EXPECT_EQ(header->form.is_merged, content->form.is_merged);
        EXPECT_EQ(header->form.state_bits, content->form.state_bits);
        for (size_t i = 0; i < pages.size(); i++)
            if ((int64_t)(i % blocks) < content->pages_of(i / blocks))
                EXPECT_EQ(pages[i], content->pages[i]);
        if (header->is_pruned) {
            EXPECT_EQ(head_rows, content->head_rows);
            EXPECT_EQ(open, content->open);
            EXPECT_EQ(memcmp(&cut.past, &content->cut.past, sizeof cut.past), 0);
            EXPECT_STREQ(cut.policy, content->cut.policy);
            EXPECT_EQ(
                std::string((const char *)cut.state, cut.state_bytes),
                std::string(content->state.data(), content->state.size())
            );
            EXPECT_STREQ(id.policy, "h2o:64");
        }
    }
    weir_session_close(reader);
    return status;
}

} // namespace session_content
