/* tools/convert/check_tokenizer.c - GGUF says less about a tokenizer than tokenizer.json: what it
 * leaves out must not matter. */
#include <stdio.h>
#include <string.h>

#include "tools/convert/tokenizer_keys.h"

/* Letters, marks and digits of several scripts, spaces, contractions, code, what is no UTF-8 in one
 * piece, and texts that are decomposed. */
static const char *const texts[] = {
    "",
    " ",
    "Hello, world! It's 12345 o'clock; we'LL see 3.14159.",
    "  leading spaces\tand\ttabs  \n\n\n  and lines \r\n ends ",
    "for (int i = 0; i < n; i++) { x[i] += y[i] * 0x1F; } // comment\n\n",
    "d\xC3\xA9j\xC3\xA0 vu na\xC3\xAFve \xC3\x85ngstr\xC3\xB6m \xC3\x9F",
    "de\xCC\x81ja\xCC\x80 A\xCC\x8A e\xCC\x81\xCC\xA3",
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82, \xD0\xBC\xD0\xB8\xD1\x80! 2024",
    "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C\xEF\xBC\x8C\xE4\xBB\x8A 5 \xE5\xBA\xA6",
    "\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF\xE3\x82\xAB\xE3\x83\x8A",
    "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 \xD8\xB9\xD8\xB1\xD8\xA8\xD9\x8A",
    "\xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80",
    "\xE1\x9E\x80\xE1\x9E\xB6\xE1\x9E\x93\xE1\x9F\x8B\xE1\x9E\x8F\xE1\x9F\x82",
    "\xF0\x9F\x98\x80\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7",
    "emoji \xE2\x9C\x93",
    "\xE2\x96\x81 lower block, \xC2\xA0no-break, \xE3\x80\x80wide \xE2\x80\x94 dash\xE2\x80\xA6",
    "100,000 + 2^10 = 1e5 (a_b-c) <html> &amp; \"quoted\" 'single' `tick`",
    "<s> </s> <|im_start|>user\nHi<|im_end|>\n<|endoftext|> [INST] <unk> <0x41>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0000000000000000 ................ \n \n \n",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
};

static weir_status compare(
    const weir_tokenizer *a, const weir_tokenizer *b, const char *text, bool parses,
    weir_error *error
)
{
    const weir_encode_options options = { .add_special = true, .parse_special = parses };
    weir_ids own = { 0 }, other = { 0 };
    weir_status status = weir_tokenizer_encode(a, &own, text, strlen(text), &options, error);
    if (status == WEIR_OK)
        status = weir_tokenizer_encode(b, &other, text, strlen(text), &options, error);
    size_t at = 0;
    while (at < own.count && at < other.count && own.data[at] == other.data[at]) at++;
    if (status == WEIR_OK && (at < own.count || at < other.count))
        status = weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "the tokenizer of the GGUF file would give other ids than tokenizer.json: token %zu of "
            "\"%.80s\" would be %d, not %d; --no-tokenizer leaves it out",
            at, text, at < other.count ? (int)other.data[at] : -1,
            at < own.count ? (int)own.data[at] : -1
        );
    weir_ids_free(&own);
    weir_ids_free(&other);
    return status;
}

weir_status weir_check_tokenizer(
    const char *path, const weir_tokenizer *tokenizer, weir_error *error
)
{
    weir_tensor_directory *file = NULL;
    weir_tokenizer *written = NULL;
    weir_status status = weir_tensor_directory_open(&file, path, error);
    if (status == WEIR_OK) status = weir_tokenizer_open(&written, file, error);
    for (size_t i = 0; status == WEIR_OK && i < sizeof texts / sizeof texts[0]; i++) {
        status = compare(tokenizer, written, texts[i], false, error);
        if (status == WEIR_OK) status = compare(tokenizer, written, texts[i], true, error);
    }
    weir_tokenizer_close(written);
    weir_tensor_directory_close(file);
    return status;
}
