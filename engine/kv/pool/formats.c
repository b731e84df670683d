#include "engine/kv/pool/formats.h"

#include <inttypes.h>
#include <stdio.h>

static bool parse_one(weir_kv_format *out, const char *text, size_t length)
{
    char name[16];
    if (length == 0 || length >= sizeof name) return false;
    memcpy(name, text, length);
    name[length] = '\0';
    *out = weir_kv_format_named(name);
    return *out != WEIR_KV_FORMAT_COUNT;
}

bool weir_kv_pair_parse(weir_kv_pair *out, const char *text)
{
    const char *const slash = strchr(text, '/');
    const char *const v = slash != NULL ? slash + 1 : text;
    return parse_one(&out->k, text, slash != NULL ? (size_t)(slash - text) : strlen(text)) &&
           parse_one(&out->v, v, strlen(v));
}

void weir_kv_pair_print(char out[WEIR_KV_PAIR_TEXT], weir_kv_pair pair)
{
    (void)snprintf(
        out, WEIR_KV_PAIR_TEXT, "%s%s%s", weir_kv_format_name(pair.k), pair.k == pair.v ? "" : "/",
        pair.k == pair.v ? "" : weir_kv_format_name(pair.v)
    );
}

bool weir_kv_pair_is_same(weir_kv_pair a, weir_kv_pair b) { return a.k == b.k && a.v == b.v; }

/* Lists the formats that rows of this width can have: "f32, f16, ...". */
static void list_fitting(char *out, size_t size, weir_kv_side side, int64_t dim)
{
    size_t at = 0;
    out[0] = '\0';
    for (int f = 0; f < WEIR_KV_FORMAT_COUNT; f++) {
        if (weir_kv_format_reject((weir_kv_format)f, side, dim) != NULL) continue;
        const int n = snprintf(
            out + at, size - at, "%s%s", at > 0 ? ", " : "", weir_kv_format_name((weir_kv_format)f)
        );
        if (n < 0 || (size_t)n >= size - at) return;
        at += (size_t)n;
    }
}

static weir_status check_side(
    weir_kv_format format, weir_kv_side side, int64_t dim, const char *key, weir_error *error
)
{
    const char *const why = weir_kv_format_reject(format, side, dim);
    if (why == NULL) return WEIR_OK;
    char fitting[256];
    list_fitting(fitting, sizeof fitting, side, dim);
    return weir_error_set(
        error, WEIR_ECONFIG,
        "%s: %s for %s %s, this model's heads are %" PRId64 " wide; they fit %s", key,
        weir_kv_format_name(format), side == WEIR_KV_K ? "keys" : "values", why, dim,
        fitting[0] != '\0' ? fitting : "no format"
    );
}

/* Values that alias keys have no format of their own. */
static weir_status check_alias(
    weir_kv_pair pair, const weir_kv_geometry *g, const char *key, weir_error *error
)
{
    const weir_kv_sinks none = { .n_pages = 0 };
    const char *why = weir_kv_alias_reject(pair.k, none, g->key_dim, g->value_dim);
    if (why == NULL && pair.k != pair.v) why = "is not the format of keys";
    if (why == NULL) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG, "%s: %s for values %s; this model's values are parts of its keys", key,
        weir_kv_format_name(pair.v), why
    );
}

weir_status weir_kv_pair_check(
    weir_kv_pair pair, const weir_kv_geometry *layer, const char *key, weir_error *error
)
{
    WEIR_TRY(check_side(pair.k, WEIR_KV_K, layer->key_dim, key, error));
    return layer->value_aliases_key ? check_alias(pair, layer, key, error)
                                    : check_side(pair.v, WEIR_KV_V, layer->value_dim, key, error);
}

weir_kv_pair weir_kv_choice_of(const weir_kv_choice *choice, int64_t i, int64_t n_layers)
{
    return i < choice->n_wide || i >= n_layers - choice->n_wide ? choice->wide : choice->rest;
}

void weir_kv_choice_fill(weir_kv_pair *out, int64_t n_layers, const weir_kv_choice *choice)
{
    for (int64_t i = 0; i < n_layers; i++) out[i] = weir_kv_choice_of(choice, i, n_layers);
}

bool weir_kv_any_lossy(const weir_kv_pair *formats, int64_t n_layers)
{
    for (int64_t i = 0; i < n_layers; i++)
        if (weir_kv_is_lossy(formats[i].k) || weir_kv_is_lossy(formats[i].v)) return true;
    return false;
}

weir_kv_sinks weir_kv_choice_sinks(const weir_kv_choice *choice, int64_t n_layers)
{
    const bool alike =
        2 * choice->n_wide >= n_layers || weir_kv_pair_is_same(choice->rest, choice->wide);
    return (weir_kv_sinks){
        .pair = choice->wide,
        .n_pages =
            alike ? 0 : (int32_t)((choice->n_wide_tokens + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS)
    };
}

void weir_kv_choice_print(char out[WEIR_KV_FORMATS_TEXT], const weir_kv_choice *choice)
{
    char rest[WEIR_KV_PAIR_TEXT], wide[WEIR_KV_PAIR_TEXT], layers[40] = "", tokens[40] = "";
    const int64_t n_tokens =
        (choice->n_wide_tokens + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS * WEIR_PAGE_TOKENS;
    const bool alike = weir_kv_pair_is_same(choice->rest, choice->wide),
               some = !alike && choice->n_wide > 0, first = !alike && n_tokens > 0;
    weir_kv_pair_print(rest, choice->rest);
    weir_kv_pair_print(wide, choice->wide);
    if (some && choice->n_wide == 1)
        (void)snprintf(layers, sizeof layers, "the first and the last layer");
    if (some && choice->n_wide > 1)
        (void
        )snprintf(layers, sizeof layers, "the first and last %" PRId64 " layers", choice->n_wide);
    if (first) (void)snprintf(tokens, sizeof tokens, "the first %" PRId64 " tokens", n_tokens);
    (void)snprintf(
        out, WEIR_KV_FORMATS_TEXT, "%s%s%s%s%s%s%s", rest, some || first ? ", " : "",
        some || first ? wide : "", some || first ? " in " : "", layers,
        some && first ? " and " : "", tokens
    );
}

void weir_kv_choice_print_layers(char out[WEIR_KV_FORMATS_TEXT], const weir_kv_choice *choice)
{
    weir_kv_choice layers = *choice;
    layers.n_wide_tokens = 0;
    weir_kv_choice_print(out, &layers);
}
