/* tests/unit/text/pieces.h - where a tokenizer cuts a text. */
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/text/repair.h"
#include "engine/text/tokenizer_internal.h"

/* Byte lengths of the pre-tokenizer's pieces of the normalised text, without added tokens. */
inline weir_status piece_lengths(
    const weir_tokenizer *tokenizer, std::vector<int32_t> *out, const std::string &text,
    weir_error *error
)
{
    weir_buffer copy = {}, buffers[2] = {};
    weir_matcher matcher = {};
    weir_status status = weir_matcher_init(&matcher);
    if (status == WEIR_OK) status = weir_utf8_repair(&copy, text.data(), text.size(), nullptr, 0);
    const char *at = copy.data;
    size_t n = copy.size;
    if (status == WEIR_OK)
        status = weir_normalizer_run(weir_tokenizer_normalizer(tokenizer), buffers, &at, &n);
    if (status == WEIR_OK)
        status = weir_pretokenizer_run(
            &tokenizer->pretokenizer, &matcher, at, n,
            [](void *lengths, const char *, size_t length) {
                static_cast<std::vector<int32_t> *>(lengths)->push_back(static_cast<int32_t>(length)
                );
                return WEIR_OK;
            },
            out, error
        );
    weir_matcher_free(&matcher);
    weir_buffer_free(&copy);
    for (weir_buffer &buffer : buffers) weir_buffer_free(&buffer);
    return status;
}
