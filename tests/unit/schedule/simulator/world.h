/* tests/unit/schedule/simulator/world.h - what a schedule runs on: two models without matrices, and
 * a store, prefix cache, runner and service of any size, without a thread. */
#pragma once
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/kv/prune/evict.h"
#include "engine/kv/prune/pruner.h"
#include "engine/schedule/service.h"
#include "tests/unit/schedule/simulator/audit.h"
#include "tests/unit/schedule/simulator/forward.h"
#include "tests/unit/schedule/simulator/machine.h"

namespace sim {

/* The same numbers everywhere. */
class Random {
  public:
    explicit Random(uint64_t seed) : engine_(static_cast<uint32_t>(seed ^ seed >> 32)) {}
    int pick(int n) { return static_cast<int>(engine_() % static_cast<uint32_t>(n)); }
    int between(int least, int most) { return least + pick(most - least + 1); }
    bool one_in(int n) { return pick(n) == 0; }
    uint32_t bits() { return engine_(); }

  private:
    std::mt19937 engine_;
};

/* Sizes of a service. */
struct Setup {
    bool has_states; /* recurrent, before the layer with KV rows */
    bool caches, evicts, prunes;
    int32_t slots, window_blocks, near_blocks, disk_blocks, nodes, snapshots, cold_states, tables;
    int32_t chunk, mixed_chunk, step_rows, long_prompt, hot, even_depth, queue, drafts;
    bool is_slow; /* one sequence begins, one ends and so on in an iteration */
    std::string print() const;
};
/* prunes: policies are due on rows on disk more often. */
Setup setup_of(uint64_t seed, bool has_disk, bool prunes);

class World; /* opened once */

/* All that is opened for one schedule. */
class Machine {
  public:
    ~Machine() { close(); }
    Machine() = default;
    Machine(const Machine &) = delete;
    Machine &operator=(const Machine &) = delete;

    /* Returns what went wrong, or "". */
    std::string open(const World &world, const Setup &setup);
    /* Returns what is still charged or held, or "". */
    std::string close();
    weir_service *service() const { return service_; }
    const sim_fixed &fixed() const { return fixed_; }
    weir_service_stats stats() const;
    weir_prefix_stats prefix_stats() const;
    size_t request_bytes() const;

  private:
    std::string open_store(const World &world, const Setup &setup, weir_error *error);
    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_prefix *prefix_ = nullptr;
    struct weir_runner *runner_ = nullptr, *nested_ = nullptr;
    weir_kv_evictor *evictor_ = nullptr;
    weir_pruner *pruner_ = nullptr;
    weir_service *service_ = nullptr;
    weir_engine_facts facts_ = {};
    std::vector<weir_kv_pair> formats_;
    sim_fixed fixed_ = {};
};

class World {
  public:
    World() = default;
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    /* Writes the models to the folder. Returns what went wrong, or "". */
    std::string open(const std::string &folder);
    const weir_engine *engine(bool has_states) const { return engines_[has_states]; }
    const std::string &folder() const { return folder_; }

  private:
    std::string folder_;
    weir_engine *engines_[2] = {};
};

} // namespace sim
