/* tests/fuzz/text_fuzz.c - any bytes as text: encode and decode give the text back, whole, cut into
 * streams, plain or not. The first byte chooses the pattern, the second where a plain span ends;
 * the rest is the text. */
#include "engine/base/utf8.h"
#include "engine/text/normalizer.h"
#include "engine/text/repair.h"
#include "tests/fuzz/text_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const kinds[] = { "qwen2",  "qwen35", "llama-bpe",   "gpt-2",
                                     "smollm", "tekken", "deepseek-v3", "deepseek-llm" };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* Bytes as ids 0 to 255, a few merges, one control token. */
static weir_tokenizer *make(const char *kind_name)
{
    static const char *const words[] = { "t h", "th e", "Ġ the", "a a", "aa aa",
                                         "Ċ Ċ", "Ã ©",  "Ġ Ġ",   "1 2" };
    weir_tokenizer *const tokenizer = weir_tokenizer_new();
    probe_require(tokenizer != NULL);
    probe_add_bytes(&tokenizer->vocabulary, 0);
    for (uint32_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *const space = strchr(words[i], ' ');
        char joined[16] = { 0 };
        memcpy(joined, words[i], (size_t)(space - words[i]));
        memcpy(joined + (space - words[i]), space + 1, strlen(space + 1));
        probe_require(
            weir_vocabulary_add(
                &tokenizer->vocabulary, 256 + (int64_t)i, joined, strlen(joined), 0, NULL
            ) == WEIR_OK
        );
        probe_require(
            weir_tokenizer_add_merge_text(tokenizer, i, words[i], strlen(words[i]), NULL) == WEIR_OK
        );
    }
    probe_require(
        weir_vocabulary_add(
            &tokenizer->vocabulary, 300, "<|x|>", 5, WEIR_TOKEN_ADDED | WEIR_TOKEN_SPECIAL, NULL
        ) == WEIR_OK
    );
    const weir_pretokenizer_kind *const kind = weir_pretokenizer_find(kind_name);
    for (int i = 0; i < 6 && kind->patterns[i] != NULL; i++)
        probe_require(
            weir_pretokenizer_add(
                &tokenizer->pretokenizer, kind->patterns[i], strlen(kind->patterns[i]),
                (weir_split_options){ .literal = false }, NULL
            ) == WEIR_OK
        );
    static const weir_normalizer_step nfc = { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFC };
    if (kind->nfc) probe_require(weir_normalizer_add(&tokenizer->normalizer, &nfc));
    tokenizer->ignore_merges = kind->ignore_merges;
    probe_require(weir_tokenizer_finish(tokenizer, NULL) == WEIR_OK);
    return tokenizer;
}

/* Streams token by token and in one go must give the same text. */
static void probe_stream(
    const weir_tokenizer *tokenizer, const weir_ids *ids, const weir_buffer *whole
)
{
    weir_detokenizer stream = { .n_held = 0 };
    weir_buffer text = { 0 };
    for (size_t i = 0; i < ids->count; i++) {
        probe_require(
            weir_detokenizer_token(&stream, tokenizer, &text, ids->data[i], false) == WEIR_OK
        );
        probe_require(text.size == 0 || weir_utf8_valid(text.data, text.size));
    }
    probe_require(weir_detokenizer_finish(&stream, &text) == WEIR_OK);
    probe_require(
        text.size == whole->size &&
        (text.size == 0 || memcmp(text.data, whole->data, text.size) == 0)
    );
    weir_buffer_free(&text);
}

static void round_trip(
    const weir_tokenizer *tokenizer, const char *text, size_t n, const weir_encode_options *options,
    bool exact
)
{
    weir_ids ids = { 0 };
    weir_buffer back = { 0 }, want = { 0 };
    weir_error error = { 0 };
    probe_require(weir_tokenizer_encode(tokenizer, &ids, text, n, options, &error) == WEIR_OK);
    probe_require(weir_tokenizer_decode(tokenizer, &back, ids.data, ids.count, false) == WEIR_OK);
    probe_stream(tokenizer, &ids, &back);
    weir_buffer repaired = { 0 };
    probe_require(weir_utf8_repair(&repaired, text, n, NULL, 0) == WEIR_OK);
    probe_require(
        (tokenizer->normalizer.n_steps > 0
             ? weir_normalize(&want, WEIR_NFC, repaired.data, repaired.size)
             : weir_buffer_add(&want, repaired.data, repaired.size)) == WEIR_OK
    );
    if (exact)
        probe_require(
            back.size == want.size &&
            (back.size == 0 || memcmp(back.data, want.data, back.size) == 0)
        );
    for (size_t i = 0; !options->parse_special && i < ids.count; i++)
        probe_require(ids.data[i] != 300);
    weir_buffer_free(&repaired);
    weir_buffer_free(&back);
    weir_buffer_free(&want);
    weir_ids_free(&ids);
}

/* Each step of a normalizer gives well-formed text; done twice, the normal forms change nothing. */
static void probe_step(const weir_normalizer_step *step, const char *text, size_t n)
{
    weir_normalizer once = { .n_steps = 0 };
    weir_buffer first[2] = { { 0 }, { 0 } }, second[2] = { { 0 }, { 0 } };
    probe_require(weir_normalizer_add(&once, step));
    probe_require(weir_normalizer_run(&once, first, &text, &n) == WEIR_OK);
    probe_require(weir_utf8_valid(text, n));
    const char *again = text;
    size_t n_again = n;
    probe_require(weir_normalizer_run(&once, second, &again, &n_again) == WEIR_OK);
    if (step->kind == WEIR_NORMALIZER_FORM)
        probe_require(n_again == n && (n == 0 || memcmp(again, text, n) == 0));
    for (int i = 0; i < 2; i++) {
        weir_buffer_free(&first[i]);
        weir_buffer_free(&second[i]);
    }
}

static void probe_steps(const char *text, size_t n)
{
    static const weir_normalizer_step steps[] = {
        { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFC },
        { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFD },
        { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFKC },
        { .kind = WEIR_NORMALIZER_FORM, .form = WEIR_NFKD },
        { .kind = WEIR_NORMALIZER_NMT },
        { .kind = WEIR_NORMALIZER_LOWERCASE },
        { .kind = WEIR_NORMALIZER_STRIP_ACCENTS },
    };
    weir_buffer repaired = { 0 };
    probe_require(weir_utf8_repair(&repaired, text, n, NULL, 0) == WEIR_OK);
    for (size_t i = 0; repaired.size > 0 && i < sizeof steps / sizeof steps[0]; i++)
        probe_step(&steps[i], repaired.data, repaired.size);
    weir_buffer_free(&repaired);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weir_tokenizer *tokenizers[KINDS];
    if (size < 2) return 0;
    weir_tokenizer **const tokenizer = &tokenizers[data[0] % KINDS];
    if (*tokenizer == NULL) *tokenizer = make(kinds[data[0] % KINDS]);
    const char *const text = (const char *)data + 2;
    const size_t n = size - 2;
    probe_steps(text, n);
    const weir_span plain = { .begin = 0, .end = data[1] < n ? data[1] : n };
    round_trip(*tokenizer, text, n, &(weir_encode_options){ .parse_special = false }, true);
    round_trip(
        *tokenizer, text, n,
        &(weir_encode_options
        ){ .parse_special = true, .plain = &(weir_span){ 0, n }, .n_plain = 1 },
        true
    );
    /* A mark after a token does not compose with it, so the whole text's NFC may be another: only
     * the promises of a stream are checked. */
    round_trip(
        *tokenizer, text, n,
        &(weir_encode_options){ .parse_special = true, .plain = &plain, .n_plain = 1 }, false
    );
    return 0;
}
