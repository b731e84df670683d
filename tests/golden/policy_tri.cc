/* tests/golden/policy_tri.cc - TriAttention: statistics and their file, scores of single query
 * heads, and what is held in each way of voting. */
#include <cmath>
#include <cstring>

#include "engine/kv/policy/tri_scores.h"
#include "tests/golden/policy_golden.h"

namespace golden {
namespace {

/* Statistics made of queries (layer, head, n, dim). */
class Calibration {
  public:
    Calibration(const policy_test::Data &data, const Floats &queries, int64_t n)
    {
        weir_error error = {};
        const auto frequencies = data.frequencies();
        const weir_policy_shape shape = policy_test::shape_of(data, frequencies, 0);
        weir_calibrator *calibrator = nullptr;
        if (weir_calibrator_open(&calibrator, &shape, static_cast<float>(data.base), &error) !=
            WEIR_OK)
            throw Broken(error.text);
        for (int64_t layer = 0; layer < data.layers; layer++) {
            const weir_policy_queries one = { queries.data() +
                                                  layer * data.heads * n * data.key_dim,
                                              n, n * data.key_dim, data.key_dim };
            weir_calibrator_add(calibrator, layer, &one);
        }
        const weir_status status = weir_calibrator_finish(calibrator, &made_, &error);
        weir_calibrator_close(calibrator);
        if (status != WEIR_OK) throw Broken(error.text);
    }
    explicit Calibration(const std::vector<unsigned char> &file)
    {
        weir_error error = {};
        if (weir_calibration_parse(&made_, file.data(), file.size(), "tri.file", &error) != WEIR_OK)
            throw Broken(error.text);
    }
    ~Calibration() { weir_calibration_close(made_); }
    Calibration(const Calibration &) = delete;
    Calibration &operator=(const Calibration &) = delete;
    const weir_calibration *get() const { return made_; }

  private:
    weir_calibration *made_ = nullptr;
};

std::vector<unsigned char> file_of(const Policies &p)
{
    const Floats bytes = p.file->tensors.need_floats("tri.file");
    return std::vector<unsigned char>(bytes.begin(), bytes.end());
}

/* Header and layer scales bit for bit, the rest to 1e-5, as its note says. */
void check_file(Policies *p, Check *check, const weir_calibration *own)
{
    const std::vector<unsigned char> want = file_of(*p);
    weir_buffer got = {};
    const size_t exact = 64 + 4 * at(p->data.layers);
    if (weir_calibration_print(&got, own, true) != WEIR_OK) throw Broken("no memory");
    if (got.size != want.size() || got.size < exact || memcmp(got.data, want.data(), exact) != 0)
        check->fail("tri.file has another header");
    Floats a((got.size - exact) / 4), b(a.size());
    if (got.size == want.size()) {
        memcpy(a.data(), got.data + exact, a.size() * 4);
        memcpy(b.data(), want.data() + exact, b.size() * 4);
        Tolerance tolerance;
        tolerance.atol = 1e-5;
        check->close("tri.file", a, b, tolerance);
    }
    weir_buffer_free(&got);
    p->mark("tri.file");
}

void check_statistics(Policies *p, Check *check, const weir_calibration *own)
{
    Floats re, im, length, concentration;
    for (int64_t layer = 0; layer < p->data.layers; layer++)
        for (int64_t h = 0; h < p->data.heads; h++)
            for (int64_t f = 0; f < p->data.key_dim / 2; f++) {
                const weir_calibration_head head = weir_calibration_at(own, layer, h);
                re.push_back(head.re[f]);
                im.push_back(head.im[f]);
                length.push_back(head.length[f]);
                concentration.push_back(weir_calibration_concentration(own, layer, h, f));
            }
    const Shape shape = { p->data.layers, p->data.heads, p->data.key_dim / 2 };
    p->compare(check, "tri.mean_re", shape, re);
    p->compare(check, "tri.mean_im", shape, im);
    p->compare(check, "tri.mag", shape, length);
    p->compare(check, "tri.R", shape, concentration);
}

/* Scores of all query heads, as they are or as z over all rows. */
Floats raw_scores(
    Policies *p, const weir_calibration *calibration, const std::string &options, bool is_normalised
)
{
    Sequence seq(p->data, "triattention", "foreign=true,sinks=0" + options, calibration);
    Floats all;
    seq.forward(p->n());
    for (int64_t layer = 0; layer < p->data.layers; layer++)
        for (int64_t g = 0; g < p->data.kv_heads; g++)
            seq.within(layer, g, p->n(), [&](policy_call *call, const policy_head *where) {
                Floats raw(at(policy_group(call->policy) * where->n));
                const weir_status status = tri_raw(call, where, raw.data());
                for (int64_t m = 0; m < policy_group(call->policy) && is_normalised; m++)
                    tri_normalise(raw.data() + m * where->n, where);
                all.insert(all.end(), raw.begin(), raw.end());
                return status;
            });
    return all;
}

void check_weights(Policies *p, Check *check, const weir_calibration *calibration)
{
    const Sequence seq(p->data, "triattention", "foreign=true", calibration);
    const int64_t n_bands = p->data.key_dim / 2;
    Floats re, im;
    for (int64_t layer = 0; layer < p->data.layers; layer++)
        for (int64_t h = 0; h < p->data.heads; h++) {
            Floats weight(at(p->data.key_dim)), length(at(n_bands));
            tri_weights(seq.policy(), layer, h, p->n(), -1, weight.data(), length.data());
            re.insert(re.end(), weight.begin(), weight.begin() + n_bands);
            im.insert(im.end(), weight.begin() + n_bands, weight.end());
        }
    p->compare(check, "tri.W_re", { p->data.layers, p->data.heads, n_bands }, re);
    p->compare(check, "tri.W_im", { p->data.layers, p->data.heads, n_bands }, im);
}

/* Everything of tri.* that belongs to no set of rows. */
void run_scores(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const Shape shape = p->file->tensors.need_shape("tri.calibration_q", 4),
                    rows = { p->data.layers, p->data.heads, p->n() };
        const Calibration own(
            p->data,
            p->file->tensors.need_floats(
                "tri.calibration_q", { rows[0], rows[1], shape[2], p->data.key_dim }
            ),
            shape[2]
        );
        const Calibration read(file_of(*p));
        check_statistics(p, check, own.get());
        check_file(p, check, own.get());
        for (const weir_calibration *c : { own.get(), read.get() }) {
            p->compare(check, "tri.score_mean", rows, raw_scores(p, c, "", false));
            p->compare(check, "tri.score_max", rows, raw_scores(p, c, ",aggregate=max", false));
            p->compare(
                check, "tri.score_no_mlr", rows, raw_scores(p, c, ",concentration=false", false)
            );
            p->compare(check, "tri.score_norm_only", rows, raw_scores(p, c, ",trig=false", false));
            p->compare(check, "tri.z", rows, raw_scores(p, c, "", true));
            check_weights(p, check, c);
        }
    });
}

void run_vote(Policies *p, const std::string &name, const std::string &vote, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        const Calibration calibration(file_of(*p));
        Sequence seq(
            p->data, "triattention", "foreign=true,sinks=0,pin_prompt=true,vote=" + vote,
            calibration.get()
        );
        seq.n_prompt = p->number(name, "pinned", 0, p->n());
        seq.forward(p->n());
        seq.plan({ p->number(name, "budget", 1, p->n()) });
        p->check_held(check, name, seq);
    });
}

/* The worked example of the specification: one key of two bands at position 3, judged at
 * position 10. */
void run_example(Policies *p, const std::string &name, const Names &tensors)
{
    p->run(name, tensors, [&](Check *check) {
        policy_test::Data data = {
            1, 1, 1, 1, 4, 4, { 1, -.3f, .5f, .2f }, {}, {}, { 0, 0, 0, 0 }
        };
        const auto frequencies = data.frequencies();
        const double k[2][2] = { { .7, -.1 }, { .4, .9 } };
        data.q = data.plain;
        data.k.resize(4);
        for (int f = 0; f < 2; f++) {
            const double angle = 3 * static_cast<double>(frequencies[at(f)]), c = std::cos(angle),
                         s = std::sin(angle);
            data.k[at(f)] = static_cast<float>(k[f][0] * c - k[f][1] * s);
            data.k[at(f + 2)] = static_cast<float>(k[f][0] * s + k[f][1] * c);
        }
        /* The lengths of the example are means over queries that differ: two that have this mean
         * and this length. */
        const double length[2] = { 1.2, .5 };
        Floats queries(8);
        for (int f = 0; f < 2; f++) {
            const double re = static_cast<double>(data.plain[at(f)]),
                         im = static_cast<double>(data.plain[at(f + 2)]), r = std::hypot(re, im);
            const double across = std::sqrt(length[f] * length[f] - r * r) / r;
            for (int i = 0; i < 2; i++) {
                const double sign = i == 0 ? across : -across;
                queries[at(4 * i + f)] = static_cast<float>(re - sign * im);
                queries[at(4 * i + f + 2)] = static_cast<float>(im + sign * re);
            }
        }
        const Calibration calibration(data, queries, 2);
        Floats got, concentration, weights;
        for (const char *options : { "trig=false", "", "aggregate=max" }) {
            Sequence seq(
                data, "triattention", std::string("sinks=0,") + options, calibration.get()
            );
            seq.forward(1);
            seq.within(0, 0, 1, [&](policy_call *call, const policy_head *where) {
                weir_policy_rows rows = *call->rows;
                rows.next_position = 10;
                call->rows = &rows;
                float score;
                const weir_status status = tri_raw(call, where, &score);
                got.push_back(got.empty() ? score : score - got[0]);
                if (options[0] == '\0') {
                    float weight[4], ignored[2];
                    tri_weights(call->policy, 0, 0, 10, -1, weight, ignored);
                    weights = { weight[0], weight[2], weight[1], weight[3] };
                }
                return status;
            });
        }
        for (int64_t f = 0; f < 2; f++)
            concentration.push_back(weir_calibration_concentration(calibration.get(), 0, 0, f));
        Tolerance tolerance;
        tolerance.atol = 1e-6;
        const json_t *const fields = p->fields(name);
        const auto real = [&](const json_t *value) {
            return static_cast<float>(json_number_value(value));
        };
        const json_t *const R = json_object_get(fields, "R"), *const W =
                                                                  json_object_get(fields, "W");
        check->close(
            "norm, mean, max", got,
            { real(json_object_get(fields, "norm")), real(json_object_get(fields, "mean")),
              real(json_object_get(fields, "max")) },
            tolerance
        );
        check->close(
            "R", concentration, { real(json_array_get(R, 0)), real(json_array_get(R, 1)) },
            tolerance
        );
        Floats want;
        for (size_t f = 0; f < 2; f++)
            for (size_t i = 0; i < 2; i++)
                want.push_back(real(json_array_get(json_array_get(W, f), i)));
        check->close("W", weights, want, tolerance);
    });
}

} // namespace

bool run_tri(Policies *p, const std::string &name, const Names &tensors)
{
    if (name == "tri")
        run_scores(p, name, tensors);
    else if (name == "tri.example")
        run_example(p, name, tensors);
    else if (name.rfind("tri.per_head.", 0) == 0)
        run_vote(p, name, "per_head", tensors);
    else if (name.rfind("tri.per_layer_head.", 0) == 0)
        run_vote(p, name, "per_layer_head", tensors);
    else if (name.rfind("tri.union.", 0) == 0)
        run_vote(p, name, "union", tensors);
    else
        return false;
    return true;
}

} // namespace golden
