/* tools/report/text.c - the report as text: the assumptions, the tables of each shape, the
 * comparison of models. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/report/text_internal.h"

const char *weir_report_size(char out[WEIR_REPORT_CELL], double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    size_t unit = 0;
    if (bytes < 0) {
        (void)snprintf(out, WEIR_REPORT_CELL, "-");
        return out;
    }
    for (; bytes >= 1023.995 && unit + 1 < sizeof units / sizeof units[0]; unit++) bytes /= 1024;
    (void)snprintf(out, WEIR_REPORT_CELL, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
    return out;
}

const char *weir_report_count(char out[WEIR_REPORT_CELL], int64_t n)
{
    const bool millions = n >= 1 << 20 && n % (1 << 20) == 0,
               thousands = n >= 1024 && n % 1024 == 0;
    (void)snprintf(
        out, WEIR_REPORT_CELL, "%" PRId64 "%s",
        millions    ? n >> 20
        : thousands ? n >> 10
                    : n,
        millions    ? "M"
        : thousands ? "K"
                    : ""
    );
    return out;
}

static weir_status assumptions_text(const weir_report_assumptions *a, weir_buffer *out)
{
    char reserve[WEIR_REPORT_CELL];
    if (a->narrow_ffn)
        return weir_buffer_text(
            out, "Assumptions of the seed, kept to reproduce its table. They are wrong where they "
                 "differ from the engine's:\n"
                 "  parameters      L (4 d^2 + 2 d floor(4 d / 3) + 2 d) + 32000 d: an FFN of two "
                 "narrow matrices\n"
                 "  activations     twice the weights\n"
                 "  K and V         of every query head: shared heads and latent rows are ignored\n"
                 "  int8            one f16 scale per channel and sequence, no minimum\n"
                 "  H100            1970 TFLOPS, the figure with sparsity (989 dense)\n"
        );
    return weir_buffer_format(
        out,
        "Assumptions\n"
        "  weights         %s, or as the model file has them\n"
        "  activations     one step of %" PRId64 " prompt tokens and a token of each sequence\n"
        "  K and V         pages of %" PRId64
        " tokens per KV head; MLA: one latent row per token and layer\n"
        "  GPUs            memory as the driver reports it, %s of it set aside; peaks are dense, "
        "summed in f32\n"
        "  times           bounds: every weight, KV row and state is moved once per step, and "
        "nothing else\n",
        a->weight_format, a->chunk, a->page_tokens, weir_report_size(reserve, (double)a->reserve)
    );
}

weir_status weir_report_text(const weir_report *report, weir_buffer *out)
{
    WEIR_TRY(assumptions_text(report->assumptions, out));
    for (size_t i = 0; i < report->n_shapes; i++)
        WEIR_TRY(weir_report_shape_tables(report, &report->shapes[i], out));
    return report->n_known > 0 ? weir_report_model_table(report, out) : WEIR_OK;
}
