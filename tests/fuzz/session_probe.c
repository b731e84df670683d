#include "tests/fuzz/session_probe.h"

#include <stdlib.h>
#include <string.h>

static const weir_kv_pair formats[] = { { WEIR_KV_F16, WEIR_KV_F16 },
                                        { WEIR_KV_F16, WEIR_KV_F16 } };
enum { LAYERS = 2, HEADS = 2 };
static const weir_kv_geometry geometry[LAYERS] = {
    { .n_heads = 1, .key_dim = 16, .value_dim = 16 },
    { .n_heads = 1, .key_dim = 16, .value_dim = 16, .first_head = 1 }
};
static const weir_kv_spec own = { .n_layers = LAYERS, .geometry = geometry, .formats = formats };
/* Of a file with rows of a window, which the spec of the others does not have. */
static const weir_kv_geometry window_geometry = {
    .n_heads = 1, .key_dim = 16, .value_dim = 16, .window = 70
};
static const weir_kv_windows_spec windows = { .n_layers = 1,
                                              .geometry = &window_geometry,
                                              .formats = formats };

const weir_kv_windows_spec *session_probe_windows(void) { return &windows; }

const weir_kv_spec *session_probe_spec(void) { return &own; }

static void require(bool condition)
{
    if (!condition) abort();
}

/* What the header promises; all of it lies in the file, so its size bounds what is allocated. */
typedef struct buffers {
    int32_t *tokens;
    float *state, *states[WEIR_SESSION_STATES]; /* all states go to one place */
    char *pages; /* [n_pages]: each has its own, because they are hashed after many have come */
    void **table;
    int32_t rows[HEADS];
    char *policy, *open;
    int32_t *blocks; /* of the window, one after the other, at window */
    char *window;
} buffers;

static void take_buffers(buffers *b, const weir_session_header *h, size_t n_pages)
{
    b->tokens = malloc(((size_t)h->n_tokens + (size_t)h->form.n_rest) * sizeof *b->tokens);
    b->state = malloc(weir_session_state_bytes(h) + 1);
    const size_t page_bytes = h->identity.block_bytes == (int64_t)weir_kv_block_bytes(&own)
                                  ? weir_kv_page_bytes(&own, 0)
                                  : 0;
    b->pages = malloc(n_pages * page_bytes + 1);
    b->table = malloc(n_pages * sizeof *b->table);
    b->policy = malloc(h->policy_bytes + 1);
    b->open = malloc(h->unsealed_bytes + 1);
    const size_t n_blocks = n_pages / HEADS;
    b->blocks = malloc(n_blocks * sizeof *b->blocks);
    b->window = malloc(n_blocks * weir_kv_windows_block_bytes(&windows));
    require(b->blocks != NULL && b->window != NULL);
    for (size_t i = 0; i < n_blocks; i++) b->blocks[i] = (int32_t)i;
    require(b->policy != NULL && b->open != NULL);
    require(b->tokens != NULL && b->pages != NULL && b->state != NULL && b->table != NULL);
    for (size_t i = 0; i < n_pages; i++) b->table[i] = b->pages + i * page_bytes;
    for (size_t i = 0; i < WEIR_SESSION_STATES; i++) b->states[i] = b->state;
}

static weir_status count(weir_status status, int *n_sections)
{
    *n_sections += status == WEIR_OK;
    return status;
}

/* Rows and turns of the sequence, a policy's text with its end, all of it within what was read. */
static void require_sound(
    const weir_session_header *h, const buffers *b, const weir_session_pruned *cut
)
{
    int32_t at = 0;
    for (int i = 0; i < HEADS; i++) require(b->rows[i] >= 0 && b->rows[i] <= h->n_tokens);
    require(
        cut->past.n_turns >= 1 && cut->past.n_turns <= WEIR_TURNS && cut->past.budget >= 1 &&
        cut->past.n_pinned >= 0
    );
    for (int32_t i = 0; i < cut->past.n_turns; i++) {
        require(
            cut->past.turns[i].prompt > at && cut->past.turns[i].end >= cut->past.turns[i].prompt
        );
        at = cut->past.turns[i].end;
    }
    require(
        at == h->n_tokens && strlen(cut->policy) >= 1 && strlen(cut->policy) <= WEIR_SESSION_OPTIONS
    );
    require(
        cut->policy > b->policy &&
        (const char *)cut->state + cut->state_bytes <= b->policy + h->policy_bytes + 1
    );
}

static weir_status read_cut(
    weir_session_reader *reader, buffers *b, int64_t n_blocks, int *n_sections, weir_error *error
)
{
    weir_session_pruned cut = { 0 };
    WEIR_TRY(count(weir_session_read_rows(reader, b->rows, &own, error), n_sections));
    WEIR_TRY(count(weir_session_read_policy(reader, &cut, b->policy, error), n_sections));
    require_sound(weir_session_header_of(reader), b, &cut);
    WEIR_TRY(count(weir_session_read_unsealed(reader, b->open, error), n_sections));
    return count(
        weir_session_read_pruned_pages(reader, b->table, n_blocks, b->rows, &own, error), n_sections
    );
}

static weir_status read_sections(
    weir_session_reader *reader, buffers *b, int64_t n_blocks, int *n_sections, weir_error *error
)
{
    const weir_session_header *const h = weir_session_header_of(reader);
    int32_t places[WEIR_SESSION_STATES];
    char salt[WEIR_PREFIX_SALT + 1];
    const weir_kv_geometry layers_here[] = { geometry[0], geometry[1], window_geometry };
    if (h->identity.n_layers != LAYERS || h->identity.n_heads != HEADS ||
        h->identity.n_window_layers > 1)
        return weir_error_set(error, WEIR_EMISMATCH, "other layers or heads");
    const weir_status layers =
        count(weir_session_check_layers(reader, layers_here, error), n_sections);
    if (layers != WEIR_EMISMATCH) WEIR_TRY(layers); /* else it is refused at the end */
    WEIR_TRY(
        count(weir_session_read_tokens(reader, b->tokens, SESSION_PROBE_VOCAB, error), n_sections)
    );
    for (int32_t i = 0; i < h->n_tokens + h->form.n_rest; i++)
        require(b->tokens[i] >= 0 && b->tokens[i] < SESSION_PROBE_VOCAB);
    WEIR_TRY(count(weir_session_read_salt(reader, salt, error), n_sections));
    WEIR_TRY(count(weir_session_read_places(reader, places, error), n_sections));
    for (int32_t i = 0; i < h->n_states; i++) require(places[i] >= 1 && places[i] <= h->n_tokens);
    WEIR_TRY(count(weir_session_read_states(reader, b->states, error), n_sections));
    if (h->is_pruned)
        WEIR_TRY(read_cut(reader, b, n_blocks, n_sections, error));
    else
        WEIR_TRY(count(weir_session_read_pages(reader, b->table, n_blocks, &own, error), n_sections)
        );
    static const weir_kv_windows_spec none = { 0 };
    const weir_session_windows to = { b->window, b->blocks };
    const bool has_windows = h->identity.n_window_layers > 0;
    WEIR_TRY(count(
        weir_session_read_windows(reader, &to, has_windows ? &windows : &none, error), n_sections
    ));
    return layers;
}

weir_status session_probe_read(const char *path, size_t size, int *n_sections, weir_error *error)
{
    weir_session_reader *reader = NULL;
    weir_status status = weir_session_open(&reader, path, error);
    *n_sections = 0;
    require((status == WEIR_OK) == (reader != NULL));
    if (status == WEIR_OK) {
        const weir_session_header *const h = weir_session_header_of(reader);
        require(h->bytes == size && h->n_tokens >= 1 && h->n_states <= WEIR_SESSION_STATES);
        const size_t n_blocks = ((size_t)h->n_tokens + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
        require(
            (size_t)h->n_tokens * sizeof(int32_t) <= size &&
            (h->is_pruned || n_blocks * (size_t)h->identity.block_bytes <= size)
        );
        require(
            h->form.n_rest >= 0 && (size_t)h->form.n_rest * sizeof(int32_t) <= size &&
            weir_session_state_bytes(h) * (size_t)h->n_states <= size
        );
        require(h->policy_bytes <= size && h->unsealed_bytes <= size && h->pages_bytes <= size);
        buffers b;
        take_buffers(&b, h, HEADS * n_blocks);
        status = read_sections(reader, &b, (int64_t)n_blocks, n_sections, error);
        free(b.tokens);
        free(b.pages);
        free(b.state);
        free(b.table);
        free(b.policy);
        free(b.open);
        free(b.blocks);
        free(b.window);
    }
    require(status == WEIR_OK || error->text[0] != '\0');
    weir_session_close(reader);
    return status;
}
