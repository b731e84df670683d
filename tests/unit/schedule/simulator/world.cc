#include "tests/unit/schedule/simulator/world.h"

#include <algorithm>

#include "engine/engine_parts.h"
#include "engine/kv/tiers/residency.h"
#include "engine/schedule/job.h"
#include "engine/schedule/runner.h"
#include "tests/unit/model/idle_model.h"

namespace sim {
namespace {

constexpr int32_t kWindow = 640;
constexpr int32_t kStop[] = { SIM_STOP };

// Two layers with one KV head each, or one with two.
void write_model(const std::string &folder, bool has_states)
{
    const std::string rows = "[block.rows]\nmixer = \"sim_kv\"\n",
                      state = "[block.state]\nmixer = \"sim_state\"\n";
    idle::write(
        folder, { .name = has_states ? "sim_states" : "sim_rows",
                  .pattern = has_states ? "\"state\", \"rows\"" : "\"rows\"",
                  .blocks = has_states ? state + rows : rows,
                  .ffn = "sim_ffn",
                  .layers = 2,
                  .kv_heads = has_states ? 2 : 1,
                  .vocab = SIM_VOCAB,
                  .context = kWindow }
    );
}

} // namespace

// ---- sizes --------------------------------------------------------------------------------------
std::string Setup::print() const
{
    const auto add = [](const char *name, int64_t value) {
        return std::string(" ") + name + "=" + std::to_string(value);
    };
    return std::string(has_states ? "with states" : "rows only") + add("caches", caches) +
           add("evicts", evicts) + add("prunes", prunes) + add("slots", slots) +
           add("window_blocks", window_blocks) + add("near_blocks", near_blocks) +
           add("disk_blocks", disk_blocks) + add("nodes", nodes) + add("snapshots", snapshots) +
           add("cold_states", cold_states) + add("tables", tables) + add("chunk", chunk) +
           add("mixed_chunk", mixed_chunk) + add("step_rows", step_rows) +
           add("long_prompt", long_prompt) + add("hot", hot) + add("even_depth", even_depth) +
           add("queue", queue) + add("drafts", drafts) + add("is_slow", is_slow);
}

Setup setup_of(uint64_t seed, bool has_disk, bool prunes)
{
    Random random(seed * 2 + 1);
    Setup s = {};
    s.has_states = random.one_in(2);
    s.caches = !random.one_in(8);
    s.slots = random.one_in(8) ? 16 : random.between(1, 6);
    s.window_blocks = random.between(3, 10);
    s.chunk = 64 * random.between(1, 4);
    s.mixed_chunk = random.one_in(3) ? 0 : 32 * random.between(1, 4);
    s.step_rows = random.one_in(2) ? 0 : s.slots + random.between(32, 256);
    s.long_prompt = random.one_in(3) ? 0 : random.between(32, 256);
    s.even_depth = random.one_in(2) ? 0 : random.between(20, 500);
    s.hot = random.one_in(2) ? 0 : random.between(1, 2);
    s.queue = random.between(8, 64);
    const int32_t ample = s.slots * s.window_blocks;
    const bool is_tiny = random.one_in(3), on_disk = random.one_in(2);
    s.near_blocks = is_tiny ? random.between(2, 2 * s.window_blocks) : random.between(4, ample + 4);
    const int32_t hot = std::max(s.hot, 1);
    const int64_t least = weir_tiers_least_blocks(s.slots, s.chunk, hot);
    int32_t spare = 0;
    if (has_disk && on_disk) { // what the planner asks for at least
        spare = is_tiny ? 0 : random.between(0, ample / 2);
        s.near_blocks = std::min(ample, static_cast<int32_t>(least) + spare);
        s.disk_blocks = random.between(1, is_tiny ? 8 : 2 * ample);
    }
    s.nodes = random.one_in(4) ? random.between(4, 16) : 2 * (s.near_blocks + s.disk_blocks) + 8;
    s.snapshots = s.has_states ? random.between(1, random.one_in(2) ? 5 : 24) : 0;
    s.cold_states = s.has_states && s.disk_blocks > 0 && s.caches ? random.between(0, 24) : 0;
    s.tables = random.one_in(4) ? random.between(1, s.slots) : 0;
    s.evicts = random.one_in(4);
    if (s.evicts && s.disk_blocks > 0) { // and what its policy needs
        s.near_blocks = std::min(
            ample + static_cast<int32_t>(weir_tiers_kept_blocks(hot)),
            static_cast<int32_t>(least) + spare
        );
        s.disk_blocks += s.window_blocks;
    }
    s.drafts = random.one_in(3) ? 0 : random.between(1, 8);
    s.is_slow = seed % 2 != 0;
    s.prunes = prunes;
    if (!prunes) return s;
    s.evicts = true;
    s.window_blocks = 10;
    s.slots = 2 + s.slots % 4;
    s.chunk = 64;
    s.disk_blocks = random.one_in(3) ? s.slots * s.window_blocks : s.window_blocks;
    s.near_blocks =
        static_cast<int32_t>(weir_tiers_least_blocks(s.slots, s.chunk, hot)) + s.window_blocks / 3;
    s.cold_states = 0;
    return s;
}

// ---- opening ------------------------------------------------------------------------------------
World::~World()
{
    for (weir_engine *const engine : engines_) weir_engine_close(engine);
}

std::string World::open(const std::string &folder)
{
    static const weir_block *const blocks[] = { &sim_kv, &sim_state, &sim_ffn, nullptr };
    static weir_config config;
    folder_ = folder;
    for (const bool has_states : { false, true }) {
        const std::string at = folder + (has_states ? "/states" : "/rows");
        write_model(at, has_states);
        weir_config_default(&config);
        (void)snprintf(config.model.path, sizeof config.model.path, "%s/model", at.c_str());
        weir_error error = {};
        for (const std::string &setting :
             { "model.arch_dir=" + at, std::string("memory.host=64MiB"),
               "model.context=" + std::to_string(kWindow), std::string("kv.format=f32"),
               std::string("batch.max_sequences=2"), std::string("batch.chunk=256"),
               std::string("kernels.threads=1") })
            if (weir_config_assign(&config, setting.c_str(), &error) != WEIR_OK) return error.text;
        const weir_engine_options options = { &config, false, false, nullptr, nullptr, blocks };
        if (weir_engine_open_with(&engines_[has_states], &options, &error) != WEIR_OK)
            return error.text;
    }
    return "";
}

std::string Machine::open_store(const World &world, const Setup &s, weir_error *error)
{
    const weir_model *const model = weir_engine_model(world.engine(s.has_states));
    const size_t caps[WEIR_TIER_COUNT] = {};
    if (weir_ledger_open(&ledger_, caps) != WEIR_OK) return "no memory for the ledger";
    formats_.assign(
        static_cast<size_t>(weir_model_kv_layers(model)), weir_kv_pair{ WEIR_KV_F32, WEIR_KV_F32 }
    );
    weir_kv_spec spec = {};
    spec.n_layers = weir_model_kv_layers(model);
    spec.geometry = weir_model_kv_geometry(model);
    spec.formats = formats_.data();
    spec.max_rows = 64 * s.window_blocks;
    const int64_t per_block = weir_kv_n_heads(&spec);
    spec.pages.n = per_block * (s.near_blocks + s.disk_blocks);
    spec.pages.n_disk = per_block * s.disk_blocks;
    spec.disk_folder = world.folder().c_str();
    spec.evicts = s.evicts;
    spec.table_bytes = static_cast<size_t>(s.tables) * WEIR_KV_TABLE_UNIT;
    if (weir_kv_store_open(&store_, &spec, ledger_, error) != WEIR_OK) return error->text;
    if (s.disk_blocks > 0) weir_lower_tier_set_io(weir_kv_store_lower_tier(store_), &sim_disk_io);
    weir_prefix_limits limits = {};
    limits.n_nodes = s.nodes;
    limits.n_snapshots = s.snapshots;
    limits.snapshot_bytes = weir_model_recurrent_bytes(model);
    limits.n_cold = s.cold_states;
    limits.disk_folder = world.folder().c_str();
    if (!s.caches) return "";
    if (weir_prefix_open(&prefix_, store_, ledger_, &limits, error) != WEIR_OK) return error->text;
    if (weir_prefix_lower_tier(prefix_) != nullptr)
        weir_lower_tier_set_io(weir_prefix_lower_tier(prefix_), &sim_disk_io);
    return "";
}

std::string Machine::open(const World &world, const Setup &s)
{
    const weir_model *const model = weir_engine_model(world.engine(s.has_states));
    weir_error error = {};
    const std::string problem = open_store(world, s, &error);
    if (!problem.empty()) return problem;
    const weir_kv_spec *const spec = weir_kv_store_spec(store_);
    const int32_t more = s.drafts > 0 ? WEIR_STEP_DRAFTS : 0;
    const weir_runner_limits limits = { s.slots + s.chunk + more, s.slots, s.slots + more, s.hot,
                                        false };
    if (weir_runner_open(&runner_, model, ledger_, spec, &limits, &error) != WEIR_OK)
        return error.text;
    weir_stream *const stream = weir_engine_stream(world.engine(s.has_states));
    if (s.evicts && weir_kv_evictor_open(&evictor_, store_, stream, ledger_, &error) != WEIR_OK)
        return error.text;
    weir_runner_evict_with(runner_, evictor_);
    const weir_runner_limits nested = {
        s.slots + weir_service_busy_chunk(s.chunk, s.mixed_chunk, 1) + more, s.slots, s.slots,
        s.hot, true
    };
    if (s.disk_blocks > 0 &&
        weir_runner_open(&nested_, model, ledger_, spec, &nested, &error) != WEIR_OK)
        return error.text;
    if (nested_ != nullptr) weir_runner_evict_with(nested_, evictor_);
    if (s.evicts && s.disk_blocks > 0 &&
        weir_pruner_open(&pruner_, store_, stream, ledger_, &error) != WEIR_OK)
        return error.text;
    facts_ = weir_engine_plan_of(world.engine(s.has_states))->facts;
    facts_.window = static_cast<int32_t>(spec->max_rows);
    facts_.n_slots = s.slots;
    facts_.queue_limit = s.queue;
    facts_.n_samplers = 1;
    facts_.n_valid_vocab = facts_.n_vocab;
    facts_.kv_pages = spec->pages;
    facts_.kv_per_request = facts_.kv_per_key = 0;
    facts_.n_kv_layers = facts_.n_heads = facts_.key_dim = facts_.value_dim = 1; // for even_depth
    const int64_t row = static_cast<int64_t>(facts_.n_kv_layers) * facts_.n_heads *
                        (facts_.key_dim + facts_.value_dim);
    facts_.n_parameters =
        static_cast<int64_t>(facts_.n_vocab) * facts_.d_model * (facts_.is_tied ? 1 : 2) +
        s.even_depth * row;
    weir_service_parts parts = {};
    parts.facts = &facts_;
    parts.runner = runner_;
    parts.nested = nested_;
    parts.store = store_;
    parts.pruner = pruner_;
    parts.prefix = prefix_;
    parts.ledger = ledger_;
    parts.stop_ids = kStop;
    parts.n_stop_ids = 1;
    parts.chunk = s.chunk;
    parts.mixed_chunk = s.mixed_chunk;
    parts.step_rows = s.step_rows;
    parts.long_prompt = s.long_prompt;
    parts.n_drafts = s.drafts;
    parts.draft_match = 1;
    parts.policy = s.evicts ? weir_engine_policy(world.engine(s.has_states)) : nullptr;
    if (weir_service_open(&service_, &parts, &error) != WEIR_OK) return error.text;
    if (s.is_slow) service_->pace.least = 1;
    if (s.is_slow) service_->pace.pass_ns = INT64_MAX;
    fixed_ = { sim_host_bytes(service_), s.caches ? s.cold_states : 0 };
    return "";
}

std::string Machine::close()
{
    std::string problem;
    if (service_ != nullptr) weir_service_close(service_);
    weir_pruner_close(pruner_);
    weir_runner_close(nested_);
    weir_runner_close(runner_);
    weir_kv_evictor_close(evictor_);
    if (prefix_ != nullptr) weir_prefix_close(prefix_);
    if (store_ != nullptr) {
        const int64_t held = weir_kv_store_spec(store_)->pages.n - weir_kv_store_free_pages(store_);
        weir_kv_store_close(store_);
        if (held > 0) problem = std::to_string(held) + " pages are still held at the end";
    }
    for (int tier = 0; ledger_ != nullptr && tier < WEIR_TIER_COUNT; tier++)
        if (weir_ledger_total(ledger_, static_cast<weir_tier>(tier)) > 0 && problem.empty())
            problem = "bytes are still charged at the end";
    if (ledger_ != nullptr) weir_ledger_close(ledger_);
    service_ = nullptr;
    runner_ = nested_ = nullptr;
    evictor_ = nullptr;
    pruner_ = nullptr;
    prefix_ = nullptr;
    store_ = nullptr;
    ledger_ = nullptr;
    return problem;
}

weir_service_stats Machine::stats() const
{
    weir_service_stats out;
    weir_service_stats_of(service_, &out);
    return out;
}

weir_prefix_stats Machine::prefix_stats() const
{
    return prefix_ != nullptr ? weir_prefix_stats_of(prefix_) : weir_prefix_stats{};
}

size_t Machine::request_bytes() const
{
    return weir_ledger_used(ledger_, WEIR_TIER_HOST, WEIR_ACCOUNT_HTTP);
}

} // namespace sim
