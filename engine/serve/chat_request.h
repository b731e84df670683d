/* engine/serve/chat_request.h - the fields that exist only in chat requests. */
#pragma once
#include "engine/serve/openai_request.h"

WEIR_MUST_CHECK weir_status
weir_chat_request_read(weir_openai_request *request, const json_t *root, weir_api_error *error);
