/* engine/session/file/numerics.h - what decides the bits of rows and states, besides the model and
 * its formats: equal numerics compute equal bits. Files carry those that they were computed with.
 *
 * Threads, batches and chunks are not among them: no bit depends on them. Fields are texts, so that
 * a file of another machine can be described by a program that does not know its kernels. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(field, bytes, name): name as in messages. */
#define WEIR_NUMERICS_FIELDS(X)                                                                    \
    X(isa, 24, "instruction set") /* weir_caps_print */                                            \
    X(device, 64, "device") /* "cpu", "gpu sm_90 TITLE" */                                         \
    X(activations, 8, "activations") /* "fast" or "f32" */                                         \
    X(adapter, 40, "adapter") /* digest of its tensors; "none" */                                  \
    X(pins, 184, "kernel pins") /* "op=kernel,op=kernel" in the order of ops; "none" */

typedef struct weir_numerics {
#define X(field, bytes, name) char field[bytes];
    WEIR_NUMERICS_FIELDS(X)
#undef X
    /* The first rows were computed with these numerics, later ones with others: equal to none. */
    bool is_mixed;
} weir_numerics;

enum {
    WEIR_NUMERICS_BYTES = 0 /* of the fields in a file */
#define X(field, bytes, name) +(bytes)
    WEIR_NUMERICS_FIELDS(X)
#undef X
        ,
    WEIR_NUMERICS_TEXT = 480
};

/* True if each field is not empty and has only letters, digits, spaces and "._+=,-". */
bool weir_numerics_are_sound(const weir_numerics *numerics);
/* Makes a field of any text: other characters become '_', what does not fit is cut off. */
void weir_numerics_field(char *out, size_t bytes, const char *text);
bool weir_numerics_are_equal(const weir_numerics *a, const weir_numerics *b);
/* Prints all of them: "instruction set v3, device cpu, activations fast, adapter none, kernel pins
 * none"; printable ASCII without quotes. */
void weir_numerics_print(char out[WEIR_NUMERICS_TEXT], const weir_numerics *numerics);
void weir_numerics_digest(uint64_t out[2], const weir_numerics *numerics);
/* Returns EMISMATCH with a message that says what differs, unless they are equal. path: of the
 * file. */
WEIR_MUST_CHECK weir_status weir_numerics_check(
    const weir_numerics *theirs, const weir_numerics *own, const char *path, weir_error *error
);

/* The fields as in files, and back. Returns false for a text that is not sound. */
void weir_numerics_encode(unsigned char out[WEIR_NUMERICS_BYTES], const weir_numerics *numerics);
bool weir_numerics_decode(weir_numerics *out, const unsigned char bytes[WEIR_NUMERICS_BYTES]);

#ifdef __cplusplus
}
#endif
