/* engine/model/rope_internal.h - RoPE scaling as checkpoints say it, shared by rope.c and
 * longrope.c. */
#pragma once
#include "engine/model/rope.h"

/* A group of metadata. */
typedef struct scaling {
    const weir_tensor_directory *directory;
    char path[256];  /* of the metadata group; "" if there is none */
    char wrong[512]; /* the first value that is not a number; "" if there is none */
    bool is_gguf;
} scaling;

enum { ROPE_MOST = 4096 }; /* the most frequencies (shape.h) */

/* rope.c: finds the first metadata group of [rope] scaling that names a type; "default" if there is
 * none. */
WEIR_MUST_CHECK weir_status
rope_find_group(scaling *s, const weir_arch *arch, const char **type, weir_error *error);
/* The value under one of two names (config.json, GGUF) of the group; `full` is the whole
 * name. */
bool rope_lookup(
    const scaling *s, char full[512], const char *hf, const char *gguf, weir_meta *out
);
double rope_number(scaling *s, const char *hf, const char *gguf, double otherwise);
/* The context for which the model was trained before it was extended. */
double rope_original(scaling *s, const weir_shape *shape);

/* longrope.c: divides the frequencies [half] by the list of factors that the context asks for. */
WEIR_MUST_CHECK weir_status rope_apply_longrope(
    scaling *s, float *frequencies, float *magnitude, const weir_shape *shape,
    const weir_rope_context *context, weir_error *error
);
