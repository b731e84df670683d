/* engine/api/engine.c - opens an engine for the library and describes it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/api/api_internal.h"
#include "engine/base/log.h"
#include "engine/base/memory.h"

static weir_status open_configured(weir_engine **out, weir_config *config, weir_error *error)
{
    const weir_engine_options options = { .config = config, .with_service = true };
    WEIR_TRY(weir_api_fill_model(config, error));
    (void)weir_log_set_level_name(config->log.level); /* was checked when it was set */
    return weir_engine_open_with_files(out, &options, error);
}

weir_status weir_engine_open(weir_engine **out, const weir_config *config, weir_error *error)
{
    weir_config *const own = weir_config_new();
    if (own == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the configuration");
    if (config != NULL) *own = *config;
    const weir_status status = open_configured(out, own, error);
    weir_config_free(own);
    return status;
}

/* Copies as much as the struct of a caller built for this or an earlier version holds. */
static void give(void *out, size_t capacity, void *from, size_t size)
{
    const size_t n = capacity < size ? capacity : size;
    *(size_t *)from = n;
    memcpy(out, from, n);
}

void weir_engine_get_info(const weir_engine *engine, weir_engine_info *info)
{
    const weir_engine_facts *const have = weir_api_facts(engine);
    weir_engine_info known = { .model = have->model,
                               .architecture = weir_engine_plan_of(engine)->facts.arch,
                               .parameters = have->n_parameters,
                               .context_length = have->window,
                               .vocab_size = have->n_vocab,
                               .max_sequences = have->n_slots,
                               .kv_bytes_per_token = have->kv_bytes_per_token,
                               .state_bytes = have->recurrent_bytes };
    give(info, info->size, &known, sizeof known);
}

void weir_sequence_usage(const weir_sequence *sequence, weir_usage_report *report)
{
    const weir_usage *const u = &sequence->usage;
    weir_usage_report known = { .prompt_tokens = u->n_prompt,
                                .cached_tokens = u->n_cached,
                                .computed_tokens = u->n_prompt - u->n_cached,
                                .answer_tokens = u->n_answer,
                                .kept_rows = u->n_rows,
                                .evicted_rows = u->n_evicted,
                                .kv_bytes = u->kv_bytes,
                                .prefill_seconds = (double)u->prefill_ns * 1e-9,
                                .decode_seconds = (double)u->decode_ns * 1e-9,
                                .reuse = u->reuse != NULL ? u->reuse : "",
                                .numerics = u->numerics != NULL ? u->numerics : "" };
    give(report, report->size, &known, sizeof known);
}

/* ---- memory ---------------------------------------------------------------------------------- */
size_t weir_memory_accounts(const weir_engine *engine, weir_memory_account *out, size_t capacity)
{
    weir_ledger_state state;
    weir_ledger_read(weir_engine_ledger(engine), &state);
    for (size_t i = 0; i < WEIR_ACCOUNT_COUNT && i < capacity; i++)
        out[i] = (weir_memory_account){ .name = weir_account_name((weir_account)i),
                                        .host = state.used[WEIR_TIER_HOST][i],
                                        .device = state.used[WEIR_TIER_DEVICE][i],
                                        .disk = state.used[WEIR_TIER_DISK][i] };
    return WEIR_ACCOUNT_COUNT;
}

/* Names of tiers and accounts need no JSON escapes. */
static weir_status write_tier(weir_buffer *out, const weir_ledger_state *state, weir_tier tier)
{
    WEIR_TRY(weir_buffer_format(
        out, "%s\"%s\": {\"limit\": %zu, \"used\": %zu, \"peak\": %zu, \"accounts\": {",
        tier > 0 ? ", " : "", weir_tier_name(tier), state->cap[tier], state->total[tier],
        state->peak[tier]
    ));
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++)
        WEIR_TRY(weir_buffer_format(
            out, "%s\"%s\": %zu", i > 0 ? ", " : "", weir_account_name((weir_account)i),
            state->used[tier][i]
        ));
    return weir_buffer_text(out, "}}");
}

static weir_status write_memory(weir_buffer *out, const weir_ledger_state *state)
{
    WEIR_TRY(weir_buffer_text(out, "{"));
    for (int tier = 0; tier < WEIR_TIER_COUNT; tier++)
        WEIR_TRY(write_tier(out, state, (weir_tier)tier));
    return weir_buffer_text(out, "}");
}

weir_status weir_memory_json(const weir_engine *engine, char **out, weir_error *error)
{
    weir_ledger_state state;
    weir_buffer text = { 0 };
    weir_ledger_read(weir_engine_ledger(engine), &state);
    if (write_memory(&text, &state) == WEIR_OK) {
        *out = text.data;
        return WEIR_OK;
    }
    weir_buffer_free(&text);
    return weir_error_set(error, WEIR_ENOMEM, "no memory for the memory report");
}
