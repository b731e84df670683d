/* engine/toolcalls/detect.h - finds the format of a chat template by rendering a call with it and
 * reading what it prints; if it prints none, by what it tells the model. */
#pragma once
#include "engine/text/chat.h"
#include "engine/toolcalls/format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *out: the format; NULL: the template prints no calls, or in an unknown form. bos and eos: the
 * texts of these tokens.
 * errors : ENOMEM */
WEIR_MUST_CHECK weir_status weir_chat_format_detect(
    const weir_chat_format **out, const weir_chat_template *chat, const char *bos, const char *eos
);

#ifdef __cplusplus
}
#endif
