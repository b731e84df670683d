/* tests/golden/attention_golden.cc - attention over pages (attn.safetensors): every case that is a
 * softmax over some rows of a sequence. Windows come from the kernel; sinks and kept sets are rows
 * gathered side by side, as a policy leaves them. */
#include "tests/golden/attention_call.h"

namespace golden {
namespace attention {
namespace {

/* Every query sees every key: each is the last token of the same sequence. */
void run_full(const One &one, Check *check)
{
    const Sequence sequence(one.heads, one.keys(), one.values(), every_row(one.m));
    Call all;
    for (int32_t t = 0; t < one.n; t++)
        all.push_back(sequence.segment(t, 1, sequence.n_rows() - 1));
    attend(
        one.heads, one.queries(), { all },
        [&](const std::string &how, const Floats &out, const Floats &partials) {
            one.compare(check, how, out, partials);
        }
    );
}

/* A prompt in pieces, with the window of the heads: query t is the token at position t. */
void run_causal(const One &one, int64_t piece, Check *check)
{
    if (one.n != one.m || piece <= 0)
        throw Broken(
            one.name + ": a causal case has one query for every key, and pieces of some rows"
        );
    const Sequence sequence(one.heads, one.keys(), one.values(), every_row(one.m));
    std::vector<Call> calls;
    for (int64_t at = 0; at < one.n; at += piece)
        calls.push_back({ sequence.segment(
            static_cast<int32_t>(at), static_cast<int32_t>(std::min(piece, one.n - at)),
            static_cast<int32_t>(at)
        ) });
    attend(
        one.heads, one.queries(), calls,
        [&](const std::string &how, const Floats &out, const Floats &partials) {
            one.compare(check, how, out, partials);
        }
    );
}

/* Each query has a sequence of its own, of the rows that it sees. */
void run_gathered(
    One one, const std::function<bool(int64_t query, int64_t key)> &sees, Check *check
)
{
    if (one.n != one.m) throw Broken(one.name + ": a causal case has one query for every key");
    std::vector<Sequence> sequences;
    Call all;
    one.heads.window = 0;
    sequences.reserve(static_cast<size_t>(one.n)); /* segments point into them */
    for (int64_t t = 0; t < one.n; t++) {
        Ints rows;
        for (int64_t key = 0; key <= t; key++)
            if (key == t || sees(t, key)) rows.push_back(key);
        sequences.emplace_back(one.heads, one.keys(), one.values(), rows);
        all.push_back(
            sequences.back().segment(static_cast<int32_t>(t), 1, sequences.back().n_rows() - 1)
        );
    }
    attend(
        one.heads, one.queries(), { all },
        [&](const std::string &how, const Floats &out, const Floats &partials) {
            one.compare(check, how, out, partials);
        }
    );
}

void run_one(KvFile *file, const std::string &name, const json_t *fields, Check *check)
{
    const One one(file, name, fields);
    const json_t *const kept = json_object_get(fields, "kept");
    const double first = number_at(fields, "S", 0);
    const int64_t window = one.heads.window;
    if (json_is_array(kept)) {
        std::set<int64_t> keys;
        for (size_t i = 0; i < json_array_size(kept); i++)
            keys.insert(json_integer_value(json_array_get(kept, i)));
        return run_gathered(one, [&](int64_t, int64_t key) { return keys.count(key) > 0; }, check);
    }
    if (first > 0)
        return run_gathered(
            one,
            [&](int64_t t, int64_t key) {
                return static_cast<double>(key) < first || window == 0 || key > t - window;
            },
            check
        );
    const bool causal =
        string_at(file->fields(name + ".out"), "what").find("causal") != std::string::npos;
    return causal || window > 0 ? run_causal(one, one.n, check) : run_full(one, check);
}

/* The causal case again in pieces of C, 1, 7 and all rows. */
void run_chunked(KvFile *file, const json_t *fields, Check *check)
{
    const One one(file, "causal", json_object_get(json_object_get(file->entry, "cases"), "causal"));
    const int64_t chunk = static_cast<int64_t>(
        std::min(std::max(number_at(fields, "C", 1), 1.0), static_cast<double>(one.n))
    );
    for (const int64_t piece : { chunk, int64_t{ 1 }, int64_t{ 7 }, one.n })
        run_causal(one, piece, check);
}

} // namespace
} // namespace attention

void run_attention(KvFile *file)
{
    const char *key;
    const json_t *fields;
    json_object_foreach(json_object_get(const_cast<json_t *>(file->entry), "cases"), key, fields)
    {
        const std::string name = key, label = file->label(name);
        const Tensors &t = file->tensors;
        if (name == "chunked")
            file->counts->run(label, [&](Check *check) {
                attention::run_chunked(file, fields, check);
            });
        else if (t.has(name + ".pool_k"))
            file->counts->run(label, [&](Check *check) {
                attention::run_paged(file, name, check);
            });
        else if (t.has(name + ".cu_q"))
            file->counts->run(label, [&](Check *check) {
                attention::run_mixed(file, name, check);
            });
        else if (t.has(name + ".out"))
            file->counts->run(label, [&](Check *check) {
                attention::run_one(file, name, fields, check);
                if (t.has(name + ".cuts")) attention::run_tiles(file, name, fields, check);
            });
        else
            file->counts->run(label, [&](Check *check) { attention::run_example(fields, check); });
    }
}

} // namespace golden
