/* engine/router/body_model.h - finds the top-level member "model" of a JSON body, byte by byte.
 * Pure: no allocation, a state of fixed size.
 *
 * It reads no more than it needs: a body that is not JSON has no model, and the model's server says
 * what is wrong with it. The first such member counts. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_body_state {
    WEIR_BODY_BEGIN,
    WEIR_BODY_KEY, /* between members, or in the key of one */
    WEIR_BODY_COLON,
    WEIR_BODY_VALUE, /* of "model" */
    WEIR_BODY_SKIP, /* the value of another member */
    WEIR_BODY_FOUND,
    WEIR_BODY_NONE /* the rest does not matter */
} weir_body_state;

/* Zero-initialise. */
typedef struct weir_body_model {
    weir_body_state state;
    bool in_string, is_model, is_whole; /* is_whole: `text` holds all of the string */
    uint8_t escape; /* 1: after a backslash; 2..5: digits of \u that are missing, plus 1 */
    uint32_t code;
    int64_t depth; /* of brackets in the value */
    size_t n;
    char text[132]; /* the current key, or the model when it was found; NUL-terminated */
} weir_body_model;

/* Returns true when nothing further is needed: FOUND or NONE. A model that is longer than `text`,
 * or not ASCII, is FOUND with a name that no model has. */
bool weir_body_model_read(weir_body_model *model, const char *bytes, size_t n);

#ifdef __cplusplus
}
#endif
