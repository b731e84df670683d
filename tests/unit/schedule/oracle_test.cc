/* What a text that lost rows computes is what attention over exactly the rows that stayed computes. The oracle knows nothing of moving rows: it keeps a copy of
 * every row as it was written, finds out from the pages which of them are left, and before each step writes those to pages of a fresh sequence. */
#include <algorithm>
#include <cmath>

#include "engine/kv/evict.h"
#include "engine/kv/keeping.h"
#include "engine/kv/session_file.h"
#include "offload/dispatch.h"
#include "tests/unit/model/support.h"

namespace {

using support::Engine;
using support::Sequence;

struct Row {
    std::vector<float> k, v;
    bool               operator==(const Row &other) const { return k == other.k && v == other.v; }
};
using Head = std::vector<Row>;

class Oracle : public ::testing::Test {
  protected:
    void open(const char *model, const std::string &policy, const std::string &options)
    {
        ASSERT_EQ(engine_.open(support::golden(model),
                               { "kernels.activations=f32", "kv.format=f32", "model.context=512", "batch.chunk=64", "kv.reuse=off",
                                 "kv.policy.name=" + policy, "kv.policy.budget=24", "kv.policy.options=" + options }),
                  WEIR_OK)
            << engine_.text();
        ASSERT_EQ(
            weir_kv_evictor_open(&evictor_, store(), weir_engine_stream(engine_.get()), weir_engine_ledger(engine_.get()), engine_.error()),
            WEIR_OK);
        ASSERT_EQ(weir_engine_keep(engine_.get(), &keeping_, 2, 512, n_prompt, 64, engine_.error()), WEIR_OK) << engine_.text();
        rows_.assign(n_heads(), {});
    }
    void close()
    {
        weir_keeping_close(keeping_);
        weir_kv_evictor_close(evictor_);
        keeping_ = nullptr;
        evictor_ = nullptr;
        engine_.close();
    }
    void TearDown() override { close(); }

    static constexpr int n_prompt = 100;
    weir_kv_store       *store() { return weir_engine_store(engine_.get()); }
    const weir_kv_spec  &spec() { return *weir_kv_store_spec(store()); }
    size_t               n_heads() { return static_cast<size_t>(spec().n_layers * spec().n_kv_heads); }

    Row read(const weir_kv_table &table, int64_t head, int64_t slot)
    {
        Row row = { std::vector<float>(static_cast<size_t>(spec().key_dim)), std::vector<float>(static_cast<size_t>(spec().value_dim)) };
        const weir_policy_tile tile = { head / spec().n_kv_heads, head % spec().n_kv_heads, slot, 1, row.k.data(), row.v.data() };
        EXPECT_EQ(weir_kv_read_rows(evictor_, &table, &tile, engine_.error()), WEIR_OK) << engine_.text();
        return row;
    }
    std::vector<float> step(Sequence &sequence, int n)
    {
        const float *logits = nullptr;
        weir_work    work = support::work_of(&sequence, n, WEIR_LOGITS_LAST);
        EXPECT_EQ(weir_runner_step(engine_.runner(), &work, 1, &logits, engine_.error()), WEIR_OK) << engine_.text();
        return std::vector<float>(logits, logits + engine_.n_vocab());
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
        args.key_dim = args.k_stride = spec().key_dim;
        args.value_dim = args.v_stride = spec().value_dim;
        args.k_format = args.v_format = WEIR_KV_F32;
        EXPECT_EQ(weir_kv_write(weir_engine_stream(engine_.get()), &args), WEIR_OK);
    }
    /* A sequence with `text`'s tokens before its next step, whose rows are those that the oracle knows. */
    void rebuild(Sequence &out, const weir_sequence *text, const std::vector<float> &state)
    {
        weir_sequence *const s = out.get();
        weir_sequence_clear(s);
        std::copy(text->tokens, text->tokens + text->n_tokens, s->tokens);
        s->n_tokens = text->n_tokens;
        s->n_computed = text->n_computed;
        if (!state.empty()) std::copy(state.begin(), state.end(), s->recurrent);
        s->recurrent_dirty = true;
        std::vector<int32_t> counts;
        for (const Head &head : rows_) counts.push_back(static_cast<int32_t>(head.size()));
        ASSERT_EQ(weir_kv_reserve_cut(&s->table, store(), counts.data()), WEIR_OK);
        for (size_t h = 0; h < rows_.size(); h++)
            if (counts[h] > 0) write(s->table, h, rows_[h]);
    }
    /* Of the rows that were there, which are left: in order, and none that is new. True if some went. */
    bool follow(const weir_kv_table &table)
    {
        bool any = false;
        for (size_t h = 0; h < rows_.size(); h++) {
            const int64_t n = weir_kv_rows_at(&table, static_cast<int64_t>(h));
            Head          left;
            size_t        at = 0;
            for (int64_t i = 0; i < n; i++) {
                const Row row = read(table, static_cast<int64_t>(h), i);
                while (at < rows_[h].size() && !(rows_[h][at] == row)) at++;
                EXPECT_LT(at, rows_[h].size()) << "head " << h << " slot " << i << " holds no row that was there, in order";
                if (at == rows_[h].size()) return any;
                left.push_back(rows_[h][at++]);
            }
            any = any || left.size() < rows_[h].size();
            rows_[h] = left;
        }
        return any;
    }
    /* One step of the text, its oracle beside it; returns whether rows went after it. */
    bool check(Sequence &text, Sequence &oracle, int n, const std::string &what)
    {
        weir_sequence *const     s = text.get();
        const std::vector<float> state(s->recurrent, s->recurrent + s->recurrent_bytes / sizeof(float));
        rebuild(oracle, s, state);
        const std::vector<float> expected = step(oracle, n), got = step(text, n);
        for (size_t i = 0; i < got.size(); i++)
            if (!(std::fabs(got[i] - expected[i]) <= 1e-4f * (1 + std::fabs(expected[i])))) {
                ADD_FAILURE() << what << ": token " << s->n_computed << " logit " << i << ": " << got[i] << " for " << expected[i];
                break;
            }
        for (size_t h = 0; h < rows_.size(); h++)
            for (int i = 0; i < n; i++)
                rows_[h].push_back(read(s->table, static_cast<int64_t>(h), weir_kv_rows_at(&s->table, static_cast<int64_t>(h)) - n + i));
        EXPECT_EQ(weir_runner_evict(engine_.runner(), s, nullptr, engine_.error()), WEIR_OK) << engine_.text();
        return follow(s->table);
    }
    /* The text's turn is over; what a file of it holds becomes `out`, whose next turn begins with n_more tokens. */
    void save_and_restore(Sequence &text, Sequence &out, int n_more)
    {
        weir_sequence *const from = text.get(), *const to = out.get();
        const std::string     path = ::testing::TempDir() + "oracle.session";
        weir_session_identity identity = {};
        size_t                bytes = 0;
        identity.n_layers = spec().n_layers, identity.n_kv_heads = spec().n_kv_heads;
        identity.key_dim = spec().key_dim, identity.value_dim = spec().value_dim;
        identity.block_bytes = static_cast<int64_t>(weir_kv_block_bytes(&spec()));
        identity.state_bytes = static_cast<int64_t>(from->recurrent_bytes);
        const int32_t n = from->n_computed;
        ASSERT_TRUE(weir_keeping_turn(from->keeping, n, n + n_more));
        std::vector<char> state(weir_keeping_saved_bytes(from->keeping));
        weir_keeping_save(from->keeping, state.data());
        weir_session_cut cut = {};
        cut.head_rows = from->table.head_rows;
        weir_keeping_past_of(&cut.past, from->keeping);
        cut.policy = weir_keeping_policy_text(from->keeping);
        cut.state = state.data();
        cut.state_bytes = state.size();
        const weir_prefix_mark  mark = { n, from->recurrent };
        const int32_t           n_states = from->recurrent_bytes > 0 ? 1 : 0;
        const weir_session_text file = {
            from->tokens, n,    n_states, WEIR_PREFIX_NO_SALT, from->table.pages, from->table.capacity, &spec(), store(), &mark,
            nullptr,      &cut, false
        };
        ASSERT_EQ(weir_session_write(path.c_str(), &identity, &file, &bytes, engine_.error()), WEIR_OK) << engine_.text();
        weir_sequence_clear(from);

        weir_session_reader *reader = nullptr;
        ASSERT_EQ(weir_session_open(&reader, path.c_str(), engine_.error()), WEIR_OK) << engine_.text();
        std::vector<int32_t> rows(n_heads());
        std::vector<char>    policy(weir_session_header_of(reader)->policy_bytes + 1);
        float *const         states[] = { to->recurrent };
        weir_session_cut     read = {};
        weir_error *const    error = engine_.error();
        weir_kv_table *const table = &to->table;
        EXPECT_EQ(weir_session_read_tokens(reader, to->tokens, INT32_MAX, error), WEIR_OK) << engine_.text();
        EXPECT_EQ(weir_session_read_states(reader, states, error), WEIR_OK) << engine_.text();
        EXPECT_EQ(weir_session_read_rows(reader, rows.data(), &spec(), error), WEIR_OK) << engine_.text();
        EXPECT_EQ(weir_session_read_policy(reader, &read, policy.data(), error), WEIR_OK) << engine_.text();
        EXPECT_EQ(weir_kv_reserve_cut(table, store(), rows.data()), WEIR_OK);
        EXPECT_EQ(weir_session_read_cut_pages(reader, table->pages, table->capacity, rows.data(), &spec(), error), WEIR_OK)
            << engine_.text();
        weir_session_close(reader);
        to->n_tokens = to->n_computed = n;
        to->recurrent_dirty = true;
        to->keeping = weir_keeping_begin(keeping_, 0, n + n_more, 0);
        EXPECT_EQ(weir_keeping_load(to->keeping, &read.past, table, read.state, read.state_bytes, error), WEIR_OK) << engine_.text();
    }
    Engine            engine_;
    weir_kv_evictor  *evictor_ = nullptr;
    weir_keeping     *keeping_ = nullptr;
    std::vector<Head> rows_;
};

TEST_F(Oracle, ThroughManyEvictionsAForkAndAFile)
{
    const std::pair<const char *, const char *> methods[] = {
        { "sinks", "every=3" },
        { "h2o", "sinks=2,recent=8,every=3" },
        { "scissorhands", "recent=8,every=3,history=32" },
        { "snapkv", "window=8,every=3" },
        { "rkv", "window=8,recent=4,every=3" },
        { "tova", "every=1" },
        { "keydiff", "every=3" },
        { "knorm", "every=3,split=adaptive" },
        { "expected", "every=3" },
        { "lagkv", "lag=8,every=3" },
        { "random", "every=3" },
        { "observed", "every=3,split=adaptive" },
    };
    for (const char *const model : { "tq", "qwen3" }) {
        for (const auto &[name, options] : methods) {
            open(model, name, options);
            {
                Sequence             text(engine_), oracle(engine_), fork(engine_);
                std::vector<int32_t> tokens;
                for (int i = 0; i < 160; i++) tokens.push_back((i * 31 + i * i) % 300);
                text.add(tokens);
                text.get()->keeping = weir_keeping_begin(keeping_, 0, n_prompt, 0);
                int n_prunings = 0;
                for (const int n : { 64, 36 }) n_prunings += check(text, oracle, n, name);
                EXPECT_LE(n_prunings, 1) << name << ": not before the end of the prompt";
                for (int i = 0; i < 20; i++) n_prunings += check(text, oracle, 1, name);
                fork.get()->keeping = weir_keeping_begin(keeping_, 1, n_prompt, 0);
                weir_sequence_fork(fork.get(), text.get());
                const std::vector<Head> at_fork = rows_;
                for (int i = 0; i < 20; i++) n_prunings += check(text, oracle, 1, name);
                EXPECT_GE(n_prunings, 10) << name;
                rows_ = at_fork;
                for (int i = 0; i < 20; i++) (void)check(fork, oracle, 1, std::string(name) + " forked");
                EXPECT_EQ(fork.get()->table.n_rows, text.get()->table.n_rows);
                Sequence restored(engine_);
                save_and_restore(fork, restored, 12);
                restored.add(std::vector<int32_t>(tokens.begin() + 140, tokens.end()));
                n_prunings = 0;
                for (const int n : { 5, 7 }) n_prunings += check(restored, oracle, n, std::string(name) + " restored");
                for (int i = 0; i < 8; i++) n_prunings += check(restored, oracle, 1, std::string(name) + " restored");
                EXPECT_GE(n_prunings, 2) << name;
            }
            close();
        }
    }
}

} // namespace
