/* engine/router/server_head.h - the head that a model's server gets: only fields that servers read,
 * so that none of one connection reaches the other, and no parameter `model`, which servers do not
 * have. Pure: no socket, no allocation. */
#pragma once
#include "engine/serve/http_head.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_QUERY_MODEL = 132,
    WEIR_SERVER_HEAD_MORE = 512, /* bytes that it may have beyond those of the client's head */
};

/* Decodes the parameter `model` of a target, the last one; "": there is none. One that is too long
 * or broken is a name that no model has. */
void weir_query_model(char out[WEIR_QUERY_MODEL], const char *target);
/* Writes the head for a complete one that was read from `bytes`. Returns its bytes; 0: `size` is
 * too small. */
size_t weir_server_head(char *out, size_t size, const weir_http_head *head, const char *bytes);

#ifdef __cplusplus
}
#endif
