/* tests/fuzz/tokenizer_config_fuzz.c - any bytes as the tokenizer_config.json next to a tokenizer
 * that is right. */
#include "engine/base/utf8.h"
#include "engine/formats/json.h"
#include "engine/text/tokenizer_json.h"
#include "tests/fuzz/text_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char good[] = "{\"added_tokens\":[\n"
                           "{\"id\":200,\"content\":\"<|x|>\",\"special\":true}],\n"
                           "\"normalizer\":null,\"decoder\":{\"type\":\"ByteLevel\"},\n"
                           "\"pre_tokenizer\":\n"
                           "{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\n"
                           "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\n"
                           "\"<\":2,\"|\":3,\"x\":4,\">\":5,\"ab\":6},\n"
                           "\"merges\":[\"a b\"]}}\n";

static json_t *parse(const char *text, size_t n)
{
    json_t *root = NULL;
    weir_error error = { 0 };
    const weir_status status = weir_json_parse(&root, text, n, "fuzz", WEIR_JSON_DEPTH, &error);
    probe_status(status, &error);
    return status == WEIR_OK ? root : NULL;
}

/* What the server asks of it, and a text with some of its tokens. */
static void use(const weir_tokenizer *tokenizer)
{
    static const char sample[] = "ab <|x|><y>\xC3\xA9";
    const weir_encode_options options = { .add_special = true, .parse_special = true };
    const size_t length = sizeof sample - 1;
    weir_ids ids = { 0 };
    weir_buffer text = { 0 };
    weir_error error = { 0 };
    size_t n;
    weir_status status;
    status = weir_tokenizer_encode(tokenizer, &ids, sample, length, &options, &error);
    probe_status(status, &error);
    status = weir_tokenizer_decode(tokenizer, &text, ids.data, ids.count, false);
    probe_require(status == WEIR_OK);
    probe_require(text.size == 0 || weir_utf8_valid(text.data, text.size));
    const int32_t *const stop = weir_tokenizer_stop_ids(tokenizer, &n);
    for (size_t i = 0; i < n; i++) {
        probe_require(weir_vocabulary_at(&tokenizer->vocabulary, stop[i]) != NULL);
    }
    for (size_t i = 0; i < ids.count; i++)
        probe_require(weir_vocabulary_at(&tokenizer->vocabulary, ids.data[i]) != NULL);
    weir_ids_free(&ids);
    weir_buffer_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = { 0 };
    json_t *const config = parse((const char *)data, size);
    if (config == NULL) return 0;
    json_t *const root = parse(good, sizeof good - 1);
    weir_tokenizer *const tokenizer = weir_tokenizer_new();
    probe_require(root != NULL && tokenizer != NULL);
    weir_status status = weir_tokenizer_load_json(tokenizer, root, config, &error);
    probe_status(status, &error);
    if (status == WEIR_OK) {
        probe_add_bytes(&tokenizer->vocabulary, 300);
        status = weir_tokenizer_finish(tokenizer, &error);
        probe_status(status, &error);
    }
    if (status == WEIR_OK) use(tokenizer);
    weir_tokenizer_close(tokenizer);
    json_decref(config);
    json_decref(root);
    return 0;
}
