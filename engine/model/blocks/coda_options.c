#include "engine/model/blocks/coda_options.h"

#include <inttypes.h>

/* clang-format off */
#define INT(name, least, most, value) WEIR_INT_OPTION(TYPE, AT(name), #name, least, most, value),
#define REAL(name, least, most, value) WEIR_REAL_OPTION(TYPE, AT(name), #name, least, most, value),
#define FLAG(name, value) WEIR_FLAG_OPTION(TYPE, AT(name), #name, value),
#define WORD(name, words, value) WEIR_WORD_OPTION(TYPE, AT(name), #name, words, value),

const weir_block_option weir_differential_option_table[] = {
#define TYPE weir_differential_options
#define AT(name) name
    WEIR_HEADS_OPTIONS(TYPE, heads),
    WEIR_DIFFERENTIAL_OPTIONS(INT, REAL, FLAG, WORD)
    { 0 }
#undef TYPE
#undef AT
};

const weir_block_option weir_coda_option_table[] = {
#define TYPE weir_coda_options
    WEIR_HEADS_OPTIONS(TYPE, base.heads),
#define AT(name) base.name
    WEIR_DIFFERENTIAL_OPTIONS(INT, REAL, FLAG, WORD)
#undef AT
#define AT(name) name
    WEIR_MEMORY_OPTIONS(INT, REAL, FLAG, WORD)
    { 0 }
};
/* clang-format on */

static weir_status check_least(int64_t least, int64_t all, const char *name, weir_error *error)
{
    if (least <= all) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG, "least_%s = %" PRId64 ": there are only landmarks_%s = %" PRId64, name,
        least, name, all
    );
}

weir_status weir_coda_options_check(const void *options, weir_error *error)
{
    WEIR_TRY(weir_heads_check(options, error));
    if (((const weir_heads_options *)options)->no_rope)
        return weir_error_set(error, WEIR_ECONFIG, "no_rope: keys of CoDA are rotated");
    const weir_coda_options *const o = options;
    const char *const missing = o->window == 0             ? "window"
                                : o->landmarks_exact < 0   ? "landmarks_exact"
                                : o->landmarks_summary < 0 ? "landmarks_summary"
                                                           : NULL;
    if (missing != NULL)
        return weir_error_set(
            error, WEIR_ECONFIG, "%s is missing: the memory size of a layer has no default", missing
        );
    WEIR_TRY(check_least(o->least_exact, o->landmarks_exact, "exact", error));
    return check_least(o->least_summary, o->landmarks_summary, "summary", error);
}

void weir_coda_options_complete(void *options, weir_kv_format format)
{
    weir_coda_options *const o = options;
    o->base.is_on = o->differential;
    o->format = format;
}

/* Digests in files depend on the order. */
void weir_coda_options_identify(const void *options, const weir_digest *digest)
{
    const weir_coda_options *const o = options;
    const weir_heads_options *const h = &o->base.heads;
    const int64_t norm = h->qk_norm + 2 * h->qk_norm_over + 4 * h->qk_norm_optional;
    const int64_t first[] = { h->rope, norm, o->format };
    const weir_block_option heads[] = { WEIR_HEADS_OPTIONS(weir_coda_options, base.heads) };
    digest->add(digest->user, first, sizeof first);
    for (const weir_block_option *option = weir_coda_option_table + sizeof heads / sizeof *heads;
         option->name != NULL; option++) {
        const double value = weir_block_option_value(options, option);
        digest->add(digest->user, &value, sizeof value);
    }
}
