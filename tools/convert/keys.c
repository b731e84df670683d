#include "tools/convert/keys.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/model/rope.h"
#include "engine/open/pooling.h"
#include "engine/open/ranking.h"

enum { KEY = 512 };

typedef struct keys {
    weir_gguf_writer *writer;
    const weir_written_model *written;
    const weir_shape *shape;
    /* [n_layers] names of blocks, and what they were before [layers] last replaced some. */
    const char **blocks, **layers;
    weir_error *error;
} keys;

static const char *full(char out[KEY], const keys *k, const char *key)
{
    (void)snprintf(out, KEY, "%s.%s", k->written->name, key);
    return out;
}

static const weir_toml_node *table_of(const keys *k, const char *name)
{
    return weir_toml_get(k->written->arch->root, name);
}

/* KEY of KEY or [KEYS]. */
static const char *first_key(const weir_toml_node *node)
{
    const char *const text = weir_toml_string(node, NULL);
    return text != NULL ? text : weir_toml_string(weir_toml_at(node, 0, NULL), NULL);
}

/* ---- numbers --------------------------------------------------------------------------------- */
/* The shape that a key of GGUF is the source of; NULL: none. */
static const char *shape_of_key(const keys *k, const char *key)
{
    const weir_toml_node *const table = table_of(k, "shape");
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *name;
        const char *const own = first_key(weir_toml_get(weir_toml_at(table, i, &name), "gguf"));
        if (own != NULL && strcmp(own, key) == 0) return name;
    }
    return NULL;
}

/* The value of the shape that a key says; 0: it is no shape's key, so no file has it. */
static double value_of_key(const keys *k, const weir_toml_node *node)
{
    const char *const key = first_key(node), *const name =
                                                 key != NULL ? shape_of_key(k, key) : NULL;
    double value = 0.0;
    bool is_integer;
    if (name != NULL) (void)weir_shape_number(k->shape, name, &value, &is_integer);
    return value;
}

/* What the key of a shape has to say, so that the reader gets `value`. */
static double inverse(const keys *k, const weir_toml_node *source, double value)
{
    const char *const times = weir_toml_string(weir_toml_get(source, "gguf_times"), NULL);
    double out = value, power, factor;
    bool is_integer;
    if (weir_toml_float(weir_toml_get(source, "power"), &power)) out = pow(out, 1.0 / power);
    if (times != NULL && weir_shape_number(k->shape, times, &factor, &is_integer) && factor > 0.0)
        out /= factor;
    if (weir_toml_get(source, "gguf_over") != NULL)
        out *= value_of_key(k, weir_toml_get(source, "gguf_over"));
    return out + value_of_key(k, weir_toml_get(source, "gguf_minus"));
}

static weir_status put_number(const keys *k, const char *key, double value, bool is_integer)
{
    char name[KEY];
    if (!is_integer) {
        weir_gguf_put_f32(k->writer, full(name, k, key), (float)value);
        return WEIR_OK;
    }
    const double whole = nearbyint(value);
    if (!(fabs(value - whole) < 1e-6) || whole < 0.0 || whole > UINT32_MAX)
        return weir_error_set(
            k->error, WEIR_EUNSUPPORTED, "%s would be %g, which is no integer of GGUF", key, value
        );
    weir_gguf_put_u32(k->writer, full(name, k, key), (uint32_t)whole);
    return WEIR_OK;
}

/* The rule of [layers] mask with this key; NULL: there is none. */
static const weir_toml_node *mask_of_key(const keys *k, const char *key)
{
    const weir_toml_node *const mask = weir_toml_get(table_of(k, "layers"), "mask");
    const bool is_list = mask != NULL && weir_toml_type_of(mask) == WEIR_TOML_ARRAY;
    for (size_t i = 0; i < (is_list ? weir_toml_size(mask) : mask != NULL); i++) {
        const weir_toml_node *const rule = is_list ? weir_toml_at(mask, i, NULL) : mask;
        const char *const own = weir_toml_string(weir_toml_get(rule, "gguf"), NULL);
        if (own != NULL && strcmp(own, key) == 0) return rule;
    }
    return NULL;
}

/* ---- [shape] --------------------------------------------------------------------------------- */
/* A number that layers of other blocks do not have: a list with 0 for them. */
static void put_masked(const keys *k, const char *key, const weir_toml_node *rule, double value)
{
    const char *const set = weir_toml_string(weir_toml_get(rule, "set"), NULL);
    char name[KEY];
    weir_gguf_begin_i32s(k->writer, full(name, k, key), (size_t)k->shape->n_layers);
    for (int64_t i = 0; i < k->shape->n_layers; i++)
        weir_gguf_add_i32(k->writer, strcmp(k->layers[i], set) == 0 ? (int32_t)value : 0);
}

/* True if the shape is that of layers with this block. */
static bool is_of_block(const weir_toml_node *names, const char *block)
{
    const char *const one = weir_toml_string(names, NULL);
    bool is_listed = one != NULL && strcmp(one, block) == 0;
    for (size_t i = 0; !is_listed && i < weir_toml_size(names); i++)
        is_listed = is_of_block(weir_toml_at(names, i, NULL), block);
    return is_listed;
}

/* What the key says of a layer: the shape with this key and the layer's block. */
static double value_in_layer(const keys *k, const char *key, const char *block)
{
    const weir_toml_node *const table = table_of(k, "shape");
    double value = 0.0;
    bool is_integer;
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *name;
        const weir_toml_node *const source = weir_toml_at(table, i, &name), *const names =
                                                                                weir_toml_get(
                                                                                    source, "layers"
                                                                                );
        const char *const own = first_key(weir_toml_get(source, "gguf"));
        if (own == NULL || strcmp(own, key) != 0 || names == NULL || !is_of_block(names, block))
            continue;
        (void)weir_shape_number(k->shape, name, &value, &is_integer);
        return inverse(k, source, value);
    }
    return value;
}

/* Shapes that share a key, by layer: a number if all layers have the same, else a list. */
static weir_status put_by_layer(const keys *k, const char *key)
{
    const int64_t n = k->shape->n_layers;
    const double first = value_in_layer(k, key, k->blocks[0]);
    bool is_same = true;
    char name[KEY];
    for (int64_t i = 1; is_same && i < n; i++)
        is_same = fabs(value_in_layer(k, key, k->blocks[i]) - first) < 0.5; /* integers */
    if (is_same) return put_number(k, key, first, true);
    weir_gguf_begin_i32s(k->writer, full(name, k, key), (size_t)n);
    for (int64_t i = 0; i < n; i++)
        weir_gguf_add_i32(k->writer, (int32_t)value_in_layer(k, key, k->blocks[i]));
    return WEIR_OK;
}

/* True if [gguf] gives the key another value. */
static bool is_overridden(const keys *k, const char *key)
{
    return weir_toml_get(table_of(k, "gguf"), key) != NULL;
}

static weir_status put_shape(const keys *k, const char *name, const weir_toml_node *source)
{
    const char *const key = first_key(weir_toml_get(source, "gguf"));
    const weir_toml_node *const rule = key != NULL ? mask_of_key(k, key) : NULL;
    double value, otherwise;
    bool is_integer;
    if (key == NULL || is_overridden(k, key) ||
        !weir_shape_number(k->shape, name, &value, &is_integer))
        return WEIR_OK;
    if (strcmp(shape_of_key(k, key), name) != 0) return WEIR_OK; /* another shape has it */
    /* 0 is "none", which a file without the key says, too. */
    if (!(value > 0.0) && !(value < 0.0) &&
        weir_toml_float(weir_toml_get(source, "default"), &otherwise) && !(otherwise > 0.0))
        return WEIR_OK;
    if (weir_toml_get(source, "layers") != NULL) return put_by_layer(k, key);
    if (rule != NULL) {
        put_masked(k, key, rule, inverse(k, source, value));
        return WEIR_OK;
    }
    return put_number(k, key, inverse(k, source, value), is_integer);
}

static weir_status put_shapes(const keys *k)
{
    const weir_toml_node *const table = table_of(k, "shape");
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *name;
        const weir_toml_node *const source = weir_toml_at(table, i, &name);
        WEIR_TRY(put_shape(k, name, source));
    }
    return put_number(k, "vocab_size", (double)k->shape->n_vocab, true);
}

/* ---- [layers] -------------------------------------------------------------------------------- */
static bool has_key(const weir_toml_node *rule) { return weir_toml_get(rule, "gguf") != NULL; }

/* Masks whose keys are not numbers of [shape]: lists of booleans. */
static bool put_masks(const keys *k)
{
    const weir_toml_node *const mask = weir_toml_get(table_of(k, "layers"), "mask");
    const bool is_list = mask != NULL && weir_toml_type_of(mask) == WEIR_TOML_ARRAY;
    bool is_put = false;
    for (size_t i = 0; i < (is_list ? weir_toml_size(mask) : mask != NULL); i++) {
        const weir_toml_node *const rule = is_list ? weir_toml_at(mask, i, NULL) : mask;
        const char *const key = weir_toml_string(weir_toml_get(rule, "gguf"), NULL);
        const char *const set = weir_toml_string(weir_toml_get(rule, "set"), NULL);
        char name[KEY];
        if (key == NULL) continue;
        is_put = true;
        if (shape_of_key(k, key) != NULL) continue;
        weir_gguf_begin_bools(k->writer, full(name, k, key), (size_t)k->shape->n_layers);
        for (int64_t j = 0; j < k->shape->n_layers; j++)
            weir_gguf_add_bool(k->writer, strcmp(k->layers[j], set) == 0);
    }
    return is_put;
}

/* The interval of the layers that are `last`; 0: there is none. */
static int64_t interval_of(const keys *k, const weir_toml_node *rule)
{
    const char *const last = weir_toml_string(weir_toml_get(rule, "last"), NULL);
    for (int64_t n = 1; n <= k->shape->n_layers + 1; n++) {
        bool fits = true;
        for (int64_t i = 0; fits && i < k->shape->n_layers; i++)
            fits = (strcmp(k->layers[i], last) == 0) == ((i + 1) % n == 0);
        if (fits) return n;
    }
    return 0;
}

/* Where no key says it, the layers must be those of the pattern. */
static weir_status check_pattern(const keys *k)
{
    const weir_toml_node *const pattern = weir_toml_get(table_of(k, "layers"), "pattern");
    const size_t n = weir_toml_size(pattern);
    for (int64_t i = 0; i < k->shape->n_layers; i++) {
        const char *const name =
            n > 0 ? weir_toml_string(weir_toml_at(pattern, (size_t)i % n, NULL), NULL) : NULL;
        if (name == NULL || strcmp(name, k->layers[i]) != 0)
            return weir_error_set(
                k->error, WEIR_EUNSUPPORTED,
                "layer %" PRId64 " is \"%s\", where GGUF files of architecture %s have \"%s\" and "
                "no key to say otherwise",
                i, k->layers[i], k->written->name, name != NULL ? name : "none"
            );
    }
    return WEIR_OK;
}

/* The number of last layers that have other blocks. */
static weir_status put_last(const keys *k)
{
    const char *const key =
        weir_toml_string(weir_toml_get(weir_toml_get(table_of(k, "layers"), "last"), "gguf"), NULL);
    int64_t n = 0;
    for (int64_t i = 0; i < k->shape->n_layers; i++) n += strcmp(k->blocks[i], k->layers[i]) != 0;
    return key != NULL ? put_number(k, key, (double)n, true) : WEIR_OK;
}

static weir_status put_layers(const keys *k)
{
    const weir_toml_node *const layers = table_of(k, "layers"), *const rule = weir_toml_get(
                                                                    layers, "interval"
                                                                );
    if (put_masks(k)) return WEIR_OK;
    const int64_t n = rule != NULL && has_key(rule) ? interval_of(k, rule) : 0;
    if (n > 0)
        return put_number(k, weir_toml_string(weir_toml_get(rule, "gguf"), NULL), (double)n, true);
    return check_pattern(k);
}

/* The number of layers that have the first kind of feed-forward block. */
static weir_status put_ffns(const keys *k)
{
    const weir_toml_node *const rule = weir_toml_get(table_of(k, "layers"), "ffn");
    const char *const key = weir_toml_string(weir_toml_get(rule, "gguf"), NULL),
                      *const first = weir_toml_string(weir_toml_get(rule, "first"), NULL);
    const int64_t n = k->shape->n_layers;
    int64_t n_first = 0;
    if (key == NULL) return WEIR_OK;
    const char **const names = weir_memory_take_zero((size_t)n, sizeof *names);
    if (names == NULL) return weir_error_set(k->error, WEIR_ENOMEM, "no memory for layers");
    const weir_status status = weir_arch_ffns(
        weir_model_arch_of(k->written->model), k->written->directory, n, names, k->error
    );
    while (status == WEIR_OK && n_first < n && strcmp(names[n_first], first) == 0) n_first++;
    weir_memory_give(names);
    return status == WEIR_OK ? put_number(k, key, (double)n_first, true) : status;
}

/* ---- [rope] ---------------------------------------------------------------------------------- */
static weir_status put_rope(const keys *k)
{
    const weir_toml_node *const scaling = weir_toml_get(table_of(k, "rope"), "scaling");
    const weir_toml_node *const group =
        scaling != NULL ? weir_arch_choice(scaling, WEIR_CONTAINER_GGUF) : NULL;
    const char *const path = group != NULL ? first_key(group) : NULL;
    weir_rope_settings s;
    char key[KEY], name[KEY];
    WEIR_TRY(weir_rope_settings_of(
        &s, k->shape, weir_model_arch_of(k->written->model), k->written->directory, k->error
    ));
    const bool is_yarn = strcmp(s.type, "yarn") == 0, is_long = strcmp(s.type, "longrope") == 0;
    /* The frequencies of llama3 are in a tensor. */
    if (!is_yarn && !is_long && strcmp(s.type, "linear") != 0) return WEIR_OK;
    if (path == NULL)
        return weir_error_set(
            k->error, WEIR_EUNSUPPORTED, "GGUF has no keys for RoPE's scaling (%s) of %s", s.type,
            k->written->name
        );
#define ROPE_KEY(text) ((void)snprintf(key, sizeof key, "%s." text, path), full(name, k, key))
    if (is_long) { /* its lists are tensors, which say the type */
        weir_gguf_put_f32(k->writer, ROPE_KEY("attn_factor"), (float)s.magnitude);
        (void)snprintf(key, sizeof key, "%s.original_context_length", path);
        return put_number(k, key, s.original, true);
    }
    weir_gguf_put_text(k->writer, ROPE_KEY("type"), s.type, strlen(s.type));
    weir_gguf_put_f32(k->writer, ROPE_KEY("factor"), (float)s.factor);
    if (!is_yarn) return WEIR_OK;
    (void)snprintf(key, sizeof key, "%s.original_context_length", path);
    WEIR_TRY(put_number(k, key, s.original, true));
    weir_gguf_put_f32(k->writer, ROPE_KEY("yarn_beta_fast"), (float)s.beta_fast);
    weir_gguf_put_f32(k->writer, ROPE_KEY("yarn_beta_slow"), (float)s.beta_slow);
    if (s.score_multiplier > 0.0)
        weir_gguf_put_f32(
            k->writer, ROPE_KEY("yarn_log_multiplier"), (float)(0.1 * s.score_multiplier)
        );
    if (s.magnitude > 0.0)
        weir_gguf_put_f32(k->writer, ROPE_KEY("yarn_attn_factor"), (float)s.magnitude);
#undef ROPE_KEY
    return WEIR_OK;
}

/* ---- [gguf] ---------------------------------------------------------------------------------- */
/* "SHAPE" or "SHAPE + SHAPE"; names are checked when the arch file is read. */
static weir_status put_sum(const keys *k, const char *key, const char *text)
{
    const char *const plus = strstr(text, " + ");
    char first[128];
    double sum = 0.0, more = 0.0;
    bool is_integer = true;
    (void)snprintf(first, sizeof first, "%.*s", (int)(plus != NULL ? plus - text : 127), text);
    (void)weir_shape_number(k->shape, first, &sum, &is_integer);
    if (plus != NULL) (void)weir_shape_number(k->shape, plus + 3, &more, &is_integer);
    const weir_toml_node *const rule = mask_of_key(k, key);
    if (rule == NULL) return put_number(k, key, sum + more, is_integer);
    put_masked(k, key, rule, sum + more);
    return WEIR_OK;
}

/* A list of config.json, filled up with zeros. */
static weir_status put_list(const keys *k, const char *key, const weir_toml_node *node)
{
    const weir_toml_node *const paths = weir_toml_get(node, "hf"), *const otherwise = weir_toml_get(
                                                                       node, "default"
                                                                   );
    const bool is_list = weir_toml_type_of(paths) == WEIR_TOML_ARRAY;
    int64_t length = 0;
    weir_meta list = { 0 };
    bool is_found = false;
    char name[KEY];
    (void)weir_toml_int(weir_toml_get(node, "length"), &length);
    for (size_t i = 0; !is_found && i < (is_list ? weir_toml_size(paths) : 1); i++) {
        const char *const path =
            weir_toml_string(is_list ? weir_toml_at(paths, i, NULL) : paths, NULL);
        is_found = path != NULL && weir_tensor_directory_meta(k->written->directory, path, &list) &&
                   list.type == WEIR_META_ARRAY;
    }
    if (!is_found && otherwise == NULL) return WEIR_OK;
    weir_gguf_begin_i32s(k->writer, full(name, k, key), (size_t)length);
    for (int64_t i = 0; i < length; i++) {
        weir_meta element;
        int64_t value = 0;
        if (!is_found)
            (void)weir_toml_int(weir_toml_at(otherwise, (size_t)i, NULL), &value);
        else if (weir_meta_at(&list, (size_t)i, &element) && element.type == WEIR_META_INT)
            value = element.integer;
        if (value < INT32_MIN || value > INT32_MAX)
            return weir_error_set(
                k->error, WEIR_EUNSUPPORTED, "%s would have %" PRId64 ", which is no i32 of GGUF",
                key, value
            );
        weir_gguf_add_i32(k->writer, (int32_t)value);
    }
    return WEIR_OK;
}

static weir_status put_more(const keys *k)
{
    const weir_toml_node *const table = table_of(k, "gguf");
    for (size_t i = 0; i < weir_toml_size(table); i++) {
        const char *key, *text;
        const weir_toml_node *const node = weir_toml_at(table, i, &key);
        char name[KEY];
        bool flag;
        int64_t integer;
        double number;
        if ((text = weir_toml_string(node, NULL)) != NULL)
            WEIR_TRY(put_sum(k, key, text));
        else if (weir_toml_bool(node, &flag))
            weir_gguf_put_bool(k->writer, full(name, k, key), flag);
        else if (weir_toml_int(node, &integer))
            WEIR_TRY(put_number(k, key, (double)integer, true));
        else if (weir_toml_float(node, &number))
            WEIR_TRY(put_number(k, key, number, false));
        else
            WEIR_TRY(put_list(k, key, node));
    }
    return WEIR_OK;
}

/* What sentence-transformers say of embeddings. */
static weir_status put_pooling(const keys *k)
{
    weir_pooling pooling;
    bool is_stated;
    char name[KEY];
    WEIR_TRY(weir_pooling_of(&pooling, &is_stated, k->written->directory, k->error));
    if (is_stated)
        weir_gguf_put_u32(k->writer, full(name, k, "pooling_type"), weir_pooling_number(pooling));
    return WEIR_OK;
}

/* The tokens of a model that ranks, and its default prompt. */
static weir_status put_ranking(const keys *k)
{
    weir_ranking ranking;
    WEIR_TRY(weir_ranking_of(&ranking, k->written->directory, k->shape->n_vocab, k->error));
    if (!ranking.is_used) return WEIR_OK;
    weir_gguf_put_u32(k->writer, WEIR_RANKING_YES, (uint32_t)ranking.yes);
    if (ranking.no >= 0) weir_gguf_put_u32(k->writer, WEIR_RANKING_NO, (uint32_t)ranking.no);
    if (ranking.prompt[0] != '\0')
        weir_gguf_put_text(k->writer, WEIR_RANKING_PROMPT, ranking.prompt, strlen(ranking.prompt));
    return WEIR_OK;
}

static weir_status put_all(const keys *k)
{
    WEIR_TRY(put_shapes(k));
    WEIR_TRY(put_layers(k));
    WEIR_TRY(put_last(k));
    WEIR_TRY(put_ffns(k));
    WEIR_TRY(put_rope(k));
    WEIR_TRY(put_pooling(k));
    WEIR_TRY(put_ranking(k));
    return put_more(k);
}

static weir_status name_layers(const keys *k)
{
    const weir_arch *const arch = weir_model_arch_of(k->written->model);
    const weir_tensor_directory *const directory = k->written->directory;
    const int64_t n = k->shape->n_layers;
    WEIR_TRY(weir_arch_layers(arch, directory, n, k->blocks, k->error));
    return weir_arch_layer_kinds(arch, directory, n, k->layers, k->error);
}

weir_status weir_put_keys(
    weir_gguf_writer *writer, const weir_written_model *written, weir_error *error
)
{
    const weir_shape *const shape = weir_model_shape(written->model);
    const char **const names = weir_memory_take_zero(2 * (size_t)shape->n_layers, sizeof *names);
    const keys k = { .writer = writer,
                     .written = written,
                     .shape = shape,
                     .blocks = names,
                     .layers = names + shape->n_layers,
                     .error = error };
    if (names == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for layers");
    weir_status status = name_layers(&k);
    if (status == WEIR_OK) status = put_all(&k);
    weir_memory_give(names);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_prefix(
                     error, status, "%s", weir_tensor_directory_path(written->directory)
                 );
}
