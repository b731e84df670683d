#include "tests/bench/steps.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine_parts.h"
#include "engine/kv/pool/store.h"
#include "engine/kv/prefix/prefix.h"
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/job.h"
#include "tests/bench/idle_blocks.h"
#include "tests/unit/model/idle_model.h"

namespace steps {
namespace {

constexpr int32_t kTokens = 64, kPageTokens = 64, kPiece = 128, kChunk = 4096, kColdBlocks = 16;

void write_model(const Options &o, int64_t window)
{
    idle::write(
        o.folder, { .name = "idle",
                    .pattern = "\"idle\"",
                    .blocks = "[block.idle]\nmixer = \"idle\"\n",
                    .ffn = "idle",
                    .layers = static_cast<int32_t>(o.layers),
                    .kv_heads = static_cast<int32_t>(o.kv_heads),
                    .vocab = o.vocabulary,
                    .context = window }
    );
}

class Bench;

struct Stream {
    Bench *bench;
    bool is_first; // the one whose tokens are the clock
    bool has_begun = false;
    weir_job *job = nullptr;
    std::vector<int32_t> prompt;
    std::vector<weir_job *> past; // that ended
    int32_t max_tokens = 0, n_choices = 1, client = 0;
};

class Bench {
  public:
    explicit Bench(const Options &options) : o_(options), steps_(options.steps) {}
    ~Bench() { weir_engine_close(engine_); }
    Bench(const Bench &) = delete;
    Bench &operator=(const Bench &) = delete;

    std::string run(Figures *out)
    {
        if (!open()) return error_.text;
        const bool is_done = submit_all() && wait();
        std::unique_lock<std::mutex> hold(lock_);
        is_over_ = true;
        hold.unlock();
        for (auto &stream : streams_) weir_job_cancel(stream->job);
        for (auto &stream : streams_) {
            weir_job_release(stream->job);
            for (weir_job *const job : stream->past) weir_job_release(job);
        }
        if (is_done) summarise(out);
        return is_done ? "" : "the streams ended early: " + problem_;
    }

  private:
    bool set(const std::string &setting)
    {
        return weir_config_assign(&config_, setting.c_str(), &error_) == WEIR_OK;
    }
    bool open()
    {
        static const weir_block *const blocks[] = { &idle_mixer, &idle_ffn, nullptr };
        const int64_t each = o_.pool_tokens / o_.sequences / kPageTokens * kPageTokens;
        write_model(o_, each);
        weir_config_default(&config_);
        (void
        )snprintf(config_.model.path, sizeof config_.model.path, "%s/model", o_.folder.c_str());
        const std::string n = std::to_string(o_.sequences);
        bool ok = set("model.arch_dir=" + o_.folder) && set("memory.host=1024GiB") &&
                  set("model.context=" + std::to_string(each)) && set("kv.format=f16") &&
                  set("batch.max_sequences=" + n) && set("batch.chunk=" + std::to_string(kChunk)) &&
                  set("batch.mixed_chunk=" + std::to_string(kPiece)) &&
                  set("speculation.method=off") &&
                  set("batch.queue=" + std::to_string(o_.queued + o_.sequences));
        if (ok && !o_.disk.empty())
            ok = set("memory.disk=" + o_.disk) && set("memory.disk_dir=" + o_.folder);
        const weir_engine_options options = { &config_, true, false, nullptr, nullptr, blocks };
        if (!ok || weir_engine_open_with(&engine_, &options, &error_) != WEIR_OK) return false;
        service_ = weir_engine_service(engine_);
        weir_service_call(service_, set_pace, this);
        return true;
    }
    static void set_pace(weir_service *service, void *user)
    {
        const int64_t least = static_cast<const Bench *>(user)->o_.pace;
        if (least > 0) service->pace.least = least;
        service->pace.pass_ns = INT64_MAX; // other programs make passes longer
    }
    // No two prompts begin alike, unless they are to. Their ends are spread over the 64 places in
    // a page.
    bool submit(int32_t number, int32_t n_prompt, int32_t max_tokens)
    {
        auto stream = std::make_unique<Stream>();
        stream->bench = this;
        stream->is_first = number == 0;
        uint64_t mixed = static_cast<uint64_t>(number) + 1, same = 0;
        for (int32_t i = 0; i < n_prompt; i++) {
            const bool is_same = o_.shared && number < n_streams_ && i < o_.context / 2;
            uint64_t &from = is_same ? same : mixed;
            from = from * 0xD1342543DE82EF95u + 0x9E3779B97F4A7C15u;
            stream->prompt.push_back(static_cast<int32_t>(from >> 32) & (kTokens - 1));
        }
        stream->max_tokens = max_tokens;
        if (is_filled_ && number > 0 && number < n_streams_) stream->n_choices = o_.choices;
        stream->client = number % 16;
        if (!ask(stream.get(), &stream->job)) return false;
        streams_.push_back(std::move(stream));
        return true;
    }
    bool ask(Stream *stream, weir_job **job)
    {
        weir_request request = {};
        request.prompt = stream->prompt.data();
        request.n_prompt = static_cast<int32_t>(stream->prompt.size());
        request.max_tokens = stream->max_tokens;
        request.n_choices = stream->n_choices;
        request.ignore_eos = request.cache_prompt = true;
        request.client = stream->client;
        request.sampling = weir_sampling_default();
        request.sampling.temperature = o_.sampled ? 1.0f : 0.0f;
        if (o_.sampled) request.sampling.top_k = 40;
        if (o_.sampled) request.sampling.top_p = 0.9f;
        request.callback = on_event;
        request.user = stream;
        return weir_service_submit(service_, job, &request, &error_) == WEIR_OK;
    }
    // Computes the prompts one after the other in large pieces; they stay in the prefix cache,
    // where the streams find them.
    bool fill()
    {
        for (int32_t i = 0; i < n_streams_; i++)
            if (!submit(i, o_.context + i % kPageTokens, 1)) return false;
        std::unique_lock<std::mutex> hold(lock_);
        changed_.wait(hold, [this] { return n_ended_ == n_streams_; });
        n_ended_ = 0;
        hold.unlock();
        for (auto &stream : streams_) weir_job_release(stream->job);
        streams_.clear();
        return true;
    }
    // Before all others, so that it is the least recently used.
    bool add_cold()
    {
        if (!submit(-1, kColdBlocks * kPageTokens + 1, 1)) return false;
        std::unique_lock<std::mutex> hold(lock_);
        changed_.wait(hold, [this] { return n_ended_ == 1; });
        n_ended_ = 0;
        hold.unlock();
        weir_job_release(streams_[0]->job);
        streams_.clear();
        weir_service_call(service_, demote_cached, this);
        const weir_kv_store *const store = weir_engine_store(engine_);
        if (weir_kv_residency_of(store).pages_cold > 0) return true;
        problem_ = "no block went to the lower tier";
        return false;
    }
    static void demote_cached(weir_service *, void *user)
    {
        Bench *const self = static_cast<Bench *>(user);
        weir_prefix *const prefix = weir_engine_prefix(self->engine_);
        void *const *blocks[kColdBlocks];
        const int32_t n = weir_prefix_lru_blocks(prefix, blocks, kColdBlocks);
        for (int32_t i = 0; i < n; i++)
            (void)!weir_kv_demote(
                weir_engine_store(self->engine_), blocks[i], 1,
                weir_prefix_block_index(prefix, blocks[i]), nullptr
            );
    }
    bool submit_all()
    {
        const int32_t window = weir_service_facts_of(service_)->window;
        if (o_.prefill) steps_ = std::min(steps_, (window - 1) / kPiece - kSpare);
        n_streams_ = 1 + (o_.sequences - (o_.prefill ? 2 : 1)) / o_.choices;
        if ((o_.cold && !add_cold()) || !fill()) return false;
        std::unique_lock<std::mutex> hold(lock_);
        is_filled_ = true;
        hold.unlock();
        for (int32_t i = 0; i < n_streams_; i++) {
            const int32_t n_prompt = o_.context + i % kPageTokens;
            const bool ends = i > 0 && o_.answer > 0;
            if (!submit(i, n_prompt, ends ? o_.answer : window - n_prompt)) return false;
        }
        hold.lock();
        changed_.wait(hold, [this] { return n_begun_ == n_streams_ || n_ended_ > 0; });
        hold.unlock();
        if (o_.prefill && !submit(n_streams_, (steps_ + kSpare) * kPiece, 1)) return false;
        for (int32_t i = 0; i < o_.queued; i++)
            if (!submit(n_streams_ + 1 + i, o_.context, 1)) return false;
        hold.lock();
        is_ready_ = true;
        return true;
    }
    bool wait()
    {
        std::unique_lock<std::mutex> hold(lock_);
        changed_.wait(hold, [this] { return is_measured_ || n_ended_ > 0; });
        return is_measured_;
    }
    static bool on_event(void *user, const weir_event *event)
    {
        Stream *const stream = static_cast<Stream *>(user);
        if (event->type == WEIR_EVENT_TOKEN && (stream->is_first || !stream->has_begun))
            stream->bench->note_token(stream);
        if (event->type == WEIR_EVENT_DONE) stream->bench->note_end(stream, event);
        return true;
    }
    void note_token(Stream *stream)
    {
        const std::lock_guard<std::mutex> hold(lock_);
        if (!is_filled_) return;
        if (!stream->has_begun && ++n_begun_ == n_streams_) changed_.notify_all();
        stream->has_begun = true;
        if (!stream->is_first || !is_ready_ || is_measured_) return;
        if (times_.size() == kWarm) weir_service_stats_of(service_, &before_);
        const idle_time now = idle_time_now(), norms = idle_norms();
        times_.push_back({ now.clock_ns - norms.clock_ns, now.cpu_ns - norms.cpu_ns });
        if (times_.size() == kWarm + 1) norms_ns_ = -norms.clock_ns;
        if (o_.together && times_.size() == kWarm + static_cast<size_t>(steps_) / 2)
            for (auto &other : streams_)
                if (!other->is_first) weir_job_cancel(other->job);
        if (o_.preempted && times_.size() == kWarm + static_cast<size_t>(steps_) / 2)
            weir_service_post_call(service_, &preempting_);
        if (times_.size() <= kWarm + static_cast<size_t>(steps_)) return;
        weir_service_stats_of(service_, &after_);
        norms_ns_ += norms.clock_ns;
        is_measured_ = true;
        changed_.notify_all();
    }
    static void preempt(weir_service *service, void *)
    {
        for (int32_t i = 0; i < service->facts->n_slots; i++) {
            choice *const c = service->slots[i].owner;
            if (c == nullptr || c->is_waiting || c->is_stalled || c->is_reading) continue;
            if (!static_cast<Stream *>(c->job->request.user)->is_first) weir_choice_preempt(c);
        }
    }
    // On the engine thread, which has submitted nothing meanwhile.
    bool asks_again(Stream *stream, const weir_event *event)
    {
        const bool has_ended =
            event->status == WEIR_OK || (o_.together && event->status == WEIR_ECANCELED);
        if (o_.answer == 0 || stream->is_first || !has_ended || !is_filled_ || is_over_ ||
            stream->max_tokens != o_.answer)
            return false;
        n_answers_ += is_ready_ && !is_measured_;
        n_cached_ += is_ready_ && !is_measured_ ? event->usage.n_cached : 0;
        stream->past.push_back(stream->job);
        if (ask(stream, &stream->job)) return true;
        stream->past.pop_back();
        problem_ = error_.text;
        return false;
    }
    void note_end(Stream *stream, const weir_event *event)
    {
        const std::lock_guard<std::mutex> hold(lock_);
        if (asks_again(stream, event)) return;
        n_ended_++;
        if (event->message != nullptr && !is_measured_) problem_ = event->message;
        changed_.notify_all();
    }
    void summarise(Figures *out)
    {
        std::vector<double> us, cpu_us;
        for (size_t i = kWarm + 1; i < times_.size(); i++) {
            us.push_back(static_cast<double>(times_[i].clock_ns - times_[i - 1].clock_ns) * 1e-3);
            cpu_us.push_back(static_cast<double>(times_[i].cpu_ns - times_[i - 1].cpu_ns) * 1e-3);
        }
        std::sort(us.begin(), us.end());
        std::sort(cpu_us.begin(), cpu_us.end());
        *out = {};
        out->steps = after_.steps - before_.steps;
        out->answers = n_answers_;
        out->cached_tokens = n_cached_;
        out->batch_rows = after_.batch_rows - before_.batch_rows;
        out->median_us = us[us.size() / 2];
        out->p99_us = us[us.size() * 99 / 100];
        out->most_us = us.back();
        out->cpu_median_us = cpu_us[cpu_us.size() / 2];
        out->cpu_p99_us = cpu_us[cpu_us.size() * 99 / 100];
        out->cpu_most_us = cpu_us.back();
        for (size_t i = 0; i < WEIR_STEP_PARTS; i++)
            out->part_us[i] = static_cast<double>(after_.step_ns[i] - before_.step_ns[i]) * 1e-3 /
                              static_cast<double>(out->steps);
        out->norms_us = static_cast<double>(norms_ns_) * 1e-3 / static_cast<double>(out->steps);
        out->part_us[WEIR_STEP_FORWARD] -= out->norms_us;
        const weir_kv_spec *const spec = weir_kv_store_spec(weir_engine_store(engine_));
        out->kv_heads = weir_kv_n_heads(spec);
        out->pool_tokens = spec->pages.n / out->kv_heads * kPageTokens;
    }

    static constexpr size_t kWarm = 4;
    static constexpr int32_t kSpare = 8; // pieces before and after the measurement
    const Options &o_;
    int32_t steps_;
    weir_config config_ = {};
    weir_error error_ = {};
    std::string problem_;
    weir_engine *engine_ = nullptr;
    weir_service *service_ = nullptr;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::vector<idle_time> times_; // of steps, less that of all norms before them
    int64_t norms_ns_ = 0;
    weir_service_stats before_ = {}, after_ = {};
    service_call preempting_ = { preempt, nullptr, nullptr, false, false };
    int32_t n_begun_ = 0, n_ended_ = 0, n_streams_ = 0;
    int64_t n_answers_ = 0, n_cached_ = 0;
    bool is_over_ = false, is_filled_ = false, is_ready_ = false, is_measured_ = false;
};

} // namespace

std::string run(const Options &options, Figures *out)
{
    const auto bench = std::make_unique<Bench>(options); // a configuration is large
    return bench->run(out);
}

const char *part_name(weir_step_part part)
{
    switch (part) {
    case WEIR_STEP_ADMIT: return "admit";
    case WEIR_STEP_PLAN: return "plan";
    case WEIR_STEP_MEMORY: return "memory";
    case WEIR_STEP_MARSHAL: return "marshal";
    case WEIR_STEP_FORWARD: return "forward";
    case WEIR_STEP_COMMIT: return "commit";
    case WEIR_STEP_SAMPLE: return "sample";
    case WEIR_STEP_EVENTS: return "events";
    case WEIR_STEP_MAINTAIN: return "maintain";
    case WEIR_STEP_PUBLISH: return "publish";
    case WEIR_STEP_PARTS: break;
    }
    return "";
}

} // namespace steps
