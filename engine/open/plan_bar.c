/* engine/open/plan_bar.c - the memory plan as a picture for terminals. */
#include <string.h>

#include "engine/open/plan.h"

/* What a bar shows, in its order; what is left of the limit is the last. */
enum { KINDS = 6 };
static const struct {
    char mark;
    const char *text;
} kinds[KINDS] = { { '#', "weights" },     { '=', "kv" },    { '~', "states" },
                   { '+', "activations" }, { '-', "other" }, { '.', "free" } };

typedef struct bar {
    const char *name;
    size_t cap, bytes[KINDS];
} bar;

static void fill_rest(bar *b, size_t total)
{
    size_t shown = 0;
    for (int i = 0; i < KINDS; i++) shown += b->bytes[i];
    b->bytes[KINDS - 2] = total - shown;
    b->bytes[KINDS - 1] = b->cap > total ? b->cap - total : 0;
}

static bar host_of(const weir_plan *plan)
{
    const bool is_near = !plan->has_device;
    bar b = { .name = "host",
              .cap = plan->cap,
              .bytes = { is_near ? plan->weights : 0,
                         (is_near ? plan->kv : 0) + plan->kv_windows + plan->kv_host,
                         (is_near ? plan->recurrent : 0) + plan->snapshots, plan->activations } };
    fill_rest(&b, weir_plan_total(plan));
    return b;
}

static bar device_of(const weir_plan *plan)
{
    bar b = { .name = "device",
              .cap = plan->device_cap,
              .bytes = { plan->weights, plan->kv, plan->recurrent, plan->near_activations } };
    fill_rest(&b, weir_plan_device_total(plan));
    return b;
}

static weir_status print(weir_buffer *out, const bar *b, int cells)
{
    size_t sum = 0;
    int at = 0;
    WEIR_TRY(weir_buffer_format(out, "  %-7s[", b->name));
    for (int i = 0; i < KINDS; i++) {
        sum += b->bytes[i];
        const double part = sum < b->cap ? (double)sum / (double)b->cap : 1.0;
        const int end = (int)(part * cells + 0.5);
        for (; at < end; at++) WEIR_TRY(weir_buffer_add(out, &kinds[i].mark, 1));
    }
    return weir_buffer_text(out, "]\n");
}

weir_status weir_plan_print_bar(const weir_plan *plan, int columns, weir_buffer *out)
{
    const int width = columns < 40 ? 40 : columns > 120 ? 120 : columns;
    const int cells = width - 11; /* indent, name, brackets */
    const bar host = host_of(plan), device = device_of(plan);
    if (host.cap > 0) WEIR_TRY(print(out, &host, cells));
    if (plan->has_device && device.cap > 0) WEIR_TRY(print(out, &device, cells));
    size_t line = 0;
    for (int i = 0; i < KINDS; i++) {
        if (host.bytes[i] == 0 && (!plan->has_device || device.bytes[i] == 0)) continue;
        const size_t length = strlen(kinds[i].text) + 4;
        if (line > 0 && line + length > (size_t)width) {
            WEIR_TRY(weir_buffer_text(out, "\n"));
            line = 0;
        }
        WEIR_TRY(weir_buffer_format(out, "  %c %s", kinds[i].mark, kinds[i].text));
        line += length;
    }
    return weir_buffer_text(out, "\n");
}
