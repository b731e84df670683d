/* engine/text/tokenizer_json_normalizer.c - the section `normalizer` of tokenizer.json. An unknown
 * component is an error that names it: skipping one would silently change ids. */
#include <string.h>

#include "engine/base/memory.h"
#include "engine/text/tokenizer_json.h"

static bool is(const char *type, const char *name) { return strcmp(type, name) == 0; }

static bool set_text(char *out, size_t *n, const json_t *value)
{
    *n = json_string_length(value);
    if (!json_is_string(value) || *n >= WEIR_NORMALIZER_TEXT) return false;
    memcpy(out, json_string_value(value), *n);
    return true;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *const found = c == '\0' ? NULL : strchr(digits, c);
    return found == NULL ? -1 : (int)(found - digits);
}

static weir_status load_charsmap(weir_charsmap *map, const json_t *text, weir_error *error)
{
    const size_t length = json_string_length(text);
    if (!json_is_string(text) || length % 4 != 0)
        return weir_error_set(error, WEIR_EFORMAT, "precompiled_charsmap is not in base64");
    unsigned char *const bytes = weir_memory_take(length / 4 * 3 + 1);
    if (bytes == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a charsmap");
    const char *const from = json_string_value(text);
    size_t n = 0, padding = 0;
    unsigned group = 0;
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < length && status == WEIR_OK; i++) {
        const bool pads = from[i] == '=' && i + 2 >= length;
        const int digit = pads ? 0 : base64_digit(from[i]);
        padding += pads;
        if (digit < 0 || (padding > 0 && !pads))
            status = weir_error_set(
                error, WEIR_EFORMAT, "precompiled_charsmap is not in base64 at byte %zu", i
            );
        group = group << 6 | (unsigned)digit;
        if (i % 4 != 3) continue;
        for (int shift = 16; shift >= 0; shift -= 8) bytes[n++] = (unsigned char)(group >> shift);
        group = 0;
    }
    if (status == WEIR_OK) status = weir_charsmap_open(map, bytes, n - padding, error);
    weir_memory_give(bytes);
    return status == WEIR_OK ? WEIR_OK : weir_error_prefix(error, status, "Precompiled");
}

static bool read_replace(weir_normalizer_step *step, const json_t *component)
{
    const json_t *const pattern = json_object_get(component, "pattern"), *const regex =
                                                                             json_object_get(
                                                                                 pattern, "Regex"
                                                                             );
    step->kind = WEIR_NORMALIZER_REPLACE;
    if (!set_text(step->to, &step->n_to, json_object_get(component, "content"))) return false;
    if (regex == NULL)
        return set_text(step->from, &step->n_from, json_object_get(pattern, "String")) &&
               step->n_from > 0;
    step->kind = WEIR_NORMALIZER_SQUEEZE;
    return json_is_string(regex) && is(json_string_value(regex), " {2,}");
}

static bool read_strip(weir_normalizer_step *step, const json_t *component)
{
    step->strip_left = json_is_true(json_object_get(component, "strip_left"));
    step->strip_right = json_is_true(json_object_get(component, "strip_right"));
    return true;
}

static bool read_prepend(weir_normalizer_step *step, const json_t *component)
{
    return set_text(step->to, &step->n_to, json_object_get(component, "prepend"));
}

/* Of `type`; NULL: unknown. `read` sets what the component says besides, and is false where that is
 * not supported. */
typedef struct component_kind {
    const char *type;
    weir_normalizer_step step;
    bool (*read)(weir_normalizer_step *step, const json_t *component);
} component_kind;

static const component_kind *find_kind(const char *type)
{
    static const component_kind kinds[] = {
        { "NFC", { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFC }, NULL },
        { "NFD", { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFD }, NULL },
        { "NFKC", { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFKC }, NULL },
        { "NFKD", { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFKD }, NULL },
        { "Nmt", { .kind = WEIR_NORMALIZER_NMT }, NULL },
        { "Lowercase", { .kind = WEIR_NORMALIZER_LOWERCASE }, NULL },
        { "StripAccents", { .kind = WEIR_NORMALIZER_STRIP_ACCENTS }, NULL },
        { "Strip", { .kind = WEIR_NORMALIZER_STRIP }, read_strip },
        { "Prepend", { .kind = WEIR_NORMALIZER_PREPEND }, read_prepend },
        { "Replace", { .kind = WEIR_NORMALIZER_REPLACE }, read_replace },
        { "Precompiled", { .kind = WEIR_NORMALIZER_CHARSMAP }, NULL },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (is(kinds[i].type, type)) return &kinds[i];
    return NULL;
}

static weir_status load_component(
    weir_normalizer *normalizer, const char *type, const json_t *component, weir_error *error
)
{
    const component_kind *const kind = find_kind(type);
    if (kind == NULL)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED, "normalizer: the component '%.64s' is not supported", type
        );
    weir_normalizer_step step = kind->step;
    const bool maps = step.kind == WEIR_NORMALIZER_CHARSMAP;
    if ((maps && normalizer->charsmap.n_units > 0) ||
        (kind->read != NULL && !kind->read(&step, component)))
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "normalizer: the component '%s' is not supported with these options", type
        );
    if (maps)
        WEIR_TRY(load_charsmap(
            &normalizer->charsmap, json_object_get(component, "precompiled_charsmap"), error
        ));
    return weir_normalizer_add(normalizer, &step)
               ? WEIR_OK
               : weir_error_set(
                     error, WEIR_EUNSUPPORTED, "normalizer: more than %d steps",
                     WEIR_NORMALIZER_STEPS
                 );
}

weir_status weir_json_load_normalizer(
    weir_normalizer *normalizer, const json_t *component, weir_error *error
)
{
    const char *const name = json_string_value(json_object_get(component, "type"));
    if (name == NULL || !is(name, "Sequence"))
        return load_component(normalizer, name == NULL ? "" : name, component, error);
    const json_t *const list = json_object_get(component, "normalizers");
    if (!json_is_array(list))
        return weir_error_set(error, WEIR_EFORMAT, "normalizer.normalizers is not an array");
    size_t i;
    const json_t *part;
    json_array_foreach(list, i, part) WEIR_TRY(weir_json_load_normalizer(normalizer, part, error)
    ); /* NOLINT(misc-no-recursion) */
    return WEIR_OK;
}
