/* tools/convert/check_tokenizer.c - GGUF says less about a tokenizer than tokenizer.json: what it
 * leaves out must not matter. */
#include <string.h>

#include "engine/formats/printable.h"
#include "tools/convert/vocabulary.h"

/* What tokenizers reads otherwise than sentencepiece, as which these files are read (0053): with a
 * charsmap grapheme clusters; with unigram U+2581 where a text begins, and names of byte pieces. */
enum { CLUSTERS = 1, SYMBOLS = 2 };

/* Letters, marks and digits of several scripts, spaces, contractions, code, what is no UTF-8 in one
 * piece, and texts that are decomposed. */
static const struct {
    const char *text;
    unsigned has;
} texts[] = {
    { "", 0 },
    { " ", 0 },
    { "Hello, world! It's 12345 o'clock; we'LL see 3.14159.", 0 },
    { "  leading spaces\tand\ttabs  \n\n\n  and lines \n ends ", 0 },
    { "  lines\r\nthat \r\n end \r\n", CLUSTERS },
    { "for (int i = 0; i < n; i++) { x[i] += y[i] * 0x1F; } // comment\n\n", 0 },
    { "d\xC3\xA9j\xC3\xA0 vu na\xC3\xAFve \xC3\x85ngstr\xC3\xB6m \xC3\x9F", 0 },
    { "de\xCC\x81ja\xCC\x80 A\xCC\x8A e\xCC\x81\xCC\xA3", CLUSTERS },
    { "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82, \xD0\xBC\xD0\xB8\xD1\x80! 2024", 0 },
    { "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C\xEF\xBC\x8C\xE4\xBB\x8A 5 \xE5\xBA\xA6",
      0 },
    { "\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF\xE3\x82\xAB\xE3\x83\x8A", 0 },
    { "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 \xD8\xB9\xD8\xB1\xD8\xA8\xD9\x8A", 0 },
    { "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80", 0 },
    { "\xE1\x9E\x80\xE1\x9E\xB6\xE1\x9E\x93\xE1\x9F\x8B\xE1\x9E\x8F\xE1\x9F\x82", 0 },
    { "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
      0 },
    { "emoji \xE2\x9C\x93", 0 },
    { "\xE2\x96\x81 lower block, \xC2\xA0no-break, \xE3\x80\x80wide \xE2\x80\x94 dash\xE2\x80\xA6",
      SYMBOLS },
    { "lower \xE2\x96\x81 block, \xC2\xA0no-break, \xE3\x80\x80wide", 0 },
    { "100,000 + 2^10 = 1e5 (a_b-c) <html> &amp; \"quoted\" 'single' `tick`", 0 },
    { "<s> </s> <|im_start|>user\nHi<|im_end|>\n<|endoftext|> [INST] <unk>", 0 },
    { "<0x41> <0xE2>", SYMBOLS },
    { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0000000000000000 ................ \n \n \n", 0 },
    { "supercalifragilisticexpialidocious antidisestablishmentarianism", 0 },
};

/* The tokenizer of the checkpoint, and that of the file. */
typedef struct pair {
    const weir_tensor_directory *file;
    const weir_tokenizer *own, *written;
    bool is_unigram;
    weir_error *error;
} pair;

static weir_status check_ids(
    const pair *p, const weir_ids *own, const weir_ids *other, const char *text
)
{
    size_t at = 0;
    while (at < own->count && at < other->count && own->data[at] == other->data[at]) at++;
    if (at == own->count && at == other->count) return WEIR_OK;
    return weir_error_set(
        p->error, WEIR_EUNSUPPORTED,
        "the tokenizer of the GGUF file would give other ids than tokenizer.json: token %zu of "
        "\"%.80s\" would be %d, not %d; --no-tokenizer leaves it out",
        at, text, at < other->count ? (int)other->data[at] : -1,
        at < own->count ? (int)own->data[at] : -1
    );
}

static weir_status check_decoded(const pair *p, const weir_ids *ids, const char *text)
{
    weir_buffer own = { 0 }, other = { 0 };
    weir_status status = weir_tokenizer_decode(p->own, &own, ids->data, ids->count, false);
    if (status == WEIR_OK)
        status = weir_tokenizer_decode(p->written, &other, ids->data, ids->count, false);
    if (status != WEIR_OK)
        status = weir_error_set(p->error, status, "no memory for a text");
    else if (own.size != other.size ||
             (own.size > 0 && memcmp(own.data, other.data, own.size) != 0))
        status = weir_error_set(
            p->error, WEIR_EUNSUPPORTED,
            "the tokenizer of the GGUF file would decode the ids of \"%.80s\" to \"%.80s\", not "
            "\"%.80s\"; --no-tokenizer leaves it out",
            text, other.size > 0 ? other.data : "", own.size > 0 ? own.data : ""
        );
    weir_buffer_free(&own);
    weir_buffer_free(&other);
    return status;
}

static weir_status compare(const pair *p, const char *text, bool parses)
{
    const weir_encode_options options = { .add_special = true, .parse_special = parses };
    const size_t n = strlen(text);
    weir_ids own = { 0 }, other = { 0 };
    weir_status status = weir_tokenizer_encode(p->own, &own, text, n, &options, p->error);
    if (status == WEIR_OK)
        status = weir_tokenizer_encode(p->written, &other, text, n, &options, p->error);
    if (status == WEIR_OK) status = check_ids(p, &own, &other, text);
    if (status == WEIR_OK && p->is_unigram) status = check_decoded(p, &own, text);
    weir_ids_free(&own);
    weir_ids_free(&other);
    return status;
}

static weir_status compare_texts(const pair *p)
{
    const unsigned without =
        (weir_tokenizer_has_charsmap(p->own) ? CLUSTERS : 0U) | (p->is_unigram ? SYMBOLS : 0U);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if ((texts[i].has & without) != 0) continue;
        WEIR_TRY(compare(p, texts[i].text, false));
        WEIR_TRY(compare(p, texts[i].text, true));
    }
    return WEIR_OK;
}

/* Added tokens between words. *differing: the one at which the ids differ. */
static weir_status compare_added(const pair *p, char differing[WEIR_DIFFERING_BYTES])
{
    enum { MOST = 1000 };
    weir_meta names, types, name, type;
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    if (!weir_tensor_directory_meta(p->file, KEY "tokens", &names) ||
        !weir_tensor_directory_meta(p->file, KEY "token_type", &types))
        return WEIR_OK; /* the reader of the file has found them */
    for (size_t i = 0, n = 0; i < names.length && n < MOST && status == WEIR_OK; i++) {
        if (!weir_meta_at(&types, i, &type) || !weir_meta_at(&names, i, &name) ||
            (type.integer != CONTROL && type.integer != USER_DEFINED))
            continue;
        n++;
        (void)weir_printable(differing, WEIR_DIFFERING_BYTES, name.string, name.length);
        weir_buffer_clear(&text);
        status = weir_buffer_format(
            &text, "a%sb %s %s%s", name.string, name.string, name.string, name.string
        );
        status = status == WEIR_OK ? compare(p, text.data, true)
                                   : weir_error_set(p->error, status, "no memory for a text");
    }
    weir_buffer_free(&text);
    if (status == WEIR_OK) differing[0] = '\0';
    return status;
}

/* Files of other kinds than unigram were written with this difference before: a warning. */
static weir_status check_added(const pair *p, char differing[WEIR_DIFFERING_BYTES])
{
    weir_error difference = { 0 };
    pair own = *p;
    if (p->is_unigram) return compare_added(p, differing);
    own.error = &difference;
    const weir_status status = compare_added(&own, differing);
    if (status == WEIR_OK || status == WEIR_EUNSUPPORTED) return WEIR_OK;
    *p->error = difference;
    return status;
}

static bool is_unigram(const weir_tensor_directory *file)
{
    weir_meta model;
    return weir_tensor_directory_meta(file, KEY "model", &model) &&
           model.type == WEIR_META_STRING && strcmp(model.string, "t5") == 0;
}

weir_status weir_check_tokenizer(
    const char *path, const weir_tokenizer *tokenizer, char differing[WEIR_DIFFERING_BYTES],
    weir_error *error
)
{
    weir_tensor_directory *file = NULL;
    weir_tokenizer *written = NULL;
    weir_status status = weir_tensor_directory_open(&file, path, error);
    if (status == WEIR_OK) status = weir_tokenizer_open(&written, file, error);
    if (status == WEIR_OK) {
        const pair p = { .file = file,
                         .own = tokenizer,
                         .written = written,
                         .is_unigram = is_unigram(file),
                         .error = error };
        status = compare_texts(&p);
        if (status == WEIR_OK) status = check_added(&p, differing);
    }
    weir_tokenizer_close(written);
    weir_tensor_directory_close(file);
    return status;
}
