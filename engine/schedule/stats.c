/* engine/schedule/stats.c - what other threads may see of slots, pages and cached sequences. */
#include <string.h>

#include "engine/schedule/job.h"

/* Pages of all layers and heads are allocated and freed together. */
static int64_t bytes_of(const weir_service *service, weir_kv_pages pages)
{
    const int64_t per_block = weir_kv_pages_for(weir_kv_store_spec(service->store), 1);
    if (per_block == 0) return 0;
    return weir_kv_pages_others(pages) / per_block * service->block_bytes +
           pages.sinks / per_block * service->sink_block_bytes;
}

static weir_service_sequence stats_of(const choice *c)
{
    const weir_kv_sequence *const sequence = c->sequence;
    weir_service_sequence seen = { .job = c->job->serial,
                                   .choice = c->index,
                                   .tokens = sequence->n_computed,
                                   .client = c->job->request.client,
                                   .bytes = (int64_t)weir_kv_sequence_bytes(sequence),
                                   .kv_bytes = (int64_t)weir_kv_sequence_kv_bytes(sequence),
                                   .kv_claim = c->job->choice_bytes,
                                   .banks =
                                       weir_runner_bank_stats(c->job->service->runner, sequence) };
    if (sequence->policy_run == NULL) return seen;
    const weir_policy_run_count rows =
        weir_policy_run_count_of(sequence->policy_run, &sequence->table, sequence->n_computed);
    seen.kv_policy = c->job->usage.kv_policy;
    seen.kv_budget = c->job->usage.kv_budget;
    seen.n_live = rows.live;
    seen.n_evicted = rows.evicted;
    seen.policy_bytes = (int64_t)weir_policy_run_bytes(c->job->policy_run);
    return seen;
}

void weir_service_publish(weir_service *service)
{
    service->has_news = false;
    pthread_mutex_lock(&service->lock);
    service->n_seen = 0;
    for (int32_t i = 0; i < service->facts->n_slots; i++) {
        const choice *const c = service->slots[i].owner;
        if (c == NULL) continue;
        service->seen[service->n_seen++] = stats_of(c);
    }
    const weir_kv_pages free = weir_service_free_pages(service);
    const int64_t n_free = free.sinks + weir_kv_pages_others(free);
    const int64_t per_block = weir_kv_pages_for(weir_kv_store_spec(service->store), 1);
    service->stats.kv_pages_used = service->facts->kv_pages.n - n_free;
    service->stats.kv_sink_pages_free = free.sinks;
    service->stats.kv_bytes_used = service->stats.kv_bytes_total - bytes_of(service, free);
    service->stats.kv_tokens_free = per_block > 0 ? n_free / per_block * WEIR_PAGE_TOKENS : 0;
    const weir_kv_residency pages = weir_kv_residency_of(service->store);
    service->stats.kv_host_pages_used = pages.pages_on_host;
    service->stats.kv_disk_pages_used = pages.pages_cold - pages.pages_on_host;
    service->stats.kv_bytes_out = pages.bytes_out;
    service->stats.kv_bytes_back = pages.bytes_back;
    service->stats.kv_bytes_read = pages.bytes_read;
    service->stats.kv_write_errors = pages.write_errors;
    service->stats.kv_read_errors = pages.read_errors;
    const weir_kv_windows *const windows = weir_kv_store_windows(service->store);
    if (windows != NULL) service->stats.window_blocks_free = weir_kv_windows_free_blocks(windows);
    weir_model_expert_stats(weir_runner_model(service->runner), &service->stats.experts);
    memcpy(service->stats.reclaimed, service->reclaimed, sizeof service->reclaimed);
    memcpy(service->stats.step_ns, service->times.ns, sizeof service->times.ns);
    if (service->prefix != NULL) {
        const weir_prefix_stats kept = weir_prefix_stats_of(service->prefix);
        service->stats.kept_tokens = kept.n_tokens;
        service->stats.window_blocks_cached = kept.n_windows;
        service->stats.window_blocks_cold = kept.n_cold_windows;
        service->stats.window_blocks_out = kept.windows_out;
        service->stats.window_blocks_back = kept.windows_back;
        service->stats.window_block_errors = kept.window_errors;
        service->stats.kept_pruned_sequences = kept.n_pruned;
        service->stats.kept_pruned_tokens = kept.n_pruned_tokens;
        service->stats.kept_states = kept.n_snapshots;
        service->stats.cold_states = kept.n_cold_snapshots;
        service->stats.states_out = kept.snapshots_out;
        service->stats.states_back = kept.snapshots_back;
        service->stats.state_errors = kept.snapshot_errors;
        service->stats.kept_bytes = bytes_of(service, weir_prefix_reclaimable(service->prefix));
        service->stats.dropped_tokens = kept.dropped_tokens;
        service->stats.unsaved_tokens = kept.unsaved_tokens;
        if (service->hooks != NULL) service->hooks->count(service->hooks->user, &service->stats);
    }
    pthread_mutex_unlock(&service->lock);
}

bool weir_service_expert_counts(const weir_service *service, int64_t layer, weir_expert_counts *out)
{
    return weir_model_expert_counts(weir_runner_model(service->runner), layer, out);
}
