/* tools/convert/tokenizer_keys.c - tokens, types, merges or scores. What the engine's reader of
 * tokenizer.json refuses is refused here, because the tokenizer is opened first. */
#include "tools/convert/vocabulary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/text/pretokenizer_name.h"

enum { TOKENIZER_BYTES = 256 << 20, CONFIG_BYTES = 16 << 20 };

/* ---- tokens ---------------------------------------------------------------------------------- */
weir_status weir_set_token(
    const vocabulary *v, int64_t id, const char *name, size_t length, int32_t type
)
{
    if (id < 0 || id >= v->n)
        return weir_error_set(
            v->error, WEIR_EMISMATCH,
            "the token '%.64s' has an id past the %" PRId64 " rows of the embedding", name, v->n
        );
    v->tokens[id] = (token){ .name = name, .length = length, .type = type };
    return WEIR_OK;
}

bool weir_is_byte_name(const char *name, size_t length)
{
    unsigned byte;
    char end;
    return length == 6 && sscanf(name, "<0x%2X%c", &byte, &end) == 2 && end == '>';
}

static weir_status set_base(vocabulary *v)
{
    const json_t *const model = json_object_get(v->root, "model");
    const char *const unknown = json_string_value(json_object_get(model, "unk_token"));
    const char *name;
    json_t *id;
    json_object_foreach(json_object_get(model, "vocab"), name, id)
    {
        const size_t length = strlen(name);
        int32_t type = NORMAL;
        if (v->is_pieces && weir_is_byte_name(name, length)) type = BYTE;
        if (v->is_pieces && unknown != NULL && strcmp(unknown, name) == 0) type = UNKNOWN;
        WEIR_TRY(weir_set_token(v, json_integer_value(id), name, length, type));
    }
    return WEIR_OK;
}

static weir_status set_added(const vocabulary *v, const json_t *entry, const json_t *id)
{
    static const char *const flags[][2] = {
        { "lstrip", "takes the white space before it" },
        { "rstrip", "takes the white space behind it" },
        { "single_word", "is not found inside words" },
    };
    const json_t *const content = json_object_get(entry, "content");
    const bool is_special = json_is_true(json_object_get(entry, "special"));
    if (!json_is_string(content))
        return weir_error_set(v->error, WEIR_EFORMAT, "an added token has no content");
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (json_is_true(json_object_get(entry, flags[i][0])))
            return weir_error_set(
                v->error, WEIR_EUNSUPPORTED,
                "the token '%.64s' %s (%s), which GGUF cannot say; --no-tokenizer leaves the "
                "tokenizer out",
                json_string_value(content), flags[i][1], flags[i][0]
            );
    return weir_set_token(
        v, json_integer_value(id), json_string_value(content), json_string_length(content),
        is_special ? CONTROL : USER_DEFINED
    );
}

static weir_status set_all_added(const vocabulary *v)
{
    size_t i;
    json_t *entry;
    const char *key;
    json_object_foreach(json_object_get(v->config, "added_tokens_decoder"), key, entry)
    {
        json_t *const id = json_integer(strtoll(key, NULL, 10)); /* the reader checked it */
        const weir_status status =
            id != NULL ? set_added(v, entry, id)
                       : weir_error_set(v->error, WEIR_ENOMEM, "no memory for tokens");
        json_decref(id);
        WEIR_TRY(status);
    }
    json_array_foreach(json_object_get(v->root, "added_tokens"), i, entry)
        WEIR_TRY(set_added(v, entry, json_object_get(entry, "id")));
    return WEIR_OK;
}

void weir_put_tokens(const vocabulary *v)
{
    weir_gguf_begin_texts(v->writer, KEY "tokens", (size_t)v->n);
    for (int64_t i = 0; i < v->n; i++) {
        char name[32];
        const token *const t = &v->tokens[i];
        const int length = snprintf(name, sizeof name, "[PAD%" PRId64 "]", i);
        if (t->name != NULL)
            weir_gguf_add_text(v->writer, t->name, t->length);
        else
            weir_gguf_add_text(v->writer, name, (size_t)length);
    }
    weir_gguf_begin_i32s(v->writer, KEY "token_type", (size_t)v->n);
    for (int64_t i = 0; i < v->n; i++)
        weir_gguf_add_i32(v->writer, v->tokens[i].name != NULL ? v->tokens[i].type : UNUSED);
}

void weir_put_scores(const vocabulary *v)
{
    weir_gguf_begin_f32s(v->writer, KEY "scores", (size_t)v->n);
    for (int64_t i = 0; i < v->n; i++) weir_gguf_add_f32(v->writer, v->tokens[i].score);
}

/* ---- merges ---------------------------------------------------------------------------------- */
/* Appends "left right". */
weir_status weir_merge_text(const vocabulary *v, weir_buffer *out, const json_t *merge)
{
    weir_buffer_clear(out);
    weir_status status = WEIR_OK;
    if (json_is_string(merge))
        status = weir_buffer_add(out, json_string_value(merge), json_string_length(merge));
    for (size_t i = 0; !json_is_string(merge) && i < 2 && status == WEIR_OK; i++) {
        const json_t *const half = json_array_get(merge, i);
        if (i > 0) status = weir_buffer_text(out, " ");
        if (status == WEIR_OK)
            status = weir_buffer_add(out, json_string_value(half), json_string_length(half));
    }
    return status == WEIR_OK ? WEIR_OK : weir_error_set(v->error, status, "no memory for merges");
}

weir_status weir_put_merges(const vocabulary *v)
{
    const json_t *const merges = json_object_get(json_object_get(v->root, "model"), "merges");
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    size_t i;
    const json_t *merge;
    weir_gguf_begin_texts(v->writer, KEY "merges", json_array_size(merges));
    json_array_foreach(merges, i, merge)
    {
        if (status == WEIR_OK) status = weir_merge_text(v, &text, merge);
        if (status == WEIR_OK) weir_gguf_add_text(v->writer, text.data, text.size);
    }
    weir_buffer_free(&text);
    return status;
}

/* ---- models ---------------------------------------------------------------------------------- */
static const char *type_of(const json_t *object)
{
    const char *const type = json_string_value(json_object_get(object, "type"));
    return type != NULL ? type : "";
}

static bool is_text(const json_t *object, const char *key, const char *text)
{
    const char *const own = json_string_value(json_object_get(object, key));
    return own != NULL && strcmp(own, text) == 0;
}

/* The name of a normalizer for weir_check_normalizer; "": another one. */
static const char *kind_of(const json_t *component)
{
    const char *const type = type_of(component);
    const json_t *const pattern = json_object_get(component, "pattern");
    const bool to_symbol = is_text(component, "content", SPACE_SYMBOL);
    if (strcmp(type, "Prepend") == 0)
        return is_text(component, "prepend", SPACE_SYMBOL) ? type : "";
    if (strcmp(type, "Replace") != 0) return type;
    if (is_text(pattern, "Regex", " {2,}") && (to_symbol || is_text(component, "content", " ")))
        return "Squeeze";
    return to_symbol && is_text(pattern, "String", " ") ? type : "";
}

weir_status weir_check_normalizer(
    const vocabulary *v, const json_t *component, const char *const *known
)
{
    const char *const type = type_of(component);
    size_t i;
    const json_t *part;
    if (!json_is_object(component)) return WEIR_OK;
    json_array_foreach(json_object_get(component, "normalizers"), i, part)
        WEIR_TRY(weir_check_normalizer(v, part, known)); /* NOLINT(misc-no-recursion) */
    if (strcmp(type, "Sequence") == 0) return WEIR_OK;
    for (; *known != NULL; known++)
        if (strcmp(*known, kind_of(component)) == 0) return WEIR_OK;
    return weir_error_set(
        v->error, WEIR_EUNSUPPORTED,
        "tokenizer.json has the normalizer %.64s with options that GGUF cannot say for this kind "
        "of vocabulary; --no-tokenizer leaves the tokenizer out",
        type
    );
}

static weir_status put_bytes(const vocabulary *v)
{
    static const char *const normalizers[] = { "NFC", NULL };
    WEIR_TRY(weir_check_normalizer(v, json_object_get(v->root, "normalizer"), normalizers));
    const char *const name = weir_pretokenizer_name(v->root);
    if (name == NULL)
        return weir_error_set(
            v->error, WEIR_EUNSUPPORTED,
            "tokenizer.json splits text by patterns that GGUF has no name for; --no-tokenizer "
            "leaves the tokenizer out"
        );
    weir_gguf_put_text(v->writer, KEY "model", "gpt2", strlen("gpt2"));
    weir_gguf_put_text(v->writer, KEY "pre", name, strlen(name));
    weir_put_tokens(v);
    return weir_put_merges(v);
}

/* ---- special tokens -------------------------------------------------------------------------- */
static void put_id(const vocabulary *v, const char *key, int64_t id)
{
    if (id >= 0 && id < v->n) weir_gguf_put_u32(v->writer, key, (uint32_t)id);
}

/* The id of a token of tokenizer_config.json, or of the model; -1: none. */
static int64_t configured(const vocabulary *v, const char *key)
{
    const json_t *value = json_object_get(v->config, key);
    if (value == NULL) value = json_object_get(json_object_get(v->root, "model"), key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_is_string(value)
               ? weir_tokenizer_find(
                     v->tokenizer, json_string_value(value), json_string_length(value)
                 )
               : -1;
}

static weir_status put_specials(const vocabulary *v, bool is_unigram)
{
    static const char *const more[] = { KEY "eot_token_id", KEY "eom_token_id" };
    const char *const bos = weir_tokenizer_bos_text(v->tokenizer),
                      *const eos = weir_tokenizer_eos_text(v->tokenizer),
                      *const chat = weir_tokenizer_chat_template(v->tokenizer);
    int64_t end = weir_tokenizer_find(v->tokenizer, eos, strlen(eos));
    size_t n = 0, n_more = 0;
    const int32_t *const stops = weir_tokenizer_stop_ids(v->tokenizer, &n);
    weir_ids ids = { 0 };
    WEIR_TRY(weir_tokenizer_encode(
        v->tokenizer, &ids, "", 0, &(weir_encode_options){ .add_special = true }, v->error
    ));
    const size_t n_before = ids.count;
    WEIR_TRY(weir_tokenizer_encode(
        v->tokenizer, &ids, "", 0, &(weir_encode_options){ .add_end = true }, v->error
    ));
    /* GGUF has one token for both; the other one still ends answers, as eot_token_id. */
    const bool has_end = ids.count > n_before;
    if (has_end) end = ids.data[n_before];
    put_id(v, KEY "bos_token_id", weir_tokenizer_find(v->tokenizer, bos, strlen(bos)));
    put_id(v, KEY "eos_token_id", end);
    put_id(v, KEY "padding_token_id", configured(v, "pad_token"));
    put_id(v, KEY "unknown_token_id", v->unknown >= 0 ? v->unknown : configured(v, "unk_token"));
    for (size_t i = 0; i < n && n_more < 2; i++)
        if (stops[i] != end) put_id(v, more[n_more++], stops[i]);
    weir_gguf_put_bool(v->writer, KEY "add_bos_token", n_before > 0);
    /* Readers take unigram models for ones that add it. */
    if (has_end || is_unigram) weir_gguf_put_bool(v->writer, KEY "add_eos_token", has_end);
    if (chat != NULL) weir_gguf_put_text(v->writer, "tokenizer.chat_template", chat, strlen(chat));
    weir_ids_free(&ids);
    return WEIR_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */
/* Sets *out to NULL if the folder has no such file. */
static weir_status read_next_to(
    json_t **out, const weir_tensor_directory *directory, const char *name, size_t limit,
    weir_error *error
)
{
    weir_buffer path = { 0 };
    *out = NULL;
    weir_status status =
        weir_buffer_format(&path, "%s/%s", weir_tensor_directory_folder(directory), name);
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "%s: no memory for a path", name);
    else if (weir_file_exists(path.data))
        status = weir_json_read_file(out, path.data, limit, error);
    weir_buffer_free(&path);
    return status;
}

static weir_status put_vocabulary(vocabulary *v)
{
    const json_t *const model = json_object_get(v->root, "model");
    const char *const type = type_of(model);
    const bool is_unigram = strcmp(type, "Unigram") == 0;
    v->is_pieces = is_unigram || json_is_true(json_object_get(model, "byte_fallback"));
    v->unknown = -1;
    v->tokens = weir_memory_take_zero((size_t)v->n, sizeof *v->tokens);
    if (v->tokens == NULL)
        return weir_error_set(v->error, WEIR_ENOMEM, "no memory for %" PRId64 " tokens", v->n);
    WEIR_TRY(is_unigram ? weir_set_unigram(v) : set_base(v));
    WEIR_TRY(set_all_added(v));
    WEIR_TRY(is_unigram ? weir_put_unigram(v) : v->is_pieces ? weir_put_pieces(v) : put_bytes(v));
    return put_specials(v, is_unigram);
}

static weir_status put_none(weir_gguf_writer *writer)
{
    weir_gguf_put_text(writer, KEY "model", "none", strlen("none"));
    return WEIR_OK;
}

weir_status weir_put_tokenizer(
    weir_gguf_writer *writer, const weir_tensor_directory *directory, int64_t n_vocab,
    weir_tokenizer **tokenizer, weir_error *error
)
{
    json_t *root = NULL, *config = NULL;
    weir_status status = weir_tokenizer_open(tokenizer, directory, error);
    if (status == WEIR_ENOTFOUND) return put_none(writer);
    if (status == WEIR_OK)
        status = read_next_to(&root, directory, "tokenizer.json", TOKENIZER_BYTES, error);
    if (status == WEIR_OK)
        status = read_next_to(&config, directory, "tokenizer_config.json", CONFIG_BYTES, error);
    if (status == WEIR_OK) {
        vocabulary v = { .writer = writer,
                         .tokenizer = *tokenizer,
                         .root = root,
                         .config = config,
                         .n = n_vocab,
                         .error = error };
        status = put_vocabulary(&v);
        weir_memory_give(v.tokens);
        if (status != WEIR_OK)
            status =
                weir_error_prefix(error, status, "%s", weir_tensor_directory_folder(directory));
    }
    json_decref(root);
    json_decref(config);
    return status;
}

void weir_put_no_tokenizer(weir_gguf_writer *writer) { (void)put_none(writer); }
