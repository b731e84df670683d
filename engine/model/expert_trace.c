#include "engine/model/expert_trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a file may ask for: tables of at most 21 bytes for each expert. */
enum { MOST_LAYERS = 4096, MOST_EXPERTS = 65536, MOST_TOTAL = 1 << 22, ROWS = 10 };
static const int64_t most_bytes = (int64_t)1 << 40;

/* ---- the stack ------------------------------------------------------------------------------- */
weir_status weir_expert_stack_open(
    weir_expert_stack *stack, const weir_expert_trace_head *head, weir_error *error
)
{
    if (head->n_layers < 1 || head->n_layers > MOST_LAYERS || head->n_experts < 1 ||
        head->n_experts > MOST_EXPERTS || head->n_layers * head->n_experts > MOST_TOTAL ||
        head->n_total < 1 || head->n_total > head->n_layers * head->n_experts ||
        head->expert_bytes < 1 || head->expert_bytes > most_bytes)
        return weir_error_set(
            error, WEIR_EINVAL,
            "%" PRId64 " layers of %" PRId64 " experts, %" PRId64 " in all, of %" PRId64 " bytes",
            head->n_layers, head->n_experts, head->n_total, head->expert_bytes
        );
    const size_t n = (size_t)(head->n_layers * head->n_experts);
    *stack = (weir_expert_stack){ .head = *head,
                                  .recent = calloc(n, sizeof *stack->recent),
                                  .moved = calloc(n, sizeof *stack->moved),
                                  .is_used = calloc(n, sizeof *stack->is_used),
                                  .at = calloc(n, sizeof *stack->at),
                                  .last_layer = INT64_MAX };
    if (stack->recent != NULL && stack->moved != NULL && stack->is_used != NULL &&
        stack->at != NULL)
        return WEIR_OK;
    weir_expert_stack_close(stack);
    return weir_error_set(error, WEIR_ENOMEM, "no memory to count experts");
}

void weir_expert_stack_close(weir_expert_stack *stack)
{
    free(stack->recent);
    free(stack->moved);
    free(stack->is_used);
    free(stack->at);
    *stack = (weir_expert_stack){ 0 };
}

void weir_expert_stack_use(weir_expert_stack *s, int64_t layer, const int32_t *experts, int32_t n)
{
    const int64_t first = layer * s->head.n_experts;
    int32_t *const moved = s->moved;
    int64_t n_moved = 0;
    for (int32_t i = n - 1; i >= 0; i--) {
        moved[n_moved++] = (int32_t)(first + experts[i]);
        s->is_used[first + experts[i]] = true;
    }
    for (int64_t depth = 0; depth < s->n_recent; depth++) {
        const int32_t number = s->recent[depth];
        if (s->is_used[number])
            s->at[depth]++;
        else
            moved[n_moved++] = number;
    }
    for (int32_t i = 0; i < n; i++) s->is_used[first + experts[i]] = false;
    s->moved = s->recent;
    s->recent = moved;
    s->n_recent = n_moved;
    s->n_uses += n;
    s->n_passes += layer <= s->last_layer;
    s->last_layer = layer;
}

double weir_expert_stack_hits(const weir_expert_stack *stack, int64_t n_entries)
{
    int64_t hits = 0;
    for (int64_t i = 0; i < n_entries && i < stack->n_recent; i++) hits += stack->at[i];
    return stack->n_uses > 0 ? (double)hits / (double)stack->n_uses : 0.0;
}

/* ---- the text -------------------------------------------------------------------------------- */
static const char title[] = "weir experts trace 1\n";

weir_status weir_expert_trace_begin(weir_buffer *out, const weir_expert_trace_head *head)
{
    WEIR_TRY(weir_buffer_text(out, title));
    return weir_buffer_format(
        out, "layers %" PRId64 " experts %" PRId64 " total %" PRId64 " bytes %" PRId64 "\n",
        head->n_layers, head->n_experts, head->n_total, head->expert_bytes
    );
}

weir_status weir_expert_trace_add(
    weir_buffer *out, int64_t layer, const int32_t *experts, int32_t n
)
{
    WEIR_TRY(weir_buffer_format(out, "%" PRId64 ":", layer));
    for (int32_t i = 0; i < n; i++) WEIR_TRY(weir_buffer_format(out, " %d", (int)experts[i]));
    return weir_buffer_text(out, "\n");
}

typedef struct reader {
    const char *at, *end;
    int64_t line;
    const char *path;
    weir_error *error;
} reader;

static weir_status refuse(const reader *r, const char *what)
{
    return weir_error_set(
        r->error, WEIR_EFORMAT, "%s: line %" PRId64 ": %s; make it with `weir experts trace`",
        r->path, r->line, what
    );
}

static bool skip(reader *r, const char *text)
{
    const size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

/* A number of at most 13 digits; -1: there is none. */
static int64_t number_at(reader *r)
{
    int64_t number = 0;
    int n_digits = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && n_digits < 13; r->at++, n_digits++)
        number = number * 10 + (*r->at - '0');
    return n_digits > 0 ? number : -1;
}

static weir_status read_head(reader *r, weir_expert_trace_head *head)
{
    if (!skip(r, title)) return refuse(r, "this is no trace of experts");
    r->line++;
    const struct {
        const char *name;
        int64_t *value;
    } fields[] = { { "layers ", &head->n_layers },
                   { " experts ", &head->n_experts },
                   { " total ", &head->n_total },
                   { " bytes ", &head->expert_bytes } };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (!skip(r, fields[i].name)) return refuse(r, "the sizes are incomplete");
        *fields[i].value = number_at(r);
    }
    return skip(r, "\n") ? WEIR_OK : refuse(r, "the line with sizes does not end");
}

/* A line of the experts of a layer; `experts` has room for n_experts. */
static weir_status read_line(reader *r, weir_expert_stack *stack, int32_t *experts)
{
    const int64_t layer = number_at(r);
    int32_t n = 0;
    if (layer < 0 || layer >= stack->head.n_layers || !skip(r, ":"))
        return refuse(r, "a line begins with the number of a layer and a colon");
    while (skip(r, " ")) {
        const int64_t expert = number_at(r);
        if (expert < 0 || expert >= stack->head.n_experts)
            return refuse(r, "an expert is not one of the layer's");
        if (n > 0 && expert <= experts[n - 1]) return refuse(r, "the experts are not ascending");
        experts[n++] = (int32_t)expert;
    }
    if (n == 0 || !skip(r, "\n")) return refuse(r, "a line has the numbers of experts");
    weir_expert_stack_use(stack, layer, experts, n);
    return WEIR_OK;
}

weir_status weir_expert_trace_sizes(
    weir_expert_trace_head *out, const char *text, size_t n, const char *path, weir_error *error
)
{
    reader r = { .at = text, .end = text + n, .line = 1, .path = path, .error = error };
    return read_head(&r, out);
}

weir_status weir_expert_trace_read(
    weir_expert_stack *stack, const char *text, size_t n, const char *path, weir_error *error
)
{
    reader r = { .at = text, .end = text + n, .line = 1, .path = path, .error = error };
    weir_expert_trace_head head = { 0 };
    WEIR_TRY(read_head(&r, &head));
    weir_status status = weir_expert_stack_open(stack, &head, error);
    if (status != WEIR_OK)
        return weir_error_prefix(
            error, status == WEIR_EINVAL ? WEIR_EFORMAT : status, "%s: line 2", path
        );
    int32_t *const experts = malloc((size_t)head.n_experts * sizeof *experts);
    if (experts == NULL) status = weir_error_set(error, WEIR_ENOMEM, "no memory to read %s", path);
    for (r.line = 3; status == WEIR_OK && r.at < r.end; r.line++)
        status = read_line(&r, stack, experts);
    if (status == WEIR_OK && stack->n_recent > head.n_total)
        status = refuse(&r, "it has more experts than its second line says");
    if (status == WEIR_OK && stack->n_uses == 0) status = refuse(&r, "no experts are in it");
    free(experts);
    if (status != WEIR_OK) weir_expert_stack_close(stack);
    return status;
}

/* ---- what it says ---------------------------------------------------------------------------- */
static weir_status print_row(
    weir_buffer *out, const weir_expert_stack *s, int64_t n_entries, const char *note
)
{
    const double bytes = (double)s->head.expert_bytes, hits = weir_expert_stack_hits(s, n_entries),
                 missed = (1.0 - hits) * (double)s->n_uses / (double)s->n_passes;
    return weir_buffer_format(
        out, "%7" PRId64 "  %8.3f  %7.1f %%  %10.2f%s\n", n_entries,
        (double)n_entries * bytes / (1024.0 * 1024.0 * 1024.0), 100.0 * hits,
        missed * bytes / (1024.0 * 1024.0), note
    );
}

weir_status weir_expert_stack_print(weir_buffer *out, const weir_expert_stack *s, int64_t own)
{
    const int64_t n_total = s->head.n_total;
    WEIR_TRY(weir_buffer_format(
        out,
        "%" PRId64 " tokens, %" PRId64 " uses of experts, %" PRId64 " of %" PRId64
        " experts used; an expert has %.2f MiB\n\n"
        "experts  GiB       in memory  read per token, MiB\n",
        s->n_passes, s->n_uses, s->n_recent, n_total,
        (double)s->head.expert_bytes / (1024.0 * 1024.0)
    ));
    for (int i = 1; i <= ROWS; i++) {
        const int64_t n = n_total * i / ROWS, before = n_total * (i - 1) / ROWS;
        if (own > before && own < n) WEIR_TRY(print_row(out, s, own, "  memory.experts"));
        WEIR_TRY(print_row(out, s, n, own == n ? "  memory.experts" : ""));
    }
    return WEIR_OK;
}

weir_status weir_expert_stack_print_json(weir_buffer *out, const weir_expert_stack *s, int64_t own)
{
    WEIR_TRY(weir_buffer_format(
        out,
        "\"tokens\": %" PRId64 ", \"uses\": %" PRId64 ", \"experts\": %" PRId64
        ", \"expert_bytes\": %" PRId64,
        s->n_passes, s->n_uses, s->head.n_total, s->head.expert_bytes
    ));
    if (own > 0)
        WEIR_TRY(weir_buffer_format(
            out, ", \"in_memory\": {\"experts\": %" PRId64 ", \"hits\": %.9f}", own,
            weir_expert_stack_hits(s, own)
        ));
    WEIR_TRY(weir_buffer_text(out, ", \"budgets\": ["));
    for (int i = 1; i <= ROWS; i++) {
        const int64_t n = s->head.n_total * i / ROWS;
        WEIR_TRY(weir_buffer_format(
            out, "%s{\"experts\": %" PRId64 ", \"bytes\": %" PRId64 ", \"hits\": %.9f}",
            i > 1 ? ", " : "", n, n * s->head.expert_bytes, weir_expert_stack_hits(s, n)
        ));
    }
    return weir_buffer_text(out, "]");
}
