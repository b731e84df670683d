/* tests/fuzz/tokenizer_fuzz.c - any bytes as tokenizer.json; what opens must encode and decode a
 * text without breaking a promise. The seeds declare few bytes, so a vocabulary is completed before
 * the last step: else no mutation would get as far as encoding. */
#include "engine/base/utf8.h"
#include "engine/formats/json.h"
#include "engine/text/tokenizer_json.h"
#include "tests/fuzz/text_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char sample[] =
    "It's 1234 <|x|> na\xC3\xAFve e\xCC\x81 \xF0\x9F\x98\x80\r\n\n  \t end \xFF";

static void use(const weir_tokenizer *tokenizer, bool parse)
{
    weir_ids ids = { 0 };
    weir_buffer text = { 0 };
    weir_error error = { 0 };
    weir_encode_options options = {
        .add_special = true, .parse_special = parse, .plain = &(weir_span){ 3, 9 }, .n_plain = 1
    };
    const weir_status status =
        weir_tokenizer_encode(tokenizer, &ids, sample, sizeof sample, &options, &error);
    probe_status(status, &error);
    probe_require(status == WEIR_OK || ids.count == 0);
    for (size_t i = 0; i < ids.count; i++)
        probe_require(weir_vocabulary_at(&tokenizer->vocabulary, ids.data[i]) != NULL);
    probe_require(weir_tokenizer_decode(tokenizer, &text, ids.data, ids.count, false) == WEIR_OK);
    probe_require(text.size == 0 || weir_utf8_valid(text.data, text.size));
    weir_ids_free(&ids);
    weir_buffer_free(&text);
}

static void probe_facts(const weir_tokenizer *tokenizer)
{
    size_t n;
    const int32_t *const stop = weir_tokenizer_stop_ids(tokenizer, &n);
    for (size_t i = 0; i < n; i++)
        probe_require(weir_vocabulary_at(&tokenizer->vocabulary, stop[i]) != NULL);
    probe_require(
        strlen(weir_tokenizer_bos_text(tokenizer)) + strlen(weir_tokenizer_eos_text(tokenizer)) <
        WEIR_VOCABULARY_BYTES
    );
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = { 0 };
    json_t *root = NULL;
    if (weir_json_parse(&root, (const char *)data, size, "fuzz.json", WEIR_JSON_DEPTH, &error) !=
        WEIR_OK)
        return 0;
    weir_tokenizer *const tokenizer = weir_tokenizer_new();
    probe_require(tokenizer != NULL);
    /* The same object serves as tokenizer_config.json, whose keys are others. */
    weir_status status = weir_tokenizer_load_json(tokenizer, root, root, &error);
    probe_status(status, &error);
    if (status == WEIR_OK) {
        if (tokenizer->spm == NULL) probe_add_bytes(&tokenizer->vocabulary, 300);
        status = weir_tokenizer_finish(tokenizer, &error);
        probe_status(status, &error);
    }
    if (status == WEIR_OK) {
        probe_facts(tokenizer);
        use(tokenizer, true);
        use(tokenizer, false);
    }
    weir_tokenizer_close(tokenizer);
    json_decref(root);
    return 0;
}
