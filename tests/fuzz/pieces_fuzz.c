/* tests/fuzz/pieces_fuzz.c - any pieces, any charsmap and any text: what opens encodes within
 * bounds, control tokens stay out of plain text, a stream gives what decoding at once gives. Input:
 * tests/fuzz/README.md. */
#include "engine/base/memory.h"
#include "engine/base/utf8.h"
#include "engine/text/tokenizer_gguf.h"
#include "tests/fuzz/text_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static unsigned byte_of(input *in)
{
    if (in->left == 0) return 0;
    in->left--;
    return *in->at++;
}

static const char *bytes_of(input *in, size_t wanted, size_t *n)
{
    const char *const bytes = (const char *)in->at;
    *n = wanted < in->left ? wanted : in->left;
    in->at += *n;
    in->left -= *n;
    return bytes;
}

static weir_status add(weir_gguf_loader *loader, const char *name, size_t length, int64_t type)
{
    char copy[512 + 1];
    probe_require(length < sizeof copy);
    memcpy(copy, name, length);
    copy[length] = '\0';
    const weir_meta meta = { .type = WEIR_META_STRING, .string = copy, .length = length };
    const weir_status status =
        weir_gguf_add_piece(loader, loader->tokenizer->vocabulary.size, &meta, type);
    probe_status(status, loader->error);
    return status;
}

static void add_bytes(weir_gguf_loader *loader)
{
    static const char digits[] = "0123456789ABCDEF";
    for (unsigned byte = 0; byte < 256; byte++) {
        const char name[6] = { '<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>' };
        (void)add(loader, name, sizeof name, WEIR_GGUF_BYTE);
    }
}

/* A failure to add leaves an id that was reserved; the next piece takes another. */
static weir_status build(weir_gguf_loader *loader, input *in, unsigned flags)
{
    static const weir_spm_kind kinds[4] = { WEIR_SPM_SCORES, WEIR_SPM_UNIGRAM, WEIR_SPM_RANKS,
                                            WEIR_SPM_SCORES };
    weir_tokenizer *const tokenizer = loader->tokenizer;
    WEIR_TRY(weir_tokenizer_make_spm(tokenizer, kinds[flags & 3], loader->error));
    weir_spm *const spm = tokenizer->spm;
    spm->has_bytes = spm->fuses_unknown = true;
    spm->decoder.joins_bytes = spm->decoder.unescapes = true;
    spm->is_sentencepiece = spm->kind != WEIR_SPM_RANKS;
    spm->decoder.is_tokenizers = !spm->is_sentencepiece;
    spm->normalizer.adds_prefix = (flags & 8) != 0;
    spm->normalizer.removes_spaces = (flags & 16) != 0;
    if ((flags & 24) != 0) spm->decoder.start = WEIR_SPM_START_PIECE;
    const size_t wanted = byte_of(in) | (size_t)byte_of(in) << 8;
    size_t n_map;
    const char *const map = bytes_of(in, wanted, &n_map);
    if (n_map > 0) {
        const weir_status status =
            weir_charsmap_open(&spm->normalizer.charsmap, map, n_map, loader->error);
        probe_status(status, loader->error);
    }
    WEIR_TRY(add(loader, "<unk>", 5, WEIR_GGUF_UNKNOWN));
    WEIR_TRY(add(loader, "<s>", 3, WEIR_GGUF_CONTROL));
    if ((flags & 4) != 0) add_bytes(loader);
    double scores[512] = { 0 };
    for (unsigned i = byte_of(in); i > 0; i--) {
        const unsigned type = byte_of(in), score = byte_of(in), length = byte_of(in);
        size_t n;
        const char *const name = bytes_of(in, length, &n);
        const size_t id = tokenizer->vocabulary.size;
        if (id < 512 && add(loader, name, n, type % 8) == WEIR_OK) scores[id] = -(double)score / 4;
    }
    const size_t n = tokenizer->vocabulary.size;
    spm->scores = weir_memory_take_zero(n, sizeof *spm->scores);
    probe_require(spm->scores != NULL);
    memcpy(spm->scores, scores, (n < 512 ? n : 512) * sizeof *scores);
    spm->n_scored = n;
    return weir_tokenizer_finish(tokenizer, loader->error);
}

static void probe_stream(const weir_tokenizer *tokenizer, const weir_ids *ids)
{
    weir_detokenizer stream = { .at_start = true };
    weir_buffer text = { 0 };
    for (size_t i = 0; i < ids->count; i++) {
        probe_require(weir_vocabulary_at(&tokenizer->vocabulary, ids->data[i]) != NULL);
        probe_require(
            weir_detokenizer_token(&stream, tokenizer, &text, ids->data[i], false) == WEIR_OK
        );
        probe_require(text.size == 0 || weir_utf8_valid(text.data, text.size));
    }
    probe_require(weir_detokenizer_finish(&stream, &text) == WEIR_OK);
    weir_buffer whole = { 0 };
    probe_require(
        weir_tokenizer_decode(tokenizer, &whole, ids->data, ids->count, false) == WEIR_OK
    );
    /* They differ only where bytes of a run are ill-formed, which no text gives. */
    probe_require(
        text.size == whole.size && (text.size == 0 || memcmp(text.data, whole.data, text.size) == 0)
    );
    weir_buffer_free(&whole);
    weir_buffer_free(&text);
}

static void use(const weir_tokenizer *tokenizer, const char *text, size_t n, bool parse)
{
    weir_ids ids = { 0 };
    weir_error error = { 0 };
    const weir_span plain = { n / 3, n - n / 3 };
    const weir_encode_options options = { .parse_special = parse,
                                          .plain = parse ? &plain : NULL,
                                          .n_plain = parse };
    const weir_status status = weir_tokenizer_encode(tokenizer, &ids, text, n, &options, &error);
    probe_status(status, &error);
    probe_require(status == WEIR_OK);
    for (size_t i = 0; !parse && i < ids.count; i++)
        probe_require(
            ids.data[i] == tokenizer->spm->unknown ||
            (tokenizer->vocabulary.tokens[ids.data[i]].flags & WEIR_TOKEN_SPECIAL) == 0
        );
    probe_stream(tokenizer, &ids);
    weir_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };
    weir_error error = { 0 };
    weir_gguf_loader loader = { .tokenizer = weir_tokenizer_new(), .error = &error };
    probe_require(loader.tokenizer != NULL);
    const weir_status status = build(&loader, &in, byte_of(&in));
    probe_status(status, &error);
    if (status == WEIR_OK) {
        use(loader.tokenizer, (const char *)in.at, in.left, true);
        use(loader.tokenizer, (const char *)in.at, in.left, false);
    }
    weir_tokenizer_close(loader.tokenizer);
    return 0;
}
