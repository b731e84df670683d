// A long stream through a KV policy: does its end run as fast as its beginning, in the memory of
// its beginning? Two streams compute their first and last tenth in turns. Usage:
// tests/bench/README.md.
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/engine_parts.h"
#include "engine/kv/pool/sequence.h"
#include "engine/kv/prune/policy_run.h"
#include "engine/schedule/evaluate.h"
#include "offload/ledger.h"

namespace {

weir_error error;

void must(weir_status status)
{
    if (status == WEIR_OK) return;
    (void)fprintf(stderr, "stream_bench: %s\n", error.text);
    exit(1);
}

struct Options {
    long tokens = 1000000, piece = 0, decode = 0;
    std::string model = "models/weir-demo", text = "models/weir-demo/eval/val_novel.txt",
                policy = "sinks", budget = "256", policy_options = "in_prompt=true",
                memory = "256MiB";
    bool json = false;
};

/* What a stream holds at one moment. */
struct Memory {
    int percent;
    int32_t tokens;
    int64_t rows; /* of a head, in the mean */
    size_t kv, resident, ledger_kv, ledger_state,
        ledger; /* kv: pages of the stream; resident and ledger: of the process */
};

struct Median {
    double value, low,
        high; /* a 95 % interval from the order of the values, whatever their distribution */
    double tenth, ninth; /* deciles */
};

Median median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    const auto at = [&](double i) {
        return values[static_cast<size_t>(std::clamp(i, 0.0, static_cast<double>(n - 1)))];
    };
    const double half = 0.5 * static_cast<double>(n),
                 spread = 0.98 * std::sqrt(static_cast<double>(n));
    return { 0.5 * (values[(n - 1) / 2] + values[n / 2]), at(std::floor(half - spread) - 1.0),
             at(std::ceil(half + spread)), at(0.1 * static_cast<double>(n)),
             at(0.9 * static_cast<double>(n)) };
}

size_t resident_bytes()
{
    FILE *const file = fopen("/proc/self/statm", "re");
    unsigned long long total = 0, resident = 0;
    if (file == nullptr || fscanf(file, "%llu %llu", &total, &resident) != 2) resident = 0;
    if (file != nullptr) (void)fclose(file);
    return static_cast<size_t>(resident) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void ignore_logits(void *user, int32_t first, int32_t n_rows, const float *logits)
{
    (void)user, (void)first, (void)n_rows, (void)logits;
}

class Bench {
  public:
    explicit Bench(const Options &options) : options_(options)
    {
        open();
        for (int i = 0; i < 2; i++)
            must(weir_kv_sequence_open(&streams_[i], store(), ledger(), recurrent_bytes(), &error));
        must(weir_engine_policy_run_open(
            engine_, &policy_run_, nullptr, 2, window(), 0, chunk_, &error
        ));
        read_text();
    }
    ~Bench()
    {
        for (weir_kv_sequence &stream : streams_) weir_kv_sequence_close(&stream);
        weir_policy_run_close(policy_run_);
        weir_engine_close(engine_);
        weir_ids_free(&text_);
    }
    Bench(const Bench &) = delete;
    Bench &operator=(const Bench &) = delete;

    void run()
    {
        for (int i = 0; i < 2;
             i++) { /* everything has been touched before the first look at memory */
            begin(i);
            feed(i, 4 * chunk_, options_.decode > 0);
            begin(i);
        }
        remember(0);
        const int64_t start = weir_clock_ns();
        for (int percent : { 10, 50, 90 }) {
            feed(1, tenth_ * percent / 10 - streams_[1].n_computed, false);
            remember(percent);
        }
        fill_seconds_ = static_cast<double>(weir_clock_ns() - start) * 1e-9;
        if (options_.decode > 0) feed(1, tenth_ - paired_, false);
        for (long pair = 0; pair < paired_ / piece_; pair++) {
            const int first = static_cast<int>(pair % 2);
            seconds_[first].push_back(timed(first));
            seconds_[1 - first].push_back(timed(1 - first));
            ratios_.push_back(seconds_[0].back() / seconds_[1].back());
        }
        remember(100);
    }

    void print() const
    {
        const Median a = median(rates(0)), b = median(rates(1)), ratio = median(ratios_);
        const weir_plan &plan = *weir_engine_plan_of(engine_);
        const char *const path = options_.decode > 0 ? "decode" : "prefill";
        const unsigned long ids = static_cast<unsigned long>(10 * tenth_) * sizeof(int32_t);
        if (options_.json) {
            (void)printf(
                "{\"model\": \"%s\", \"policy\": \"%s\", \"budget\": %s, \"path\": "
                "\"%s\", \"chunk\": %d, \"tokens\": %ld, "
                "\"piece\": %ld, "
                "\"pairs\": %zu, \"first_tokens_per_second\": %.1f, "
                "\"last_tokens_per_second\": %.1f, ",
                plan.facts.model, options_.policy.c_str(), options_.budget.c_str(), path, chunk_,
                10 * tenth_, piece_, ratios_.size(), a.value, b.value
            );
            (void)printf(
                "\"ratio\": {\"median\": %.4f, \"low95\": %.4f, \"high95\": %.4f, "
                "\"decile1\": %.4f, \"decile9\": %.4f}, "
                "\"memory_cap_bytes\": %zu, \"token_id_bytes\": %lu, \"memory\": [",
                ratio.value, ratio.low, ratio.high, ratio.tenth, ratio.ninth, plan.cap, ids
            );
            for (const Memory &m : memory_)
                (void)printf(
                    "%s{\"percent\": %d, \"tokens\": %d, \"rows\": %lld, \"kv_bytes\": "
                    "%zu, \"resident_bytes\": %zu, "
                    "\"ledger_kv_bytes\": %zu, "
                    "\"ledger_recurrent_bytes\": %zu, \"ledger_bytes\": %zu}",
                    m.percent > 0 ? ", " : "", m.percent, (int)m.tokens, (long long)m.rows, m.kv,
                    m.resident, m.ledger_kv, m.ledger_state, m.ledger
                );
            (void)printf("]}\n");
            return;
        }
        (void)printf(
            "%s, policy %s, budget %s, memory.host %.0f MiB; %ld tokens, of which %ld at "
            "%.0f tokens/s before the pairs\n",
            plan.facts.model, options_.policy.c_str(), options_.budget.c_str(),
            static_cast<double>(plan.cap) / 1048576.0, 10 * tenth_, 9 * tenth_,
            static_cast<double>(9 * tenth_) / fill_seconds_
        );
        (void)printf(
            "%8s %10s %8s %12s %12s %14s %18s %12s\n", "percent", "tokens", "rows", "KV KiB",
            "RSS MiB", "ledger KV MiB", "ledger state KiB", "ledger MiB"
        );
        for (const Memory &m : memory_)
            (void)printf(
                "%8d %10d %8lld %12.1f %12.2f %14.2f %18.1f %12.2f\n", m.percent, (int)m.tokens,
                (long long)m.rows, static_cast<double>(m.kv) / 1024.0,
                static_cast<double>(m.resident) / 1048576.0,
                static_cast<double>(m.ledger_kv) / 1048576.0,
                static_cast<double>(m.ledger_state) / 1024.0,
                static_cast<double>(m.ledger) / 1048576.0
            );
        (void)printf(
            "(RSS includes the ids of the tokens, %.2f MiB when all are there)\n",
            static_cast<double>(ids) / 1048576.0
        );
        if (options_.decode > 0)
            (void)printf(
                "decode, one token at a time: %zu pairs of %ld tokens\n", ratios_.size(), piece_
            );
        else
            (void)printf(
                "prefill, steps of %d rows: %zu pairs of %ld tokens\n", (int)chunk_, ratios_.size(),
                piece_
            );
        (void)printf(
            "first %.1f tokens/s, last %.1f tokens/s; last/first of the pairs: median "
            "%.4f, 95 %% interval %.4f..%.4f, deciles "
            "%.4f..%.4f\n",
            a.value, b.value, ratio.value, ratio.low, ratio.high, ratio.tenth, ratio.ninth
        );
    }

  private:
    weir_runner *runner() const { return weir_engine_runner(engine_); }
    weir_kv_store *store() const { return weir_engine_store(engine_); }
    weir_ledger *ledger() const { return weir_engine_ledger(engine_); }
    size_t recurrent_bytes() const
    {
        return weir_model_recurrent_bytes(weir_engine_model(engine_));
    }
    int32_t window() const { return weir_engine_plan_of(engine_)->facts.window; }

    /* A tenth is a whole number of pieces, and a piece of prefill one of steps: all pieces are cut
     * alike. */
    void measure_out()
    {
        const long tenth = options_.tokens / 10, unit = options_.decode > 0 ? 1 : chunk_;
        piece_ = options_.piece > 0    ? (options_.piece + unit - 1) / unit * unit
                 : options_.decode > 0 ? 256
                                       : 4 * chunk_;
        tenth_ = (tenth + piece_ - 1) / piece_ * piece_;
        paired_ =
            options_.decode > 0 ? std::min(options_.decode / piece_ * piece_, tenth_) : tenth_;
        if (tenth > 0 && paired_ > 0 && 10 * tenth_ <= 1 << 24) return;
        (void)fprintf(
            stderr,
            "stream_bench: a tenth of %ld tokens, and %ld to decode, must hold a piece "
            "of %ld, and all tokens fit %d\n",
            options_.tokens, options_.decode, piece_, 1 << 24
        );
        exit(2);
    }

    void open()
    {
        static weir_config config;
        weir_config_default(&config);
        chunk_ = static_cast<int32_t>(config.batch.chunk);
        measure_out();
        for (const std::string &setting :
             { "model.path=" + options_.model, "model.context=" + std::to_string(10 * tenth_),
               std::string("batch.max_sequences=2"), "memory.host=" + options_.memory,
               "kv.policy.name=" + options_.policy, "kv.policy.budget=" + options_.budget,
               "kv.policy.options=" + options_.policy_options })
            must(weir_config_assign(&config, setting.c_str(), &error));
        const weir_engine_options with = { &config, false, false, nullptr, nullptr, nullptr };
        must(weir_engine_open_with(&engine_, &with, &error));
    }

    /* The text again and again, as ids. */
    void read_text()
    {
        weir_buffer bytes = {};
        const weir_encode_options plain = {};
        if (weir_engine_tokenizer(engine_) == nullptr)
            must(weir_error_set(&error, WEIR_EUNSUPPORTED, "the model has no tokenizer"));
        must(weir_file_read_input(&bytes, options_.text.c_str(), 1 << 28, &error));
        must(weir_tokenizer_encode(
            weir_engine_tokenizer(engine_), &text_, bytes.data, bytes.size, &plain, &error
        ));
        weir_buffer_free(&bytes);
        if (text_.count == 0)
            must(weir_error_set(&error, WEIR_EINVAL, "%s holds no text", options_.text.c_str()));
    }

    void begin(int i)
    {
        weir_kv_sequence_clear(&streams_[i]);
        if (policy_run_ != nullptr)
            streams_[i].policy_run = weir_policy_run_begin(policy_run_, i, 0, 0);
    }

    void feed(int i, long n, bool one_by_one)
    {
        std::vector<int32_t> next(static_cast<size_t>(std::min(n, piece_)));
        for (long done = 0; done < n; done += static_cast<long>(next.size())) {
            next.resize(static_cast<size_t>(std::min(n - done, piece_)));
            for (size_t k = 0; k < next.size(); k++)
                next[k] = text_.data[(static_cast<size_t>(streams_[i].n_tokens) + k) % text_.count];
            weir_evaluation evaluation = {};
            evaluation.tokens = next.data();
            evaluation.n_tokens = static_cast<int32_t>(next.size());
            evaluation.chunk = chunk_;
            evaluation.decode_from = one_by_one ? 0 : INT32_MAX;
            evaluation.visit = one_by_one ? ignore_logits : nullptr;
            must(weir_evaluate(runner(), &streams_[i], &evaluation, &error));
        }
    }

    double timed(int i)
    {
        const int64_t start = weir_clock_ns();
        feed(i, piece_, options_.decode > 0);
        return static_cast<double>(weir_clock_ns() - start) * 1e-9;
    }

    void remember(int percent)
    {
        const weir_kv_sequence &b = streams_[1];
        weir_ledger_state state;
        weir_ledger_read(ledger(), &state);
        const size_t *const used = state.used[WEIR_TIER_HOST];
        const int64_t live =
            policy_run_ != nullptr
                ? weir_policy_run_count_of(b.policy_run, &b.table, b.n_computed).live
                : b.n_computed;
        memory_.push_back({ percent, b.n_computed, live, weir_kv_sequence_kv_bytes(&b),
                            resident_bytes(), used[WEIR_ACCOUNT_KV], used[WEIR_ACCOUNT_RECURRENT],
                            state.total[WEIR_TIER_HOST] });
    }

    std::vector<double> rates(int i) const
    {
        std::vector<double> out;
        for (double seconds : seconds_[i]) out.push_back(static_cast<double>(piece_) / seconds);
        return out;
    }

    const Options options_;
    int32_t chunk_ = 0; /* rows of a step of prefill */
    long piece_ = 0, tenth_ = 0, paired_ = 0; /* tokens; paired_: of a tenth, computed in turns */
    weir_engine *engine_ = nullptr;
    weir_policy_run *policy_run_ = nullptr;
    weir_kv_sequence streams_[2] = {}; /* A, B */
    weir_ids text_ = {};
    std::vector<Memory> memory_; /* of B */
    std::vector<double> seconds_[2], ratios_; /* ratios: speed of B by that of A */
    double fill_seconds_ = 0.0;
};

long positive(const char *text)
{
    char *end = nullptr;
    const long value = strtol(text, &end, 10);
    if (*text != '\0' && *end == '\0' && value > 0 && value <= INT32_MAX) return value;
    (void)fprintf(stderr, "stream_bench: \"%s\" is no number from 1 to %d\n", text, INT32_MAX);
    exit(2);
}

Options read_options(int argc, char **argv)
{
    static const option names[] = { { "tokens", 1, nullptr, 't' },
                                    { "piece", 1, nullptr, 'p' },
                                    { "decode", 1, nullptr, 'd' },
                                    { "model", 1, nullptr, 'm' },
                                    { "text", 1, nullptr, 'x' },
                                    { "policy", 1, nullptr, 'k' },
                                    { "budget", 1, nullptr, 'b' },
                                    { "memory", 1, nullptr, 'h' },
                                    { "policy-options", 1, nullptr, 'o' },
                                    { "json", 0, nullptr, 'j' },
                                    { nullptr, 0, nullptr, 0 } };
    Options options;
    for (int name; (name = getopt_long(argc, argv, "", names, nullptr)) != -1;) switch (name) {
        case 't': options.tokens = positive(optarg); break;
        case 'p': options.piece = positive(optarg); break;
        case 'd': options.decode = positive(optarg); break;
        case 'm': options.model = optarg; break;
        case 'x': options.text = optarg; break;
        case 'k': options.policy = optarg; break;
        case 'b': options.budget = optarg; break;
        case 'o': options.policy_options = optarg; break;
        case 'h': options.memory = optarg; break;
        case 'j': options.json = true; break;
        default: exit(2);
        }
    return options;
}

} // namespace

int main(int argc, char **argv)
{
    Bench bench(read_options(argc, argv));
    bench.run();
    bench.print();
    return 0;
}
