/* engine/text/tokenizer_gguf.c - a tokenizer from the metadata of a GGUF file (keys
 * tokenizer.ggml.*). */
#include <inttypes.h>
#include <string.h>

#include "engine/text/tokenizer_gguf.h"

#define KEY WEIR_GGUF_KEY

weir_status weir_gguf_string(const weir_gguf_loader *loader, const char *key, weir_meta *out)
{
    if (!weir_tensor_directory_meta(loader->directory, key, out))
        return weir_error_set(loader->error, WEIR_ENOTFOUND, "%s is missing", key);
    if (out->type != WEIR_META_STRING)
        return weir_error_set(loader->error, WEIR_EFORMAT, "%s is not a string", key);
    return WEIR_OK;
}

weir_status weir_gguf_array(
    const weir_gguf_loader *loader, const char *key, weir_meta_type type, size_t limit,
    weir_meta *out
)
{
    if (!weir_tensor_directory_meta(loader->directory, key, out))
        return weir_error_set(loader->error, WEIR_EFORMAT, "%s is missing", key);
    if (out->type != WEIR_META_ARRAY || (out->length > 0 && out->element_type != type))
        return weir_error_set(
            loader->error, WEIR_EFORMAT, "%s is not an array of %s", key,
            type == WEIR_META_STRING ? "strings"
            : type == WEIR_META_INT  ? "integers"
                                     : "numbers"
        );
    if (out->length > limit)
        return weir_error_set(
            loader->error, WEIR_EFORMAT, "%s holds %zu entries, at most %zu are read", key,
            out->length, limit
        );
    return WEIR_OK;
}

static weir_status add_token(
    const weir_gguf_loader *loader, size_t id, const weir_meta *name, int64_t type
)
{
    weir_vocabulary *const vocabulary = &loader->tokenizer->vocabulary;
    unsigned flags = 0;
    switch (type) {
    case WEIR_GGUF_NORMAL: break;
    case WEIR_GGUF_CONTROL: flags = WEIR_TOKEN_ADDED | WEIR_TOKEN_SPECIAL; break;
    case WEIR_GGUF_USER_DEFINED: flags = WEIR_TOKEN_ADDED; break;
    case WEIR_GGUF_UNKNOWN:
    case WEIR_GGUF_UNUSED: flags = WEIR_TOKEN_PADDING | WEIR_TOKEN_SPECIAL; break;
    default:
        return weir_error_set(
            loader->error, WEIR_EUNSUPPORTED,
            "token type %" PRId64 " has no meaning in byte-level BPE", type
        );
    }
    if (flags != 0 && weir_tokenizer_is_padding(name->string, name->length))
        flags = WEIR_TOKEN_PADDING | WEIR_TOKEN_SPECIAL;
    WEIR_TRY(weir_vocabulary_add(
        vocabulary, (int64_t)id, name->string, name->length, flags, loader->error
    ));
    /* An added token may also be a base token of the vocabulary: merges still make it. */
    return flags == WEIR_TOKEN_ADDED
               ? weir_vocabulary_add_base_name(
                     vocabulary, (int32_t)id, name->string, name->length, loader->error
                 )
               : WEIR_OK;
}

static weir_status load_tokens(const weir_gguf_loader *loader)
{
    weir_meta tokens, types = { .length = 0 };
    WEIR_TRY(weir_gguf_array(loader, KEY "tokens", WEIR_META_STRING, WEIR_VOCABULARY_IDS, &tokens));
    const bool typed = weir_tensor_directory_meta(loader->directory, KEY "token_type", &types);
    if (typed)
        WEIR_TRY(
            weir_gguf_array(loader, KEY "token_type", WEIR_META_INT, WEIR_VOCABULARY_IDS, &types)
        );
    if (typed && types.length != tokens.length)
        return weir_error_set(
            loader->error, WEIR_EFORMAT, KEY "token_type has %zu entries, " KEY "tokens %zu",
            types.length, tokens.length
        );
    if (weir_vocabulary_reserve(&loader->tokenizer->vocabulary, tokens.length) != WEIR_OK)
        return weir_error_set(
            loader->error, WEIR_ENOMEM, KEY "tokens: no memory for %zu tokens", tokens.length
        );
    for (size_t i = 0; i < tokens.length; i++) {
        weir_meta name, type = { .type = WEIR_META_INT, .integer = WEIR_GGUF_NORMAL };
        if (!weir_meta_at(&tokens, i, &name) || name.type != WEIR_META_STRING ||
            (typed && !weir_meta_at(&types, i, &type)))
            return weir_error_set(loader->error, WEIR_EFORMAT, KEY "tokens[%zu] cannot be read", i);
        const weir_status status = loader->tokenizer->spm == NULL
                                       ? add_token(loader, i, &name, type.integer)
                                       : weir_gguf_add_piece(loader, i, &name, type.integer);
        if (status != WEIR_OK)
            return weir_error_prefix(loader->error, status, KEY "tokens[%zu]", i);
    }
    return WEIR_OK;
}

static weir_status load_merges(const weir_gguf_loader *loader)
{
    weir_meta merges;
    WEIR_TRY(weir_gguf_array(loader, KEY "merges", WEIR_META_STRING, WEIR_MERGES, &merges));
    if (weir_pair_reserve(&loader->tokenizer->merges, merges.length) != WEIR_OK)
        return weir_error_set(
            loader->error, WEIR_ENOMEM, KEY "merges: no memory for %zu merges", merges.length
        );
    for (size_t i = 0; i < merges.length; i++) {
        weir_meta merge;
        if (!weir_meta_at(&merges, i, &merge) || merge.type != WEIR_META_STRING)
            return weir_error_set(loader->error, WEIR_EFORMAT, KEY "merges[%zu] cannot be read", i);
        const weir_status status = weir_tokenizer_add_merge_text(
            loader->tokenizer, (uint32_t)i, merge.string, merge.length, loader->error
        );
        if (status == WEIR_EMISMATCH)
            continue; /* truncated vocabularies keep merges that can never apply */
        if (status != WEIR_OK)
            return weir_error_prefix(loader->error, status, KEY "merges[%zu]", i);
    }
    return WEIR_OK;
}

static weir_status unknown_pretokenizer(const weir_gguf_loader *loader, const char *name)
{
    weir_buffer known = weir_pretokenizer_list_known();
    const weir_status status = weir_error_set(
        loader->error, WEIR_EUNSUPPORTED, KEY "pre is '%.64s'; known are %s", name,
        known.data != NULL ? known.data : "others"
    );
    weir_buffer_free(&known);
    return status;
}

/* *add_bos: what the name implies if the file does not say. */
static weir_status load_pretokenizer(const weir_gguf_loader *loader, bool *add_bos)
{
    weir_meta name;
    if (!weir_tensor_directory_meta(loader->directory, KEY "pre", &name))
        return weir_error_set(
            loader->error, WEIR_EFORMAT,
            KEY "pre is missing: the file does not say how text is split; convert the model again"
        );
    WEIR_TRY(weir_gguf_string(loader, KEY "pre", &name));
    const weir_pretokenizer_kind *const kind = weir_pretokenizer_find(name.string);
    if (kind == NULL) return unknown_pretokenizer(loader, name.string);
    for (size_t i = 0;
         i < sizeof kind->patterns / sizeof kind->patterns[0] && kind->patterns[i] != NULL; i++)
        WEIR_TRY(weir_pretokenizer_add(
            &loader->tokenizer->pretokenizer, kind->patterns[i], strlen(kind->patterns[i]),
            (weir_split_options){ .literal = false }, loader->error
        ));
    static const weir_normalizer_step nfc = { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFC };
    if (kind->nfc) (void)weir_normalizer_add(&loader->tokenizer->normalizer, &nfc);
    loader->tokenizer->ignore_merges = kind->ignore_merges;
    *add_bos = kind->add_bos;
    return WEIR_OK;
}

/* *id stays -1 if the key is absent. */
weir_status weir_gguf_id(const weir_gguf_loader *loader, const char *key, int32_t *id)
{
    weir_meta value;
    *id = -1;
    if (!weir_tensor_directory_meta(loader->directory, key, &value)) return WEIR_OK;
    if (value.type != WEIR_META_INT)
        return weir_error_set(loader->error, WEIR_EFORMAT, "%s is not an integer", key);
    if (weir_vocabulary_at(&loader->tokenizer->vocabulary, value.integer) == NULL)
        return weir_error_set(
            loader->error, WEIR_EFORMAT, "%s is %" PRId64 ", the vocabulary has %zu tokens", key,
            value.integer, loader->tokenizer->vocabulary.size
        );
    *id = (int32_t)value.integer;
    return WEIR_OK;
}

static weir_status load_specials(const weir_gguf_loader *loader, bool add_bos)
{
    weir_tokenizer *const tokenizer = loader->tokenizer;
    WEIR_TRY(weir_gguf_id(loader, KEY "bos_token_id", &tokenizer->bos));
    WEIR_TRY(weir_gguf_id(loader, KEY "eos_token_id", &tokenizer->eos));
    weir_tokenizer_add_stop(tokenizer, tokenizer->eos);
    static const char *const turns[] = { KEY "eot_token_id", KEY "eom_token_id" };
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        int32_t id;
        WEIR_TRY(weir_gguf_id(loader, turns[i], &id));
        weir_tokenizer_add_stop(tokenizer, id);
    }
    weir_meta value;
    const bool stated = weir_tensor_directory_meta(loader->directory, KEY "add_bos_token", &value);
    if (stated && value.type != WEIR_META_BOOL)
        return weir_error_set(loader->error, WEIR_EFORMAT, KEY "add_bos_token is not a boolean");
    if (stated && value.boolean && tokenizer->bos < 0)
        return weir_error_set(
            loader->error, WEIR_EFORMAT,
            KEY "add_bos_token is true, but " KEY "bos_token_id is missing"
        );
    tokenizer->add_bos = tokenizer->bos >= 0 && (stated ? value.boolean : add_bos);
    if (weir_tensor_directory_meta(loader->directory, KEY "add_eos_token", &value) &&
        value.type == WEIR_META_BOOL && value.boolean)
        tokenizer->end = tokenizer->eos;
    return WEIR_OK;
}

static weir_status load_template(const weir_gguf_loader *loader)
{
    static const char key[] = "tokenizer.chat_template";
    weir_meta text;
    if (!weir_tensor_directory_meta(loader->directory, key, &text)) return WEIR_OK;
    WEIR_TRY(weir_gguf_string(loader, key, &text));
    const weir_status status =
        weir_tokenizer_set_template(loader->tokenizer, text.string, text.length, loader->error);
    return status == WEIR_OK ? WEIR_OK : weir_error_prefix(loader->error, status, "%s", key);
}

static weir_status load(const weir_gguf_loader *loader)
{
    weir_meta model;
    WEIR_TRY(weir_gguf_string(loader, KEY "model", &model));
    if (strcmp(model.string, "none") == 0 || strcmp(model.string, "no_vocab") == 0)
        return weir_error_set(loader->error, WEIR_ENOTFOUND, "the file has no tokenizer");
    bool add_bos = false;
    const bool is_bytes = strcmp(model.string, "gpt2") == 0;
    WEIR_TRY(
        is_bytes ? load_pretokenizer(loader, &add_bos)
                 : weir_gguf_open_pieces(loader, model.string, &add_bos)
    );
    WEIR_TRY(load_tokens(loader));
    if (is_bytes || loader->tokenizer->spm->kind == WEIR_SPM_RANKS) WEIR_TRY(load_merges(loader));
    if (!is_bytes) WEIR_TRY(weir_gguf_load_pieces(loader));
    WEIR_TRY(load_specials(loader, add_bos));
    WEIR_TRY(load_template(loader));
    return weir_tokenizer_finish(loader->tokenizer, loader->error);
}

weir_status weir_tokenizer_open_gguf(
    weir_tokenizer **out, const weir_tensor_directory *directory, weir_error *error
)
{
    weir_tokenizer *const tokenizer = weir_tokenizer_new();
    if (tokenizer == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a tokenizer");
    const weir_status status =
        load(&(weir_gguf_loader){ .directory = directory, .tokenizer = tokenizer, .error = error });
    if (status == WEIR_OK) {
        *out = tokenizer;
        return WEIR_OK;
    }
    weir_tokenizer_close(tokenizer);
    return weir_error_prefix(error, status, "%s", weir_tensor_directory_path(directory));
}
