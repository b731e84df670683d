/* tools/convert/peer.h - another program that computes the logits of prompts: one that speaks the
 * protocol below, for llama.cpp and transformers verify_peer.py.
 *
 * The program reads lines of JSON from its standard input: {"model": PATH, "generate": N}, then for
 * each prompt its ids. For each prompt it writes a line {"rows": T, "vocab": V}, T x V logits as
 * little-endian f32, and a line with the N ids that follow greedily: [1, 2]. */
#pragma once
#include <sys/types.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_peer {
    const char *name; /* for messages; borrowed */
    int fd; /* its standard output */
    pid_t process; /* 0: none */
} weir_peer;

/* Starts argv[0], found in PATH, with these lines to read. Its messages go to stderr.
 * errors : EIO */
WEIR_MUST_CHECK weir_status weir_peer_start(
    weir_peer *peer, const char *name, const char *const *argv, const weir_buffer *lines,
    weir_error *error
);
/* Reads the answer to the next prompt: logits [n_rows, n_vocab], ids [n_ids].
 * errors : EFORMAT, EMISMATCH: not what the protocol says, or another vocabulary; EIO */
WEIR_MUST_CHECK weir_status weir_peer_read(
    weir_peer *peer, float *logits, int64_t n_rows, int64_t n_vocab, int32_t *ids, int64_t n_ids,
    weir_error *error
);
/* Ends the program if it still runs, and waits for it. Idempotent. */
void weir_peer_stop(weir_peer *peer);

typedef struct weir_peer_file {
    const char *name, *text;
} weir_peer_file;
extern const weir_peer_file weir_peer_files[]; /* verify_peer.py */
const char *weir_peer_script(void); /* its text */

#ifdef __cplusplus
}
#endif
