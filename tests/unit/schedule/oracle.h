/* What a sequence that lost rows computes is what attention over exactly the rows that stayed
 * computes. The oracle knows nothing of moving rows: it keeps a copy of every row as it was
 * written, finds out from the pages which of them are left, and before each step writes those to
 * pages of a fresh sequence. Sequences run in one batch, each oracle alone. */
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/engine_parts.h"
#include "engine/kv/prune/evict.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/session/file/session_file.h"
#include "offload/dispatch.h"
#include "tests/unit/model/support.h"
#include "tests/unit/model/windowed.h"

namespace oracle {

using support::Engine;
using support::Folder;
using support::Sequence;
using support::Settings;

struct Row {
    std::vector<float> k, v;
    int64_t position;
    bool operator==(const Row &other) const { return k == other.k && v == other.v; }
};
using Head = std::vector<Row>;

/* A sequence, and the rows that each of its heads should hold. */
struct Watched {
    Sequence sequence;
    std::vector<Head> heads;
    explicit Watched(const Engine &engine) : sequence(engine) {}
    weir_kv_sequence *get() { return sequence.get(); }
};
using WatchedList = std::vector<Watched *>;

class Oracle : public ::testing::Test {
  protected:
    void open(
        const std::string &model, const std::string &policy, const std::string &options,
        const Settings &more = {}
    )
    {
        Settings settings = {
            "kernels.activations=f32",  "kv.format=f32",       "model.context=512",
            "batch.chunk=64",           "kv.reuse=off",        "batch.max_sequences=4",
            "kv.policy.name=" + policy, "kv.policy.budget=24", "kv.policy.options=" + options
        };
        settings.insert(settings.end(), more.begin(), more.end());
        ASSERT_EQ(engine_.open(model, settings), WEIR_OK) << engine_.text();
        ASSERT_EQ(
            weir_kv_evictor_open(
                &evictor_, store(), weir_engine_stream(engine_.get()),
                weir_engine_ledger(engine_.get()), engine_.error()
            ),
            WEIR_OK
        );
        ASSERT_EQ(
            weir_engine_policy_run_open(
                engine_.get(), &policy_run_, nullptr, 2, 512, n_prompt, 64, engine_.error()
            ),
            WEIR_OK
        ) << engine_.text();
    }
    void close()
    {
        weir_policy_run_close(policy_run_);
        weir_kv_evictor_close(evictor_);
        policy_run_ = nullptr;
        evictor_ = nullptr;
        engine_.close();
    }
    void TearDown() override { close(); }

    static constexpr int n_prompt = 100;
    weir_kv_store *store() { return weir_engine_store(engine_.get()); }
    const weir_kv_spec &spec() { return *weir_kv_store_spec(store()); }
    size_t n_heads() { return static_cast<size_t>(weir_kv_n_heads(&spec())); }

    /* A sequence with its policy, of which nothing is computed. */
    std::unique_ptr<Watched> watched(int number, const std::vector<int32_t> &tokens)
    {
        auto out = std::make_unique<Watched>(engine_);
        out->sequence.add(tokens);
        out->heads.assign(n_heads(), {});
        out->get()->policy_run = weir_policy_run_begin(policy_run_, number, n_prompt, 0);
        return out;
    }
    /* The same, going on with other tokens. */
    std::unique_ptr<Watched> fork(int number, Watched &from)
    {
        auto out = std::make_unique<Watched>(engine_);
        out->get()->policy_run = weir_policy_run_begin(policy_run_, number, n_prompt, 0);
        EXPECT_EQ(weir_kv_sequence_fork(out->get(), from.get()), WEIR_OK);
        out->heads = from.heads;
        for (int i = out->get()->n_computed; i < out->get()->n_tokens; i++)
            out->get()->tokens[i] = (i * 7) % 300;
        return out;
    }
    Row read(const weir_kv_table &table, int64_t head, int64_t slot)
    {
        const int64_t layer = weir_kv_layer_of(&spec(), head);
        const weir_kv_geometry &g = spec().geometry[layer];
        Row row = { std::vector<float>(static_cast<size_t>(g.key_dim)),
                    std::vector<float>(static_cast<size_t>(g.value_dim)), 0 };
        const weir_policy_tile tile = { layer, head - g.first_head, slot,
                                        1,     row.k.data(),        row.v.data() };
        EXPECT_EQ(weir_kv_read_rows(evictor_, &table, &tile, engine_.error()), WEIR_OK)
            << engine_.text();
        return row;
    }
    /* The next n tokens of all of them in one batch: the logits after each. */
    std::vector<std::vector<float>> step(const std::vector<Sequence *> &sequences, int n)
    {
        std::vector<std::vector<float>> out;
        std::vector<weir_batch_item> items;
        const float *logits = nullptr;
        for (Sequence *const sequence : sequences)
            items.push_back(support::item_of(sequence, n, WEIR_LOGITS_LAST));
        EXPECT_EQ(
            weir_runner_step(
                engine_.runner(), items.data(), static_cast<int32_t>(items.size()), &logits,
                engine_.error()
            ),
            WEIR_OK
        ) << engine_.text();
        for (const weir_batch_item &item : items) {
            const float *const first =
                logits + static_cast<size_t>(item.first_logit) * engine_.n_vocab();
            out.emplace_back(first, first + engine_.n_vocab());
        }
        return out;
    }
    void write(const weir_kv_table &table, size_t head, const Head &rows)
    {
        std::vector<float> k, v;
        for (const Row &row : rows) {
            k.insert(k.end(), row.k.begin(), row.k.end());
            v.insert(v.end(), row.v.begin(), row.v.end());
        }
        weir_kv_segment segment = {};
        segment.pages = table.pages + static_cast<int64_t>(head) * table.capacity;
        segment.page_stride = table.capacity;
        segment.n_rows = static_cast<int32_t>(rows.size());
        weir_kv_write_args args = {};
        args.k = k.data();
        args.v = v.data();
        args.segments = &segment;
        args.n_segments = args.n_kv_heads = 1;
        const int64_t layer = weir_kv_layer_of(&spec(), static_cast<int64_t>(head));
        args.key_dim = args.k_stride = spec().geometry[layer].key_dim;
        args.value_dim = args.v_stride = spec().geometry[layer].value_dim;
        const weir_kv_pair pair = spec().formats[layer];
        args.k_format = pair.k;
        args.v_format = pair.v;
        args.sinks = spec().sinks;
        EXPECT_EQ(weir_kv_write(weir_engine_stream(engine_.get()), &args), WEIR_OK);
    }
    /* A second sequence with the same tokens before its next step, whose rows are those that should
     * be there. */
    virtual void rebuild(Sequence &out, Watched &watched)
    {
        weir_kv_sequence *const s = out.get(), *const of = watched.get();
        weir_kv_sequence_clear(s);
        std::copy(of->tokens, of->tokens + of->n_tokens, s->tokens);
        s->n_tokens = of->n_tokens;
        s->n_computed = of->n_computed;
        if (of->recurrent != nullptr)
            std::copy(
                of->recurrent, of->recurrent + of->recurrent_bytes / sizeof(float), s->recurrent
            );
        s->recurrent_dirty = true;
        std::vector<int32_t> counts;
        for (const Head &head : watched.heads) counts.push_back(static_cast<int32_t>(head.size()));
        ASSERT_EQ(weir_kv_reserve_pruned(&s->table, store(), counts.data()), WEIR_OK);
        for (size_t h = 0; h < watched.heads.size(); h++)
            if (counts[h] > 0) write(s->table, h, watched.heads[h]);
    }
    /* Of the rows that were there, which are left: in order, and none that is new. True if some
     * went. */
    virtual bool follow(Watched &watched)
    {
        const weir_kv_table &table = watched.get()->table;
        bool any = false;
        for (size_t h = 0; h < watched.heads.size(); h++) {
            Head &rows = watched.heads[h];
            Head left;
            size_t at = 0;
            const auto n = weir_kv_rows_at(&table, static_cast<int64_t>(h));
            for (int64_t i = 0; i < n; i++) {
                const Row row = read(table, static_cast<int64_t>(h), i);
                while (at < rows.size() && !(rows[at] == row)) at++;
                EXPECT_LT(at, rows.size())
                    << "head " << h << " slot " << i << " holds no row that was there, in order";
                if (at == rows.size()) return any;
                left.push_back(rows[at++]);
            }
            any = any || left.size() < rows.size();
            rows = left;
        }
        return any;
    }
    static void expect_near(
        const std::vector<float> &got, const std::vector<float> &expected, const std::string &what
    )
    {
        for (size_t i = 0; i < got.size(); i++)
            if (!(std::fabs(got[i] - expected[i]) <= 1e-4f * (1 + std::fabs(expected[i])))) {
                ADD_FAILURE() << what << ": logit " << i << ": " << got[i] << " for "
                              << expected[i];
                return;
            }
    }
    /* One step of the sequences, before it an oracle for each; true if rows of the first went after
     * it. */
    bool check(const WatchedList &all, Sequence &oracle, int n, const std::string &what)
    {
        std::vector<std::vector<float>> expected;
        std::vector<Sequence *> together;
        bool any = false;
        for (Watched *const watched : all) {
            rebuild(oracle, *watched);
            expected.push_back(step({ &oracle }, n)[0]);
            together.push_back(&watched->sequence);
        }
        const auto got = step(together, n);
        for (size_t i = 0; i < all.size(); i++) {
            weir_kv_sequence *const s = all[i]->get();
            expect_near(
                got[i], expected[i],
                what + ": sequence " + std::to_string(i) + " token " + std::to_string(s->n_computed)
            );
            for (size_t h = 0; h < n_heads(); h++) {
                const auto head = static_cast<int64_t>(h);
                for (int r = 0; r < n; r++) {
                    all[i]->heads[h].push_back(
                        read(s->table, head, weir_kv_rows_at(&s->table, head) - n + r)
                    );
                    all[i]->heads[h].back().position = s->n_computed - n + r;
                }
            }
            EXPECT_EQ(weir_runner_evict(engine_.runner(), s, engine_.error()), WEIR_OK)
                << engine_.text();
            any = (follow(*all[i]) && i == 0) || any;
        }
        return any;
    }
    /* The sequence's turn is over; what a file of it holds becomes another sequence, whose next
     * turn begins with n_more tokens. */
    std::unique_ptr<Watched> through_a_file(int number, Watched &watched, int n_more)
    {
        auto out = std::make_unique<Watched>(engine_);
        weir_kv_sequence *const from = watched.get(), *const to = out->get();
        const std::string path = ::testing::TempDir() + "oracle.session";
        weir_session_identity identity = {};
        size_t bytes = 0;
        identity.n_layers = spec().n_layers, identity.n_heads = weir_kv_n_heads(&spec());
        identity.geometry = spec().geometry;
        identity.block_bytes = static_cast<int64_t>(weir_kv_block_bytes(&spec()));
        identity.state_bytes = static_cast<int64_t>(from->recurrent_bytes);
        identity.numerics = { "v3", "cpu", "fast", "none", "none", false };
        const int32_t n = from->n_computed;
        EXPECT_TRUE(weir_policy_run_turn(from->policy_run, n, n + n_more));
        std::vector<char> state(weir_policy_run_saved_bytes(from->policy_run));
        weir_policy_run_save(from->policy_run, state.data());
        weir_session_pruned cut = {};
        cut.head_rows = from->table.head_rows;
        weir_policy_history_of(&cut.past, from->policy_run);
        cut.policy = weir_policy_run_policy_text(from->policy_run);
        cut.state = state.data();
        cut.state_bytes = state.size();
        const weir_prefix_snapshot mark = { n, from->recurrent };
        const int32_t n_states = from->recurrent_bytes > 0 ? 1 : 0;
        const weir_session_content file = { from->tokens,
                                            n,
                                            n_states,
                                            WEIR_PREFIX_NO_SALT,
                                            from->table.pages,
                                            from->table.capacity,
                                            &spec(),
                                            {},
                                            store(),
                                            &mark,
                                            nullptr,
                                            &cut,
                                            false,
                                            {},
                                            nullptr,
                                            nullptr };
        EXPECT_EQ(
            weir_session_write(path.c_str(), &identity, &file, &bytes, engine_.error()), WEIR_OK
        ) << engine_.text();
        out->heads = watched.heads;
        weir_kv_sequence_clear(from);
        weir_session_reader *reader = nullptr;
        EXPECT_EQ(weir_session_open(&reader, path.c_str(), engine_.error()), WEIR_OK)
            << engine_.text();
        std::vector<int32_t> rows(n_heads());
        std::vector<char> policy(weir_session_header_of(reader)->policy_bytes + 1);
        float *const states[] = { to->recurrent };
        weir_session_pruned read = {};
        weir_error *const error = engine_.error();
        weir_kv_table *const table = &to->table;
        EXPECT_EQ(weir_session_read_tokens(reader, to->tokens, INT32_MAX, error), WEIR_OK)
            << engine_.text();
        EXPECT_EQ(weir_session_read_states(reader, states, error), WEIR_OK) << engine_.text();
        EXPECT_EQ(weir_session_read_rows(reader, rows.data(), &spec(), error), WEIR_OK)
            << engine_.text();
        EXPECT_EQ(weir_session_read_policy(reader, &read, policy.data(), error), WEIR_OK)
            << engine_.text();
        EXPECT_EQ(weir_kv_reserve_pruned(table, store(), rows.data()), WEIR_OK);
        EXPECT_EQ(
            weir_session_read_pruned_pages(
                reader, table->pages, table->capacity, rows.data(), &spec(), error
            ),
            WEIR_OK
        ) << engine_.text();
        weir_session_close(reader);
        to->n_tokens = to->n_computed = n;
        to->recurrent_dirty = true;
        to->policy_run = weir_policy_run_begin(policy_run_, number, n + n_more, 0);
        EXPECT_EQ(
            weir_policy_run_load(
                to->policy_run, &read.past, n, table, read.state, read.state_bytes, error
            ),
            WEIR_OK
        ) << engine_.text();
        return out;
    }
    /* A prompt, an answer, a fork that goes another way, and what a file of the fork goes
     * on to. */
    void run(
        const std::string &what, int least_prunings, const std::vector<int64_t> &whole_layers = {},
        bool with_file = false
    )
    {
        std::vector<int32_t> tokens;
        for (int i = 0; i < 160; i++) tokens.push_back((i * 31 + i * i) % 300);
        Sequence oracle(engine_);
        const auto one = watched(0, tokens);
        int n_prunings = 0;
        for (const int n : { 64, 36 }) n_prunings += check({ one.get() }, oracle, n, what);
        EXPECT_LE(n_prunings, what.find("in_prompt") == std::string::npos ? 1 : 2) << what;
        for (int i = 0; i < 20; i++) n_prunings += check({ one.get() }, oracle, 1, what);
        const auto two = fork(1, *one);
        for (int i = 0; i < 20; i++)
            n_prunings += check({ one.get(), two.get() }, oracle, 1, what + " forked");
        EXPECT_GE(n_prunings, least_prunings) << what;
        EXPECT_EQ(n_rows(*two), n_rows(*one)) << what;
        for (const int64_t layer : whole_layers)
            for (int64_t h = 0; h < spec().geometry[layer].n_heads; h++)
                for (const auto *const watched : { &one, &two })
                    EXPECT_EQ(
                        weir_kv_rows_at(
                            &(*watched)->get()->table, spec().geometry[layer].first_head + h
                        ),
                        140
                    ) << what
                      << ": layer " << layer;
        if (!with_file) return;
        const auto three = through_a_file(1, *two, 12);
        three->sequence.add(std::vector<int32_t>(tokens.begin() + 140, tokens.end()));
        n_prunings = 0;
        for (const int n : { 5, 7 })
            n_prunings += check({ three.get() }, oracle, n, what + " restored");
        for (int i = 0; i < 8; i++)
            n_prunings += check({ three.get() }, oracle, 1, what + " restored");
        EXPECT_GE(n_prunings, 2) << what;
    }
    int64_t n_rows(Watched &watched)
    {
        int64_t n = 0;
        for (int64_t h = 0; h < watched.get()->table.n_heads; h++)
            n += weir_kv_rows_at(&watched.get()->table, h);
        return n;
    }
    Engine engine_;
    weir_kv_evictor *evictor_ = nullptr;
    weir_policy_run *policy_run_ = nullptr;
};

} // namespace oracle
