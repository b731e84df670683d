/* Counts what sequences take over between two steps, by their tables: entries of pages, the block
 * that a copy is made of, and the recurrent state. */
#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "engine/schedule/hooks.h"
#include "engine/schedule/job.h"

namespace support {

/* Of a service without sessions. All but `stop` on the engine thread. */
class Moved {
  public:
    void start(weir_service *service)
    {
        service_ = service;
        hooks_.after_step = [](void *user) { static_cast<Moved *>(user)->count(); };
        hooks_.release = [](void *) { return false; };
        hooks_.held = [](const void *) { return weir_kv_pages{}; };
        hooks_.count = [](const void *, weir_service_stats *) {};
        hooks_.user = this;
        service->hooks = &hooks_;
        remember();
    }
    void stop()
    {
        weir_service_call(
            service_, [](weir_service *service, void *) { service->hooks = nullptr; }, nullptr
        );
    }
    /* Of each iteration in which some moved: how many sequences, their bytes, and the most of one
     * of them. */
    struct Iteration {
        int n;
        int64_t bytes, most;
    };
    std::vector<Iteration> all;

  private:
    using Key = std::pair<const weir_job *, int32_t>;
    static int32_t rows_of_step(const choice *c)
    {
        const service_step &step = c->job->service->step;
        for (int32_t i = 0; c->is_planned && i < c->job->service->facts->n_slots; i++)
            if (step.choices[i] == c) return step.items[i].n_rows - step.items[i].n_drafts;
        return 0;
    }
    void count()
    {
        Iteration now = {};
        for (int32_t i = 0; i < service_->facts->n_slots; i++) {
            const choice *const c = service_->slots[i].owner;
            if (c == nullptr) continue;
            const weir_kv_table &table = c->sequence->table;
            const int32_t before = rows_[{ c->job, c->index }],
                          taken = c->sequence->n_computed - before - rows_of_step(c);
            if (taken <= 0) continue;
            const int64_t n_pages = (before + taken + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS,
                          entries = n_pages * table.n_heads * (int64_t)sizeof(void *),
                          block =
                              (before + taken) % WEIR_PAGE_TOKENS > 0 ? service_->block_bytes : 0,
                          bytes = entries + block + (int64_t)c->sequence->recurrent_bytes;
            now.n++;
            now.bytes += bytes;
            now.most = std::max(now.most, bytes);
        }
        if (now.n > 0) all.push_back(now);
        remember();
    }
    void remember()
    {
        rows_.clear();
        for (int32_t i = 0; i < service_->facts->n_slots; i++)
            if (const choice *const c = service_->slots[i].owner)
                rows_[{ c->job, c->index }] = c->sequence->n_computed;
    }
    weir_service *service_ = nullptr;
    weir_service_hooks hooks_ = {};
    std::map<Key, int32_t> rows_;
};

} // namespace support
