/* tools/convert/run_convert.c - weir convert. */
#include <stdio.h>

#include "engine/cli/open.h"
#include "tools/convert/convert.h"

static void report(const weir_convert_result *r, const char *out)
{
    const double mib = 1024.0 * 1024.0;
    (void)printf(
        "%s: %zu tensors, %.1f MiB (%.2f bits per weight; %.1f MiB in the checkpoint)\n", out,
        r->n_tensors, (double)r->bytes / mib, 8.0 * (double)r->bytes / (double)r->n_elements,
        (double)r->source_bytes / mib
    );
    if (r->importance.n_found > 0)
        (void)printf(
            "%zu of %zu quantised matrices have an importance\n", r->importance.n_found,
            r->importance.n_quantised
        );
    if (r->importance.n_missing > 0)
        (void)fprintf(
            stderr,
            "weir: warning: %zu matrices are in types of few bits, and the importance matrix has "
            "nothing about them: a longer text may reach them\n",
            r->importance.n_missing
        );
    if (!r->has_tokenizer)
        (void)fprintf(
            stderr, "weir: warning: the checkpoint has no tokenizer that GGUF can hold; the file "
                    "takes token ids only\n"
        );
    if (r->differing[0] != '\0')
        (void)fprintf(
            stderr,
            "weir: warning: text next to the added token '%s' has other ids than by "
            "tokenizer.json, for instance without a space in front\n",
            r->differing
        );
    if (r->has_charsmap)
        (void)fprintf(
            stderr,
            "weir: warning: the file applies its precompiled_charsmap as sentencepiece does, "
            "tokenizer.json by grapheme clusters: some texts with several marks on a letter, or "
            "CRLF, have other ids\n"
        );
    if (r->n_requantised > 0)
        (void)fprintf(
            stderr,
            "weir: warning: %zu tensors were quantised already and are quantised again: a "
            "conversion from the original loses less\n",
            r->n_requantised
        );
    if (r->n_left_out > 0)
        (void)fprintf(
            stderr,
            "weir: warning: %zu tensors are left out, which the architecture does not "
            "use; the first is %s\n",
            r->n_left_out, r->left_out
        );
}

int weir_run_convert(const weir_arguments *arguments)
{
    const weir_config *const config = &arguments->config;
    const char *const type = weir_argument(arguments, "type");
    weir_error error = { 0 };
    weir_convert_result result;
    weir_convert_options options = {
        .model = config->model.path,
        .arch_dir = config->model.arch_dir[0] != '\0' ? config->model.arch_dir : NULL,
        .out = weir_argument(arguments, "out"),
        .no_tokenizer = weir_argument_given(arguments, "no-tokenizer"),
        .imatrix = weir_argument(arguments, "imatrix"),
        .n_threads = (int32_t)config->kernels.threads,
    };
    weir_status status = WEIR_OK;
    if (config->model.adapter[0] != '\0' || config->model.arch[0] != '\0')
        status = weir_error_set(
            &error, WEIR_ECONFIG,
            "model.adapter and model.arch are not for `weir convert`: the file is that of the "
            "checkpoint alone"
        );
    if (status == WEIR_OK)
        status = weir_mix_find(
            &options.mix, type != NULL ? type : "f16", weir_argument_given(arguments, "pure"),
            &error
        );
    weir_stop_on_interrupt();
    if (status == WEIR_OK) status = weir_convert(&result, &options, &error);
    if (status == WEIR_OK) report(&result, options.out);
    return weir_end(status, &error);
}
