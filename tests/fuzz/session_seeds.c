/* tests/fuzz/session_seeds.c - session_seeds FOLDER writes the seeds of session_fuzz: files of the
 * real writer whose pages are those that the target keeps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/session_probe.h"

enum { MOST_TOKENS = 150, BLOCKS = 3, STATE_FLOATS = 16 };

typedef struct seed {
    const char *name, *salt;
    int32_t n_tokens, places[2], n_states;
    bool is_automatic;
    int32_t rows[2]; /* that a policy left of each layer's head; 0: all are there */
    weir_session_form form; /* of a state of a database */
    bool is_foreign; /* its pages are of another size than those of the target */
    bool has_window; /* a layer with one */
} seed;

static const seed seeds[] = {
    { "dense", WEIR_PREFIX_NO_SALT, 70, { 0 }, 0, false, { 0 }, { 0 }, false, false },
    { "hybrid", "key:salt", 130, { 64, 130 }, 2, false, { 0 }, { 0 }, false, false },
    { "automatic", "s", 5, { 5 }, 1, true, { 0 }, { 0 }, false, false },
    { "cut", WEIR_PREFIX_NO_SALT, 150, { 150 }, 1, false, { 40, 70 }, { 0 }, false, true },
    { "state",
      "s",
      144,
      { 144 },
      1,
      false,
      { 0 },
      { .state_bits = 4, .n_rest = 6, .packed_bytes = 24, .is_merged = true },
      false,
      false },
    { "window", WEIR_PREFIX_NO_SALT, 150, { 0 }, 0, false, { 0 }, { 0 }, false, true },
    { "foreign", WEIR_PREFIX_NO_SALT, 5, { 2, 5 }, 2, false, { 0 }, { 0 }, true, false },
};

/* Numbers that differ from place to place, small enough to be ids and finite rows. */
static void fill(unsigned char *bytes, size_t n, size_t from)
{
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)((from + i) * 7 % 61);
}

static weir_status write_seed(const seed *s, const char *folder, weir_error *error)
{
    static unsigned char pages[BLOCKS * 2][1 << 14];
    int32_t tokens[MOST_TOKENS];
    float state[STATE_FLOATS];
    void *table[2 * BLOCKS];
    weir_prefix_snapshot marks[2];
    char path[4096];
    size_t n_bytes;
    static const weir_kv_geometry few[] = {
        { .n_heads = 1, .key_dim = 4, .value_dim = 4 },
        { .n_heads = 1, .key_dim = 4, .value_dim = 4, .first_head = 1 }
    };
    const weir_kv_windows_spec none = { 0 },
                               windows = s->has_window ? *session_probe_windows() : none;
    static unsigned char window[BLOCKS << 14];
    static const int32_t blocks[BLOCKS] = { 2, 0, 1 };
    weir_kv_spec narrow = *session_probe_spec();
    narrow.geometry = few;
    const weir_kv_spec *const spec = s->is_foreign ? &narrow : session_probe_spec();
    const weir_kv_geometry layers[] = { spec->geometry[0], spec->geometry[1],
                                        session_probe_windows()->geometry[0] };
    const weir_session_identity identity = { .model = { 1, 2 },
                                             .tokenizer = { 3, 4 },
                                             .format = "f16",
                                             .policy = "full:0",
                                             .n_layers = spec->n_layers,
                                             .n_heads = weir_kv_n_heads(spec),
                                             .geometry = layers,
                                             .n_window_layers = windows.n_layers,
                                             .window = weir_kv_windows_length(&windows),
                                             .window_block_bytes =
                                                 (int64_t)weir_kv_windows_block_bytes(&windows),
                                             .state_bytes =
                                                 s->n_states > 0 ? (int64_t)sizeof state : 0,
                                             .block_bytes = (int64_t)weir_kv_block_bytes(spec),
                                             .numerics = { .isa = "v4+bf16",
                                                           .device = "gpu sm_90 Title",
                                                           .activations = "fast",
                                                           .adapter = "none",
                                                           .pins = "add=omp.add.v3",
                                                           .is_mixed = s->is_foreign } };
    WEIR_ASSERT(weir_kv_page_bytes(spec, 0) <= sizeof pages[0] && s->n_tokens <= MOST_TOKENS);
    for (int32_t i = 0; i < MOST_TOKENS; i++) tokens[i] = i * 31 % SESSION_PROBE_VOCAB;
    for (int i = 0; i < STATE_FLOATS; i++) state[i] = (float)i - 3.5f;
    for (int i = 0; i < 2 * BLOCKS; i++) fill(table[i] = pages[i], sizeof pages[i], (size_t)i);
    fill(window, sizeof window, 11);
    for (int i = 0; i < s->n_states; i++) marks[i] = (weir_prefix_snapshot){ s->places[i], state };
    unsigned char state_of_policy[96];
    fill(state_of_policy, sizeof state_of_policy, 3);
    const weir_session_pruned cut = { .head_rows = s->rows,
                                      .past = { .policy = { 5, 6 },
                                                .budget = 40,
                                                .n_pinned = 2,
                                                .n_turns = 2,
                                                .turns = { { 60, 80 }, { 120, 150 } } },
                                      .policy = "h2o sinks=4,recent=8",
                                      .state = state_of_policy,
                                      .state_bytes = sizeof state_of_policy };
    const weir_session_content content = { .pruned = s->rows[0] > 0 ? &cut : NULL,
                                           .tokens = tokens,
                                           .n_tokens = s->n_tokens,
                                           .n_states = s->n_states,
                                           .salt = s->salt,
                                           .pages = table,
                                           .page_stride = BLOCKS,
                                           .spec = spec,
                                           .windows = { (char *)window, blocks },
                                           .states = marks,
                                           .is_automatic = s->is_automatic,
                                           .form = s->form };
    (void)snprintf(path, sizeof path, "%s/%s.session", folder, s->name);
    return weir_session_write(path, &identity, &content, &n_bytes, error);
}

int main(int argc, char **argv)
{
    weir_error error = { 0 };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        if (write_seed(&seeds[i], argv[1], &error) == WEIR_OK) continue;
        (void)fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    return 0;
}
