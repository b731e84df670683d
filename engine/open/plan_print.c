/* engine/open/plan_print.c - prints the memory plan as text and as JSON, and the sums of a
 * refusal. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/open/plan.h"

size_t weir_plan_total(const weir_plan *plan)
{
    const size_t near = plan->has_device ? 0 : plan->weights + plan->recurrent + plan->kv;
    return near + plan->kv_windows + plan->kv_host + plan->activations + plan->snapshots +
           plan->page_tables + plan->tokens + plan->sampler + plan->tokenizer + plan->http +
           plan->process + plan->packs + plan->other;
}

size_t weir_plan_device_total(const weir_plan *plan)
{
    return plan->has_device ? plan->weights + plan->near_activations + plan->recurrent + plan->kv
                            : 0;
}

const char *weir_size_text(char out[WEIR_SIZE_TEXT], size_t bytes)
{
    const double kib = 1024.0, mib = kib * kib;
    if (bytes < 1024)
        (void)snprintf(out, WEIR_SIZE_TEXT, "%zu B", bytes);
    else if ((double)bytes < 0.1 * mib)
        (void)snprintf(out, WEIR_SIZE_TEXT, "%.1f KiB", (double)bytes / kib);
    else
        (void)snprintf(out, WEIR_SIZE_TEXT, "%.1f MiB", (double)bytes / mib);
    return out;
}

/* A line of the plan, in printing order. */
typedef struct part {
    const char *name, *text;
    size_t bytes;
    bool is_near; /* on the device, if there is one */
} part;
enum { PARTS = 16 };

static void parts_of(part out[PARTS], const weir_plan *plan)
{
    const part parts[PARTS] = { { "weights", "weights", plan->weights, true },
                                { "activations", "activations", plan->activations, false },
                                { "activations_near", "activations", plan->near_activations, true },
                                { "recurrent_state", "recurrent state", plan->recurrent, true },
                                { "snapshots", "kept states", plan->snapshots, false },
                                { "kv", "kv", plan->kv, true },
                                { "kv_windows", "kv of windows", plan->kv_windows, false },
                                { "kv_host", "kv on the host", plan->kv_host, false },
                                { "page_tables", "page tables", plan->page_tables, false },
                                { "tokens", "tokens", plan->tokens, false },
                                { "sampler", "sampler", plan->sampler, false },
                                { "tokenizer", "tokenizer", plan->tokenizer, false },
                                { "http", "requests", plan->http, false },
                                { "process", "process", plan->process, false },
                                { "packs", "state database", plan->packs, false },
                                { "other", "model tables", plan->other, false } };
    memcpy(out, parts, sizeof parts);
}

weir_status weir_plan_too_small(const weir_plan *plan, weir_error *error)
{
    /* The device is too small, not the host. */
    const bool is_device = plan->has_device && weir_plan_total(plan) <= plan->cap;
    const size_t cap = is_device ? plan->device_cap : plan->cap;
    char sum[512] = "", bytes[WEIR_SIZE_TEXT], limit[WEIR_SIZE_TEXT];
    part parts[PARTS];
    size_t at = 0, fixed = 0;
    parts_of(parts, plan);
    for (const part *p = parts; p < parts + PARTS; p++) {
        const bool is_elsewhere = plan->has_device && p->is_near != is_device;
        if (strcmp(p->name, "kv") == 0 || p->bytes == 0 || is_elsewhere) continue;
        const int n = snprintf(
            sum + at, sizeof sum - at, "%s%s %s", at > 0 ? " + " : "", p->text,
            weir_size_text(bytes, p->bytes)
        );
        if (n > 0 && (size_t)n < sizeof sum - at) at += (size_t)n;
        fixed += p->bytes;
    }
    return weir_error_set(
        error, WEIR_EFULL,
        "the plan does not fit: %s = %s of %s (%s), which leaves no room for %d rows of KV; "
        "raise memory.%s, or lower batch.max_sequences, batch.chunk, server.body_limit, "
        "model.context%s%s",
        sum, weir_size_text(bytes, fixed), weir_size_text(limit, cap),
        is_device                 ? plan->device
        : plan->cap_is_configured ? "memory.host"
                                  : "found free",
        (int)WEIR_SMALLEST_WINDOW, is_device ? "device" : "host",
        plan->facts.sink_tokens > 0 ? " or kv.wide_sinks" : "",
        !is_device && plan->facts.kv_pages.n_host > 0 ? " or kv.tiers.host" : ""
    );
}

static weir_status print_budget(weir_buffer *out, const char *text, int64_t bytes)
{
    return bytes == 0 ? WEIR_OK
                      : weir_buffer_format(
                            out, "  %-22s %12.1f MiB\n", text, (double)bytes / (1024.0 * 1024.0)
                        );
}

/* Sessions have the other half; also prints what the metadata leaves unused. */
static weir_status print_disk(weir_buffer *out, const weir_plan *plan)
{
    const double mib = 1024.0 * 1024.0;
    if (plan->facts.kv_pages.n_disk == 0) return WEIR_OK;
    WEIR_TRY(weir_buffer_format(
        out, "  %-22s %12.1f MiB   of %.1f MiB (memory.disk)", "kv on disk",
        (double)plan->kv_disk / mib, (double)plan->disk_cap / mib
    ));
    if (plan->disk_is_shared) WEIR_TRY(weir_buffer_text(out, ", at most half with sessions.dir"));
    if (plan->disk_is_limited)
        WEIR_TRY(weir_buffer_format(
            out, "; the metadata of more pages would take too much of %s",
            plan->has_device          ? "memory.device, raise it for more"
            : plan->cap_is_configured ? "memory.host, raise it for more"
                                      : "the free memory found at start"
        ));
    return weir_buffer_text(out, "\n");
}

/* ---- what a line says after its size --------------------------------------------------------- */
static weir_status note_states(weir_buffer *out, const weir_plan *plan)
{
    return weir_buffer_format(out, "   %d sequences", (int)plan->facts.n_slots);
}

static weir_status note_weights(weir_buffer *out, const weir_plan *plan)
{
    char size[WEIR_SIZE_TEXT];
    if (plan->facts.mtp_bytes > 0)
        WEIR_TRY(weir_buffer_format(
            out, "   %s of it for the draft head",
            weir_size_text(size, (size_t)plan->facts.mtp_bytes)
        ));
    if (plan->facts.n_experts_here > 0)
        WEIR_TRY(weir_buffer_format(
            out, "   %" PRId64 " of %" PRId64 " experts in memory (memory.experts)",
            plan->facts.n_experts_here, plan->facts.n_experts
        ));
    if (plan->facts.layer_embedding_bytes == 0) return WEIR_OK;
    return weir_buffer_format(
        out, "   %s of per-layer embeddings are read from the file",
        weir_size_text(size, (size_t)plan->facts.layer_embedding_bytes)
    );
}

static weir_status note_kv(weir_buffer *out, const weir_plan *plan)
{
    WEIR_TRY(weir_buffer_format(
        out, "   %s, %" PRId64 " tokens of %" PRId64 " bytes, %" PRId64 " pages",
        plan->facts.kv_format, plan->kv_rows, plan->facts.kv_bytes_per_token, plan->facts.kv_pages.n
    ));
    if (plan->facts.kv_pages.n_sinks > 0)
        WEIR_TRY(weir_buffer_format(
            out, ", %" PRId64 " of them for first tokens of %" PRId64 " bytes",
            plan->facts.kv_pages.n_sinks, plan->facts.kv_bytes_per_sink
        ));
    if (plan->kv_unsealed > 0)
        WEIR_TRY(weir_buffer_format(
            out, ", %.1f MiB of unsealed rows", (double)plan->kv_unsealed / (1024.0 * 1024.0)
        ));
    if (plan->facts.kv_pages.n_disk == 0) return WEIR_OK;
    return weir_buffer_format(
        out, "; %" PRId64 " of these pages on disk", plan->facts.kv_pages.n_disk
    );
}

static weir_status note_windows(weir_buffer *out, const weir_plan *plan)
{
    return weir_buffer_format(
        out, "   the last %" PRId64 " tokens of a sequence; %" PRId64 " blocks of 64",
        plan->facts.kv_window, plan->facts.n_window_blocks
    );
}

static weir_status note_tables(weir_buffer *out, const weir_plan *plan)
{
    char size[WEIR_SIZE_TEXT];
    if (plan->tables == 0) return WEIR_OK;
    return weir_buffer_format(
        out, "   %s of it for tables of sequences", weir_size_text(size, plan->tables)
    );
}

static weir_status note_threads(weir_buffer *out, const weir_plan *plan)
{
    return weir_buffer_format(out, "   with %d threads", (int)plan->n_threads);
}

static weir_status note_host(weir_buffer *out, const weir_plan *plan)
{
    if (plan->facts.kv_pages.n_host == 0) return WEIR_OK;
    return weir_buffer_format(
        out, "   %" PRId64 " of these pages (kv.tiers.host)", plan->facts.kv_pages.n_host
    );
}

/* Pages that are read ahead lie near the kernels. */
static weir_status note_prefetch(weir_buffer *out, const weir_plan *plan, bool is_near)
{
    if (plan->has_device != is_near || plan->prefetch == 0) return WEIR_OK;
    return weir_buffer_format(
        out, "   %.1f MiB of it for pages from %s", (double)plan->prefetch / (1024.0 * 1024.0),
        is_near ? "the tier below" : "the disk"
    );
}

static weir_status note_activations(weir_buffer *out, const weir_plan *plan)
{
    char size[WEIR_SIZE_TEXT];
    if (plan->facts.mtp_row_bytes > 0)
        WEIR_TRY(weir_buffer_format(
            out, "   %s of it for rows of the draft head",
            weir_size_text(size, (size_t)plan->facts.mtp_row_bytes)
        ));
    return note_prefetch(out, plan, false);
}

static weir_status note_activations_near(weir_buffer *out, const weir_plan *plan)
{
    return note_prefetch(out, plan, true);
}

static const struct {
    const char *name; /* of a part */
    weir_status (*print)(weir_buffer *out, const weir_plan *plan);
} notes[] = {
    { "recurrent_state", note_states },
    { "weights", note_weights },
    { "kv", note_kv },
    { "kv_windows", note_windows },
    { "page_tables", note_tables },
    { "process", note_threads },
    { "kv_host", note_host },
    { "activations", note_activations },
    { "activations_near", note_activations_near },
};

static weir_status print_part(weir_buffer *out, const weir_plan *plan, const part *p)
{
    char size[WEIR_SIZE_TEXT];
    if (p->bytes == 0) return WEIR_OK;
    WEIR_TRY(weir_buffer_format(out, "  %-22s %16s", p->text, weir_size_text(size, p->bytes)));
    if (plan->has_device && p->is_near) WEIR_TRY(weir_buffer_format(out, " on %s", plan->device));
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++)
        if (strcmp(p->name, notes[i].name) == 0) WEIR_TRY(notes[i].print(out, plan));
    return weir_buffer_text(out, "\n");
}

static weir_status print_totals(weir_buffer *out, const weir_plan *plan)
{
    const double mib = 1024.0 * 1024.0;
    WEIR_TRY(weir_buffer_format(
        out, "  %-22s %12.1f MiB   of %.1f MiB %s\n", "total", (double)weir_plan_total(plan) / mib,
        (double)plan->cap / mib, plan->cap_is_configured ? "(memory.host)" : "found free"
    ));
    if (plan->least > 0)
        WEIR_TRY(weir_buffer_format(
            out, "  %-22s %12.1f MiB   the smallest memory.host that fits%s\n", "least",
            (double)plan->least / mib, plan->least_varies ? " like this" : ""
        ));
    if (plan->has_device)
        WEIR_TRY(weir_buffer_format(
            out, "  %-22s %12.1f MiB   of %.1f MiB of %s, %s (memory.device)\n",
            "total on the device", (double)weir_plan_device_total(plan) / mib,
            (double)plan->device_cap / mib, plan->device, plan->device_title
        ));
    else if (plan->device_why[0] != '\0')
        WEIR_TRY(
            weir_buffer_format(out, "  %-22s %12s       %s\n", "device", "cpu", plan->device_why)
        );
    return WEIR_OK;
}

weir_status weir_plan_print(const weir_plan *plan, weir_buffer *out)
{
    part parts[PARTS];
    parts_of(parts, plan);
    WEIR_TRY(
        weir_buffer_format(out, "memory plan for %s (%s)\n", plan->facts.model, plan->facts.arch)
    );
    if (plan->skips_images)
        WEIR_TRY(weir_buffer_text(out, "  only text is computed; the vision tower is not read\n"));
    if (plan->n_unused > 0)
        WEIR_TRY(weir_buffer_format(
            out, "  tensors of the file that are not used: %zu, the first is %s\n", plan->n_unused,
            plan->first_unused
        ));
    for (const part *p = parts; p < parts + PARTS; p++) WEIR_TRY(print_part(out, plan, p));
    WEIR_TRY(print_totals(out, plan));
    WEIR_TRY(print_disk(out, plan));
    if (plan->kv_peak > 0)
        WEIR_TRY(weir_buffer_format(
            out, "  %-22s %12" PRId64 " rows of a KV head at most, with its prompt\n", "kv policy",
            plan->kv_peak
        ));
    WEIR_TRY(print_budget(out, "kv of one request", plan->facts.kv_per_request));
    WEIR_TRY(print_budget(out, "kv of one key", plan->facts.kv_per_key));
    return weir_buffer_format(
        out, "  %-22s %12d tokens per sequence (trained for %d%s)\n", "window",
        (int)plan->facts.window, (int)plan->facts.trained_context,
        plan->facts.has_long_rope ? "; RoPE's factors are those for long contexts" : ""
    );
}

/* Escapes a name from a file. */
static weir_status print_text(weir_buffer *out, const char *text)
{
    WEIR_TRY(weir_buffer_text(out, "\""));
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            WEIR_TRY(weir_buffer_format(out, "\\%c", *c));
        else if ((unsigned char)*c < 0x20)
            WEIR_TRY(weir_buffer_format(out, "\\u%04x", (unsigned)*c));
        else
            WEIR_TRY(weir_buffer_add(out, c, 1));
    }
    return weir_buffer_text(out, "\"");
}

weir_status weir_plan_print_json(const weir_plan *plan, weir_buffer *out)
{
    part parts[PARTS];
    parts_of(parts, plan);
    WEIR_TRY(weir_buffer_text(out, "{\"model\": "));
    WEIR_TRY(print_text(out, plan->facts.model));
    WEIR_TRY(weir_buffer_text(out, ", \"arch\": "));
    WEIR_TRY(print_text(out, plan->facts.arch));
    if (plan->facts.layer_embedding_bytes > 0)
        WEIR_TRY(weir_buffer_format(
            out, ", \"layer_embeddings_in_file\": %" PRId64, plan->facts.layer_embedding_bytes
        ));
    if (plan->facts.mtp_bytes > 0)
        WEIR_TRY(weir_buffer_format(
            out, ", \"draft_head\": {\"weights\": %" PRId64 ", \"rows\": %" PRId64 "}",
            plan->facts.mtp_bytes, plan->facts.mtp_row_bytes
        ));
    WEIR_TRY(weir_buffer_format(
        out,
        ", \"cap\": %zu, \"cap_is_configured\": %s, \"total\": %zu, \"least\": %zu, "
        "\"accounts\": {",
        plan->cap, plan->cap_is_configured ? "true" : "false", weir_plan_total(plan), plan->least
    ));
    for (const part *p = parts; p < parts + PARTS; p++)
        WEIR_TRY(weir_buffer_format(out, "%s\"%s\": %zu", p == parts ? "" : ", ", p->name, p->bytes)
        );
    WEIR_TRY(weir_buffer_format(
        out,
        "}, \"device\": {\"name\": \"%s\", \"cap\": %zu, \"total\": %zu, "
        "\"pages_on_host\": %" PRId64 ", \"why\": ",
        plan->device, plan->device_cap, weir_plan_device_total(plan), plan->facts.kv_pages.n_host
    ));
    WEIR_TRY(print_text(out, plan->device_why));
    WEIR_TRY(weir_buffer_format(
        out,
        "}, \"disk\": {\"cap\": %zu, \"kv\": %zu, \"pages\": %" PRId64
        ", \"prefetch\": %zu, \"limited_by_metadata\": %s",
        plan->disk_cap, plan->kv_disk, plan->facts.kv_pages.n_disk, plan->prefetch,
        plan->disk_is_limited ? "true" : "false"
    ));
    WEIR_TRY(weir_buffer_format(
        out,
        "}, \"kv\": {\"format\": \"%s\", \"k_format\": \"%s\", \"v_format\": \"%s\", "
        "\"wide_layers\": %d, "
        "\"wide_sinks\": %d, \"wide_format\": \"%s\", \"sink_pages\": %" PRId64
        ", \"bytes_per_sink_token\": %" PRId64 ", ",
        plan->facts.kv_format, plan->facts.k_format, plan->facts.v_format,
        (int)plan->facts.wide_layers, (int)plan->facts.sink_tokens, plan->facts.wide_format,
        plan->facts.kv_pages.n_sinks, plan->facts.kv_bytes_per_sink
    ));
    WEIR_TRY(weir_buffer_format(
        out,
        "\"pages\": %" PRId64 ", \"page_bytes\": %" PRId64 ", \"tokens\": %" PRId64
        ", \"bytes_per_token\": %" PRId64
        ", \"open_bytes\": %zu, \"table_bytes\": %zu, \"per_request\": %" PRId64
        ", \"per_key\": %" PRId64 ", \"window\": %" PRId64 ", \"window_blocks\": %" PRId64
        ", \"window_bytes_per_sequence\": %" PRId64 "}",
        plan->facts.kv_pages.n, plan->facts.kv_page_bytes, plan->kv_rows,
        plan->facts.kv_bytes_per_token, plan->kv_unsealed, plan->tables, plan->facts.kv_per_request,
        plan->facts.kv_per_key, plan->facts.kv_window, plan->facts.n_window_blocks,
        plan->facts.kv_window_bytes
    ));
    return weir_buffer_format(
        out, ", \"window\": %d, \"trained_context\": %d, \"sequences\": %d, \"threads\": %d}\n",
        (int)plan->facts.window, (int)plan->facts.trained_context, (int)plan->facts.n_slots,
        (int)plan->n_threads
    );
}
