/* Positions in the cache, as published: rows that are held have the positions 0 .. n - 1, the query
 * the next. The oracle rotates every key from its position in the sequence to its place, and puts
 * the next tokens after it; the engine rotates the first rows only. */
#include "tests/unit/schedule/oracle.h"

namespace oracle {
namespace {

class Positions : public Oracle {
  protected:
    /* A key at position `from` as it would be at `to`. */
    std::vector<float> rotated(std::vector<float> key, int64_t from, int64_t to)
    {
        const weir_rope_table *const rope = weir_model_rope(weir_engine_model(engine_.get()));
        const auto half = static_cast<size_t>(engine_.shape().rotary_dim / 2);
        for (size_t f = 0; f < half; f++) {
            float &a = key[is_paired_ ? 2 * f : f], &b = key[is_paired_ ? 2 * f + 1 : f + half];
            const double angle =
                static_cast<double>(rope->frequencies[f]) * static_cast<double>(to - from);
            const double x = static_cast<double>(a), y = static_cast<double>(b);
            a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
            b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
        }
        return key;
    }
    void rebuild(Sequence &out, Watched &watched) override
    {
        weir_kv_sequence *const s = out.get();
        Watched in_cache(engine_);
        const int64_t n = static_cast<int64_t>(watched.heads[0].size());
        in_cache.sequence.add({ watched.get()->tokens,
                                watched.get()->tokens + watched.get()->n_tokens });
        in_cache.get()->n_computed = watched.get()->n_computed;
        std::swap(in_cache.get()->recurrent, watched.get()->recurrent);
        in_cache.heads = watched.heads;
        for (Head &head : in_cache.heads) {
            ASSERT_EQ(static_cast<int64_t>(head.size()), n)
                << "positions are the same in all heads";
            for (int64_t i = 0; i < n; i++) {
                Row &row = head[static_cast<size_t>(i)];
                row.k = rotated(row.k, row.position, i);
            }
        }
        Oracle::rebuild(out, in_cache);
        std::swap(in_cache.get()->recurrent, watched.get()->recurrent);
        in_cache.get()->n_computed = 0;
        const int32_t n_left = s->n_tokens - s->n_computed;
        std::copy(s->tokens + s->n_computed, s->tokens + s->n_tokens, s->tokens + n);
        s->n_computed = static_cast<int32_t>(n);
        s->n_tokens = s->n_computed + n_left;
    }
    /* The first rows and the latest ones; the pages have the first ones rotated, within what f32
     * tells apart. */
    bool follow(Watched &watched) override
    {
        const weir_kv_table &table = watched.get()->table;
        bool any = false;
        for (size_t h = 0; h < watched.heads.size(); h++) {
            Head &rows = watched.heads[h];
            const auto n = static_cast<size_t>(weir_kv_rows_at(&table, static_cast<int64_t>(h)));
            const auto gone = rows.size() - n, sinks = std::min(n_sinks_, n);
            any = any || gone > 0;
            rows.erase(
                rows.begin() + static_cast<int64_t>(sinks),
                rows.begin() + static_cast<int64_t>(sinks + gone)
            );
            const int64_t all_gone = watched.get()->n_computed - static_cast<int64_t>(n);
            for (size_t i = 0; i < n; i++) {
                const Row row = read(table, static_cast<int64_t>(h), static_cast<int64_t>(i));
                const auto expected = rotated(rows[i].k, 0, i < sinks ? all_gone : 0);
                EXPECT_EQ(row.v, rows[i].v) << "head " << h << " slot " << i;
                for (size_t d = 0; d < expected.size(); d++)
                    if (!(std::fabs(row.k[d] - expected[d]) <= 2e-6f * (1 + std::fabs(expected[d]))
                        )) {
                        ADD_FAILURE() << "head " << h << " slot " << i << " dim " << d << ": "
                                      << row.k[d] << " for " << expected[d];
                        return any;
                    }
            }
        }
        return any;
    }
    /* Through 30 prunings of 20 sinks. The pages of some formats are coded as a whole: those keys
     * are only near. */
    void drift(const std::string &what, bool is_exact)
    {
        std::vector<int32_t> tokens;
        Head first;
        Sequence scratch(engine_);
        const int64_t head = 3;
        for (int i = 0; i < 200; i++) tokens.push_back((i * 31 + i * i) % 300);
        const auto one = watched(0, tokens);
        for (int n = 50; one->get()->n_computed < 190;
             n = one->get()->n_computed < n_prompt ? 50 : 1) {
            step({ &one->sequence }, n);
            for (int64_t i = 0; first.size() < 20; i++)
                first.push_back(read(one->get()->table, head, i));
            EXPECT_EQ(weir_runner_evict(engine_.runner(), one->get(), engine_.error()), WEIR_OK)
                << engine_.text();
        }
        const int64_t gone = 190 - weir_kv_rows_at(&one->get()->table, head);
        ASSERT_GT(gone, 150);
        for (Row &row : first) row.k = rotated(row.k, 0, gone);
        ASSERT_EQ(weir_kv_reserve(&scratch.get()->table, store(), 64), WEIR_OK);
        scratch.get()->table.head_rows[head] = 20;
        if (is_exact) write(scratch.get()->table, head, first);
        for (int64_t i = 0; i < 20; i++) {
            const Row got = read(one->get()->table, head, i);
            if (is_exact)
                EXPECT_EQ(got.k, read(scratch.get()->table, head, i).k) << what << " row " << i;
            for (size_t d = 0; d < got.k.size(); d++)
                EXPECT_NEAR(got.k[d], first[static_cast<size_t>(i)].k[d], 0.5)
                    << what << " row " << i;
        }
        scratch.get()->table.head_rows[head] = 0;
    }
    bool is_paired_ = false;
    size_t n_sinks_ = 4;
};

/* Hybrid with part of each head rotated, dense, rotated in pairs with scaled frequencies, and with
 * a magnitude. */
TEST_F(Positions, AreThoseOfTheCache)
{
    const Folder yarn;
    support::write_file(
        yarn / "model.safetensors", support::read_file(support::golden("qwen3/model.safetensors"))
    );
    support::write_file(
        yarn / "config.json",
        support::with(
            support::read_file(support::golden("qwen3/config.json")), "\"head_dim\": 32",
            "\"head_dim\": 32, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
            "\"original_max_position_embeddings\": 1024}"
        )
    );
    const struct {
        std::string model;
        bool is_paired;
    } models[] = { { support::golden("tq"), false },
                   { support::golden("qwen3"), false },
                   { support::golden("llama3/llama3-f32.gguf"), true },
                   { yarn.path(), false } };
    for (const auto &[model, is_paired] : models)
        for (const size_t sinks : { 0, 1, 4, 20 })
            for (const char *const more : { "", ",in_prompt=true" }) {
                n_sinks_ = sinks;
                is_paired_ = is_paired;
                open(
                    model, "sinks", "every=3,positions=cache,sinks=" + std::to_string(sinks) + more
                );
                if (model == yarn.path())
                    ASSERT_GT(weir_model_rope(weir_engine_model(engine_.get()))->magnitude, 1.1f);
                run(model + " " + std::to_string(sinks) + " sinks" + more, 10);
                close();
            }
}

/* Whatever the rows are coded in, the rotated keys are the first ones rotated once and coded once,
 * however often rows went. */
TEST_F(Positions, DoNotDriftInAnyFormat)
{
    for (const char *const format :
         { "f16", "bf16", "q8_0", "q4_0", "fp8_e4m3", "turbo4", "q8_0/turbo4", "int8", "kivi4" }) {
        open(
            support::golden("qwen3"), "sinks", "every=3,positions=cache,sinks=20",
            { std::string("kv.format=") + format }
        );
        drift(format, format != std::string("int8") && format != std::string("kivi4"));
        close();
    }
    open(
        support::golden("qwen3"), "sinks", "every=3,positions=cache,sinks=20",
        { "kv.format=q4_0", "kv.wide_sinks=4", "kv.wide_format=f16" }
    );
    drift("wide sinks", true);
    close();
}

/* A sequence that repeats itself: with positions in the cache what is computed repeats, too,
 * wherever in the sequence, as everything that attention sees does; with the sequence's own the
 * first rows are further away each time. */
class Stream : public Positions {
  protected:
    float difference(const char *positions)
    {
        std::vector<int32_t> tokens;
        std::vector<std::vector<float>> logits;
        for (int i = 0; i < 1500; i++) tokens.push_back((i % 12 * 31 + i % 12 * 7) % 300);
        open(
            support::golden("qwen3"), "sinks", std::string("every=4,positions=") + positions,
            { "model.context=2048" }
        );
        {
            const auto one = watched(0, tokens);
            while (one->get()->n_computed < 1500) {
                const int n = one->get()->n_computed < n_prompt ? 20 : 1;
                logits.push_back(step({ &one->sequence }, n)[0]);
                EXPECT_EQ(weir_runner_evict(engine_.runner(), one->get(), engine_.error()), WEIR_OK)
                    << engine_.text();
            }
        }
        close();
        float most = 0;
        for (size_t back = 1; back <= 12; back++) {
            const auto &late = logits[logits.size() - back],
                       &early = logits[logits.size() - back - 12 * 90];
            for (size_t i = 0; i < late.size(); i++)
                most = std::max(most, std::fabs(late[i] - early[i]));
        }
        return most;
    }
};

TEST_F(Stream, IsAsGoodAtItsEndAsAtItsBeginning)
{
    EXPECT_LT(difference("cache"), 1e-3f);
    EXPECT_GT(difference("absolute"), 1e-2f);
}

} // namespace
} // namespace oracle
