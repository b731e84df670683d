/* engine/serve/reply_notes.c - what replies of several APIs have in common. */
#include <stdio.h>
#include <string.h>

#include "engine/serve/generation.h"
#include "engine/serve/kv_out.h"
#include "engine/serve/sse.h"
#include "engine/toolcalls/value.h"

weir_call_id weir_generation_call_id(const weir_generation *g, size_t choice, size_t i)
{
    weir_call_id id;
    const char *const prefix = g->api->call_prefix != NULL ? g->api->call_prefix : "call_",
                      *const own = g->id + strlen(g->api->id_prefix);
    (void)snprintf(id.text, sizeof id.text, "%s%s_%zu_%zu", prefix, own, choice, i);
    return id;
}

void weir_reply_input(weir_json_out *json, const char *arguments)
{
    const size_t n = strlen(arguments);
    bool is_json = false;
    char first = 0;
    const weir_status status = weir_value_is_json(&is_json, &first, arguments, n);
    if (status != WEIR_OK && json->status == WEIR_OK) json->status = status;
    if (is_json && first == '{') {
        weir_json_raw(json, arguments, n);
        return;
    }
    weir_json_open(json, '{');
    weir_json_put_string(json, "arguments", arguments);
    weir_json_close(json, '}');
}

/* Writes what the answer continued, and whether that equals what its tokens give. */
static void write_beginning(weir_json_out *json, const weir_generation *g)
{
    weir_json_key(json, "state");
    weir_json_open(json, '{');
    weir_json_put_string(json, "id", g->request.state);
    weir_json_put_integer(json, "tokens", g->beginning.n_tokens);
    weir_states_write_form(json, &g->beginning.info);
    weir_json_close(json, '}');
}

void weir_reply_notes(weir_json_out *json, const weir_generation *g)
{
    if (weir_generation_truncated(g) > 0)
        weir_json_put_integer(json, "truncated_tokens", weir_generation_truncated(g));
    if (g->beginning.tokens != NULL) write_beginning(json, g);
}

void weir_reply_usage_notes(weir_json_out *json, const weir_generation *g)
{
    const weir_usage usage = weir_generation_usage(g);
    weir_usage_kv_write(json, weir_service_facts_of(g->exchange->server->options.service), &usage);
    if (usage.numerics != NULL) weir_json_put_string(json, "numerics", usage.numerics);
}

static void write_times(weir_json_out *json, const char *prefix, int64_t n, int64_t ns)
{
    const double ms = (double)ns * 1e-6;
    char key[48];
    const struct {
        const char *suffix;
        double value;
    } fields[] = {
        { "n", (double)n },
        { "ms", ms },
        { "per_token_ms", n > 0 ? ms / (double)n : 0 },
        { "per_second", ms > 0 ? (double)n * 1e3 / ms : 0 },
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        (void)snprintf(key, sizeof key, "%s_%s", prefix, fields[i].suffix);
        weir_json_put_number(json, key, fields[i].value);
    }
}

void weir_reply_timings(weir_json_out *json, const weir_generation *g)
{
    const weir_usage usage = weir_generation_usage(g);
    if (usage.is_cut) return;
    weir_json_key(json, "timings");
    weir_json_open(json, '{');
    weir_json_put_integer(json, "cache_n", usage.n_cached);
    write_times(json, "prompt", usage.n_prompt - usage.n_cached, usage.prefill_ns);
    write_times(json, "predicted", usage.n_answer, usage.decode_ns);
    if (usage.n_drafted > 0) {
        weir_json_put_integer(json, "draft_n", usage.n_drafted);
        weir_json_put_integer(json, "draft_n_accepted", usage.n_accepted);
    }
    weir_json_close(json, '}');
}

weir_status weir_reply_failure(weir_buffer *out, weir_generation *g)
{
    WEIR_TRY(weir_sse_begin(out));
    WEIR_TRY(weir_api_error_write(out, &g->failure));
    WEIR_TRY(weir_sse_end(out));
    g->end_sent = true; /* without memory, a shorter message follows */
    return WEIR_OK;
}
