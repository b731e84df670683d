/* What a text that lost rows computes is what attention over exactly the rows that stayed computes. The oracle knows nothing of moving rows: it keeps a copy of
 * every row as it was written, finds out from the pages which of them are left, and before each step writes those to pages of a fresh sequence. Texts run
 * in one batch, each oracle alone. */
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/kv/evict.h"
#include "engine/kv/keeping.h"
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
    int64_t            position;
    bool               operator==(const Row &other) const { return k == other.k && v == other.v; }
};
using Head = std::vector<Row>;

/* A sequence, and the rows that each of its heads should hold. */
struct Text {
    Sequence          sequence;
    std::vector<Head> heads;
    explicit Text(const Engine &engine) : sequence(engine) {}
    weir_sequence *get() { return sequence.get(); }
};
using Texts = std::vector<Text *>;

class Oracle : public ::testing::Test {
  protected:
    void open(const std::string &model, const std::string &policy, const std::string &options, const Settings &more = {})
    {
        Settings settings = { "kernels.activations=f32",  "kv.format=f32",       "model.context=512",
                              "batch.chunk=64",           "kv.reuse=off",        "batch.max_sequences=4",
                              "kv.policy.name=" + policy, "kv.policy.budget=24", "kv.policy.options=" + options };
        settings.insert(settings.end(), more.begin(), more.end());
        ASSERT_EQ(engine_.open(model, settings), WEIR_OK) << engine_.text();
        ASSERT_EQ(
            weir_kv_evictor_open(&evictor_, store(), weir_engine_stream(engine_.get()), weir_engine_ledger(engine_.get()), engine_.error()),
            WEIR_OK);
        ASSERT_EQ(weir_engine_keep(engine_.get(), &keeping_, 2, 512, n_prompt, 64, engine_.error()), WEIR_OK) << engine_.text();
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

    /* A text with its policy, of which nothing is computed. */
    std::unique_ptr<Text> text(int number, const std::vector<int32_t> &tokens)
    {
        auto out = std::make_unique<Text>(engine_);
        out->sequence.add(tokens);
        out->heads.assign(n_heads(), {});
        out->get()->keeping = weir_keeping_begin(keeping_, number, n_prompt, 0);
        return out;
    }
    /* The same, going on with other tokens. */
    std::unique_ptr<Text> fork(int number, Text &from)
    {
        auto out = std::make_unique<Text>(engine_);
        out->get()->keeping = weir_keeping_begin(keeping_, number, n_prompt, 0);
        weir_sequence_fork(out->get(), from.get());
        out->heads = from.heads;
        for (int i = out->get()->n_computed; i < out->get()->n_tokens; i++) out->get()->tokens[i] = (i * 7) % 300;
        return out;
    }
    Row read(const weir_kv_table &table, int64_t head, int64_t slot)
    {
        Row row = { std::vector<float>(static_cast<size_t>(spec().key_dim)), std::vector<float>(static_cast<size_t>(spec().value_dim)), 0 };
        const weir_policy_tile tile = { head / spec().n_kv_heads, head % spec().n_kv_heads, slot, 1, row.k.data(), row.v.data() };
        EXPECT_EQ(weir_kv_read_rows(evictor_, &table, &tile, engine_.error()), WEIR_OK) << engine_.text();
        return row;
    }
    /* The next n tokens of all of them in one batch: the logits behind each. */
    std::vector<std::vector<float>> step(const std::vector<Sequence *> &sequences, int n)
    {
        std::vector<std::vector<float>> out;
        std::vector<weir_work>          works;
        const float                    *logits = nullptr;
        for (Sequence *const sequence : sequences) works.push_back(support::work_of(sequence, n, WEIR_LOGITS_LAST));
        EXPECT_EQ(weir_runner_step(engine_.runner(), works.data(), static_cast<int32_t>(works.size()), &logits, engine_.error()), WEIR_OK)
            << engine_.text();
        for (const weir_work &work : works) {
            const float *const first = logits + static_cast<size_t>(work.first_logit) * engine_.n_vocab();
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
        args.key_dim = args.k_stride = spec().key_dim;
        args.value_dim = args.v_stride = spec().value_dim;
        const weir_kv_pair pair = spec().formats[static_cast<int64_t>(head) / spec().n_kv_heads];
        args.k_format = pair.k;
        args.v_format = pair.v;
        args.sinks = spec().sinks;
        EXPECT_EQ(weir_kv_write(weir_engine_stream(engine_.get()), &args), WEIR_OK);
    }
    /* A sequence with the text's tokens before its next step, whose rows are those that should be there. */
    virtual void rebuild(Sequence &out, Text &text)
    {
        weir_sequence *const s = out.get(), *const of = text.get();
        size_t most = 0;
        weir_sequence_clear(s);
        std::copy(of->tokens, of->tokens + of->n_tokens, s->tokens);
        s->n_tokens = of->n_tokens;
        s->n_computed = of->n_computed;
        if (of->recurrent != nullptr) std::copy(of->recurrent, of->recurrent + of->recurrent_bytes / sizeof(float), s->recurrent);
        s->recurrent_dirty = true;
        for (const Head &head : text.heads) most = std::max(most, head.size());
        if (most == 0) return;
        ASSERT_EQ(weir_kv_reserve(&s->table, store(), static_cast<int64_t>(most)), WEIR_OK);
        for (size_t h = 0; h < text.heads.size(); h++) {
            write(s->table, h, text.heads[h]);
            s->table.head_rows[h] = static_cast<int32_t>(text.heads[h].size());
            for (size_t p = (text.heads[h].size() + 63) / 64; p < (most + 63) / 64; p++) {
                void *&page = s->table.pages[h * static_cast<size_t>(s->table.capacity) + p];
                weir_kv_page_drop(store(), page);
                page = nullptr;
            }
        }
        s->table.n_rows = static_cast<int64_t>(most);
        s->table.is_cut = true;
    }
    /* Of the rows that were there, which are left: in order, and none that is new. True if some went. */
    virtual bool follow(Text &text)
    {
        const weir_kv_table &table = text.get()->table;
        bool                 any = false;
        for (size_t h = 0; h < text.heads.size(); h++) {
            Head      &rows = text.heads[h];
            Head       left;
            size_t     at = 0;
            const auto n = weir_kv_rows_at(&table, static_cast<int64_t>(h));
            for (int64_t i = 0; i < n; i++) {
                const Row row = read(table, static_cast<int64_t>(h), i);
                while (at < rows.size() && !(rows[at] == row)) at++;
                EXPECT_LT(at, rows.size()) << "head " << h << " slot " << i << " holds no row that was there, in order";
                if (at == rows.size()) return any;
                left.push_back(rows[at++]);
            }
            any = any || left.size() < rows.size();
            rows = left;
        }
        return any;
    }
    static void expect_near(const std::vector<float> &got, const std::vector<float> &expected, const std::string &what)
    {
        for (size_t i = 0; i < got.size(); i++)
            if (!(std::fabs(got[i] - expected[i]) <= 1e-4f * (1 + std::fabs(expected[i])))) {
                ADD_FAILURE() << what << ": logit " << i << ": " << got[i] << " for " << expected[i];
                return;
            }
    }
    /* One step of the texts, before it an oracle for each; true if rows of the first went after it. */
    bool check(const Texts &texts, Sequence &oracle, int n, const std::string &what)
    {
        std::vector<std::vector<float>> expected;
        std::vector<Sequence *>         together;
        bool                            any = false;
        for (Text *const text : texts) {
            rebuild(oracle, *text);
            expected.push_back(step({ &oracle }, n)[0]);
            together.push_back(&text->sequence);
        }
        const auto got = step(together, n);
        for (size_t i = 0; i < texts.size(); i++) {
            weir_sequence *const s = texts[i]->get();
            expect_near(got[i], expected[i], what + ": text " + std::to_string(i) + " token " + std::to_string(s->n_computed));
            for (size_t h = 0; h < n_heads(); h++) {
                const auto head = static_cast<int64_t>(h);
                for (int r = 0; r < n; r++) {
                    texts[i]->heads[h].push_back(read(s->table, head, weir_kv_rows_at(&s->table, head) - n + r));
                    texts[i]->heads[h].back().position = s->n_computed - n + r;
                }
            }
            EXPECT_EQ(weir_runner_evict(engine_.runner(), s, nullptr, engine_.error()), WEIR_OK) << engine_.text();
            any = (follow(*texts[i]) && i == 0) || any;
        }
        return any;
    }
    /* A prompt, an answer, and a fork that goes another way beside it. */
    void run(const std::string &what, int least_prunings, const std::vector<int64_t> &whole_layers = {})
    {
        std::vector<int32_t> tokens;
        for (int i = 0; i < 160; i++) tokens.push_back((i * 31 + i * i) % 300);
        Sequence   oracle(engine_);
        const auto one = text(0, tokens);
        int        n_prunings = 0;
        for (const int n : { 64, 36 }) n_prunings += check({ one.get() }, oracle, n, what);
        EXPECT_LE(n_prunings, what.find("in_prompt") == std::string::npos ? 1 : 2) << what;
        for (int i = 0; i < 20; i++) n_prunings += check({ one.get() }, oracle, 1, what);
        const auto two = fork(1, *one);
        for (int i = 0; i < 20; i++) n_prunings += check({ one.get(), two.get() }, oracle, 1, what + " forked");
        EXPECT_GE(n_prunings, least_prunings) << what;
        EXPECT_EQ(n_rows(*two), n_rows(*one)) << what;
        for (const int64_t layer : whole_layers)
            for (int64_t h = 0; h < spec().n_kv_heads; h++)
                for (const auto *const text : { &one, &two })
                    EXPECT_EQ(weir_kv_rows_at(&(*text)->get()->table, layer * spec().n_kv_heads + h), 140) << what << ": layer " << layer;
    }
    int64_t n_rows(Text &text)
    {
        int64_t n = 0;
        for (int64_t h = 0; h < text.get()->table.n_heads; h++) n += weir_kv_rows_at(&text.get()->table, h);
        return n;
    }
    Engine           engine_;
    weir_kv_evictor *evictor_ = nullptr;
    weir_keeping    *keeping_ = nullptr;
};

} // namespace oracle
