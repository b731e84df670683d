/* engine/model/arch_refuse.c - [[refuse]]: settings of a checkpoint that no block computes
 * (docs/guides/adding-an-architecture.md, 6). If they were ignored, the model would give fluent but
 * wrong answers. A missing setting counts as its usual value. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/buffer.h"
#include "engine/formats/printable.h"
#include "engine/model/arch_internal.h"

static bool equals(const weir_meta *meta, const weir_toml_node *allowed)
{
    const char *const text = weir_toml_string(allowed, NULL);
    bool flag;
    double number;
    switch (meta->type) {
    case WEIR_META_STRING:
        return text != NULL && strlen(text) == meta->length &&
               memcmp(text, meta->string, meta->length) == 0;
    case WEIR_META_BOOL: return weir_toml_bool(allowed, &flag) && meta->boolean == flag;
    case WEIR_META_INT: return weir_toml_float(allowed, &number) && (double)meta->integer == number;
    case WEIR_META_FLOAT: return weir_toml_float(allowed, &number) && meta->number == number;
    case WEIR_META_ARRAY: break;
    }
    return false;
}

static bool is_allowed(const weir_meta *meta, const weir_toml_node *unless)
{
    if (weir_toml_type_of(unless) != WEIR_TOML_ARRAY) return equals(meta, unless);
    for (size_t i = 0; i < weir_toml_size(unless); i++) {
        if (equals(meta, weir_toml_at(unless, i, NULL))) return true;
    }
    return false;
}

static void show_meta(char *out, size_t size, const weir_meta *meta)
{
    char text[80];
    switch (meta->type) {
    case WEIR_META_STRING:
        (void)snprintf(
            out, size, "\"%s\"", weir_printable(text, sizeof text, meta->string, meta->length)
        );
        break;
    case WEIR_META_BOOL: (void)snprintf(out, size, "%s", meta->boolean ? "true" : "false"); break;
    case WEIR_META_INT: (void)snprintf(out, size, "%" PRId64, meta->integer); break;
    case WEIR_META_FLOAT: (void)snprintf(out, size, "%g", meta->number); break;
    case WEIR_META_ARRAY: (void)snprintf(out, size, "a list"); break;
    }
}

static void show_value(weir_buffer *out, const weir_toml_node *node)
{
    const char *const text = weir_toml_string(node, NULL);
    bool flag;
    double number;
    char printable[80];
    if (text != NULL)
        (void)!weir_buffer_format(
            out, "\"%s\"", weir_printable(printable, sizeof printable, text, strlen(text))
        );
    else if (weir_toml_bool(node, &flag))
        (void)!weir_buffer_text(out, flag ? "true" : "false");
    else if (weir_toml_float(node, &number))
        (void)!weir_buffer_format(out, "%g", number);
    for (size_t i = 0; i < weir_toml_size(node); i++) {
        if (i > 0) (void)!weir_buffer_text(out, " or ");
        show_value(out, weir_toml_at(node, i, NULL));
    }
}

static const char *setting_of(const weir_toml_node *rule, bool is_gguf)
{
    return weir_toml_string(weir_toml_get(rule, is_gguf ? "gguf" : "hf"), NULL);
}

/* True if a later rule is about the same setting: those of bases are before those of a file. */
static bool is_replaced(const weir_toml_node *list, size_t index, const char *key, bool is_gguf)
{
    for (size_t i = index + 1; i < weir_toml_size(list); i++) {
        const char *const other = setting_of(weir_toml_at(list, i, NULL), is_gguf);
        if (other != NULL && strcmp(other, key) == 0) return true;
    }
    return false;
}

/* Checkpoints that other programs quantised have tensors that no architecture names. */
static weir_status check_quantisation(const weir_tensor_directory *directory, weir_error *error)
{
    static const char key[] = "quantization_config.quant_method", *const known[] = { "fp8",
                                                                                     "mxfp4" };
    weir_meta meta;
    char method[80];
    if (weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF ||
        !weir_tensor_directory_meta(directory, key, &meta) || meta.type != WEIR_META_STRING)
        return WEIR_OK;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(meta.string, known[i]) == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "%s: '%s' is \"%s\": of quantised safetensors only FP8 with scales of blocks (fp8) and "
        "MXFP4 (mxfp4) are read; use a GGUF file, or the checkpoint before it was quantised",
        weir_tensor_directory_path(directory), key,
        weir_printable(method, sizeof method, meta.string, meta.length)
    );
}

weir_status weir_arch_check_refusals(
    const weir_arch *arch, const weir_tensor_directory *directory, weir_error *error
)
{
    WEIR_TRY(check_quantisation(directory, error));
    const weir_toml_node *const list = weir_toml_get(arch->root, "refuse");
    const char *const prefix = weir_arch_gguf_prefix(directory);
    for (size_t i = 0; i < weir_toml_size(list); i++) {
        const weir_toml_node *const rule = weir_toml_at(list, i, NULL), *const unless =
                                                                            weir_toml_get(
                                                                                rule, "unless"
                                                                            );
        const char *const key = setting_of(rule, prefix != NULL);
        const char *const because = weir_toml_string(weir_toml_get(rule, "because"), NULL);
        char full[512], value[120], reason[256];
        weir_meta meta;
        if (key == NULL || is_replaced(list, i, key, prefix != NULL)) continue;
        (void)snprintf(
            full, sizeof full, "%s%s%s", prefix != NULL ? prefix : "", prefix != NULL ? "." : "",
            key
        );
        if (!weir_tensor_directory_meta(directory, full, &meta) || is_allowed(&meta, unless))
            continue;
        weir_buffer allowed = { 0 };
        show_meta(value, sizeof value, &meta);
        show_value(&allowed, unless);
        const weir_status status = weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s: '%s' is %s, but architecture %s computes only %s (%s)%s%s",
            weir_tensor_directory_path(directory), full, value, arch->name,
            allowed.data != NULL ? allowed.data : "another", arch->file,
            because != NULL ? ": " : "",
            because != NULL ? weir_printable(reason, sizeof reason, because, strlen(because)) : ""
        );
        weir_buffer_free(&allowed);
        return status;
    }
    return WEIR_OK;
}
