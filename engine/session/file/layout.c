/* engine/session/file/layout.c - encodes and decodes the header of a session file; every number is
 * checked. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/bytes.h"
#include "engine/base/checked.h"
#include "engine/session/file/session_file_internal.h"

enum { /* byte offsets in the header */
       AT_VERSION = 8,
       AT_HEADER_BYTES = 12,
       AT_FILE_BYTES = 16,
       AT_CREATED = 24,
       AT_MODEL = 32,
       AT_TOKENIZER = 48,
       AT_FORMAT = 64,
       AT_POLICY = 144,
       AT_PAGE_TOKENS = 208,
       AT_PAGE_LAYOUT = 212,
       AT_SHAPE = 216,
       AT_N_TOKENS = 248,
       AT_N_STATES = 256,
       AT_FLAGS = 264,
       AT_N_SECTIONS = 272,
       AT_SECTIONS = 280,
       SECTION_BYTES = 40,
       AT_SINKS = AT_SECTIONS + SESSION_SECTIONS * SECTION_BYTES,
       AT_SINK_FORMAT = AT_SINKS + 16,
       AT_FORM = AT_SINK_FORMAT + WEIR_SESSION_SINK_FORMAT,
       AT_NUMERICS = AT_FORM + 24,
       AT_NUMERICS_FLAGS = AT_NUMERICS + WEIR_NUMERICS_BYTES,
       AT_WINDOWS = AT_NUMERICS_FLAGS + 8,
       AT_END = AT_WINDOWS + 24,
       AT_CHECKSUM = SESSION_HEADER - 8,
       FLAG_AUTOMATIC = 1,
       FLAG_MERGED = 1, /* in the form */
       FLAG_MIXED = 1 /* in the numerics */
};

void session_put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (8 * i));
}

void session_put64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++) at[i] = (unsigned char)(value >> (8 * i));
}

void session_put_layer(unsigned char *at, const weir_kv_geometry *layer)
{
    session_put32(at, (uint32_t)layer->n_heads);
    session_put32(at + 4, (uint32_t)layer->key_dim);
    session_put32(at + 8, (uint32_t)weir_kv_stored_value_dim(layer));
    session_put32(at + 12, (uint32_t)layer->window);
}

uint32_t session_get32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint64_t session_get64(const unsigned char *at)
{
    return session_get32(at) | (uint64_t)session_get32(at + 4) << 32;
}

static int at_section(int i) { return AT_SECTIONS + i * SECTION_BYTES; }

static bool is_size(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most;
}

static bool windows_are_sane(const weir_session_identity *id)
{
    const bool any = id->n_window_layers > 0;
    return is_size(id->n_window_layers, 0, 1 << 16) &&
           is_size(id->window, any, any ? INT32_MAX : 0) &&
           is_size(id->window_block_bytes, any, any ? INT64_C(1) << 36 : 0);
}

static bool pruned_is_sane(const weir_session_header *header)
{
    enum { LEAST = SESSION_POLICY_FIXED + SESSION_TURN };
    if (!header->is_pruned) return true;
    return header->n_states <= 1 && header->policy_bytes >= LEAST &&
           header->policy_bytes <= (size_t)1 << 40 && header->unsealed_bytes <= (size_t)1 << 40;
}

static bool form_is_sane(const weir_session_header *header)
{
    const weir_session_form *const form = &header->form;
    const bool is_packed = form->state_bits != 0;
    if (!weir_session_has_form(header)) return form->n_rest == 0 && form->packed_bytes == 0;
    return !header->is_pruned && (!is_packed || form->state_bits == 8 || form->state_bits == 4) &&
           (form->packed_bytes > 0) == is_packed && form->packed_bytes <= (size_t)1 << 40 &&
           (header->n_states == 1 || weir_session_form_is_exact(form)) && form->n_rest >= 0 &&
           form->n_rest <= INT32_MAX - header->n_tokens;
}

size_t weir_session_state_bytes(const weir_session_header *header)
{
    return header->form.state_bits != 0 ? header->form.packed_bytes
                                        : (size_t)header->identity.state_bytes;
}

bool session_layout_of(session_layout *layout, const weir_session_header *header)
{
    const weir_session_identity *const id = &header->identity;
    const bool is_sane =
        windows_are_sane(id) &&
        is_size(id->n_layers, id->state_bytes > 0 || id->n_window_layers > 0 ? 0 : 1, 1 << 16) &&
        is_size(id->n_heads, id->n_layers, id->n_layers > 0 ? 1 << 24 : 0) &&
        is_size(id->block_bytes, id->n_layers > 0, id->n_layers > 0 ? INT64_C(1) << 36 : 0) &&
        is_size(id->state_bytes, 0, INT64_C(1) << 40) && is_size(id->n_sinks, 0, 1 << 24) &&
        is_size(id->sink_block_bytes, id->n_sinks > 0, id->n_sinks > 0 ? INT64_C(1) << 36 : 0) &&
        (id->n_sinks > 0) == (id->sink_format[0] != '\0') && header->n_tokens >= 1 &&
        header->n_states >= 0 && header->n_states <= WEIR_SESSION_STATES &&
        header->n_states <= header->n_tokens && (header->n_states == 0) == (id->state_bytes == 0) &&
        header->salt_bytes >= 1 && header->salt_bytes <= WEIR_PREFIX_SALT;
    if (!is_sane || !pruned_is_sane(header) || !form_is_sane(header)) return false;
    layout->n_sections = header->is_pruned ? SESSION_SECTIONS : SESSION_SECTIONS_WHOLE;
    layout->n_heads = id->n_heads;
    layout->n_blocks = ((int64_t)header->n_tokens + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS;
    const int64_t before = (int64_t)header->n_tokens + 1 - id->window;
    layout->first_window = id->n_window_layers == 0 ? layout->n_blocks
                           : before > 0             ? before / WEIR_PAGE_TOKENS
                                                    : 0;
    size_t sizes[SESSION_SECTIONS] = {
        [SESSION_LAYERS] = (size_t)(id->n_layers + id->n_window_layers) * SESSION_LAYER,
        [SESSION_TOKENS] = ((size_t)header->n_tokens + (size_t)header->form.n_rest) * 4,
        [SESSION_SALT] = header->salt_bytes,
        [SESSION_PLACES] = (size_t)header->n_states * 4,
        [SESSION_STATES] = (size_t)header->n_states * weir_session_state_bytes(header)
    };
    const int64_t sinks = id->n_sinks < layout->n_blocks ? id->n_sinks : layout->n_blocks;
    size_t sink_bytes;
    if (!weir_mul_size(
            &sizes[SESSION_PAGES], (size_t)(layout->n_blocks - sinks), (size_t)id->block_bytes
        ) ||
        !weir_mul_size(&sink_bytes, (size_t)sinks, (size_t)id->sink_block_bytes) ||
        !weir_add_size(&sizes[SESSION_PAGES], sizes[SESSION_PAGES], sink_bytes) ||
        !weir_mul_size(
            &sizes[SESSION_WINDOWS], (size_t)(layout->n_blocks - layout->first_window),
            (size_t)id->window_block_bytes
        ))
        return false;
    if (header->is_pruned) {
        if (header->pages_bytes > sizes[SESSION_PAGES]) return false;
        sizes[SESSION_PAGES] = header->pages_bytes;
        sizes[SESSION_ROWS] = (size_t)layout->n_heads * sizeof(int32_t);
        sizes[SESSION_POLICY_STATE] = header->policy_bytes;
        sizes[SESSION_UNSEALED_ROWS] = header->unsealed_bytes;
    }
    size_t at = SESSION_HEADER;
    for (int i = 0; i < layout->n_sections; i++) {
        layout->sections[i] = (session_section){ .offset = at, .size = sizes[i] };
        size_t padded;
        if (!weir_align_size(&padded, sizes[i], WEIR_SESSION_ALIGNMENT) ||
            !weir_add_size(&at, at, padded))
            return false;
    }
    layout->file_bytes = at;
    return at <= INT64_MAX;
}

size_t session_pruned_pages_bytes(const weir_kv_spec *spec, const int32_t *head_rows)
{
    size_t bytes = 0;
    for (int64_t h = 0; h < weir_kv_n_heads(spec); h++)
        for (int64_t p = 0; p < session_pages_of(head_rows[h]); p++)
            bytes += weir_kv_page_bytes_at(spec, weir_kv_layer_of(spec, h), p);
    return bytes;
}

void session_print_policy(char out[WEIR_SESSION_POLICY], const char *text, int64_t budget)
{
    const size_t name = strcspn(text, " ");
    memset(out, 0, WEIR_SESSION_POLICY);
    (void)snprintf(
        out, WEIR_SESSION_POLICY, "%.*s:%" PRId64, (int)(name < 32 ? name : 32), text, budget
    );
}

void session_header_of(
    weir_session_header *header, const weir_session_identity *identity,
    const weir_session_content *content
)
{
    const weir_session_pruned *const pruned = content->pruned;
    *header = (weir_session_header){ .identity = *identity,
                                     .salt_bytes = strlen(content->salt),
                                     .n_tokens = content->n_tokens,
                                     .n_states = content->n_states,
                                     .form = content->form,
                                     .is_automatic = content->is_automatic,
                                     .is_pruned = pruned != NULL };
    if (content->numerics != NULL) {
        header->identity.numerics = *content->numerics;
        header->identity.numerics.is_mixed = true;
    }
    if (pruned == NULL) return;
    session_print_policy(header->identity.policy, pruned->policy, pruned->past.budget);
    header->pages_bytes = session_pruned_pages_bytes(content->spec, pruned->head_rows);
    header->policy_bytes = SESSION_POLICY_FIXED + (size_t)pruned->past.n_turns * SESSION_TURN +
                           strlen(pruned->policy) + pruned->state_bytes;
    header->unsealed_bytes =
        pruned->unsealed != NULL ? weir_kv_unsealed_rows_bytes(content->spec) : 0;
}

size_t weir_session_file_bytes(
    const weir_session_identity *identity, const weir_session_content *content
)
{
    session_layout layout;
    weir_session_header header;
    session_header_of(&header, identity, content);
    return session_layout_of(&layout, &header) ? layout.file_bytes : 0;
}

void session_header_encode(
    unsigned char out[SESSION_HEADER], const weir_session_header *header,
    const session_layout *layout
)
{
    const weir_session_identity *const id = &header->identity;
    const int64_t shape[] = { id->n_layers, id->n_heads, id->block_bytes, id->state_bytes };
    memset(out, 0, SESSION_HEADER);
    memcpy(out, SESSION_MAGIC, 8);
    session_put32(out + AT_VERSION, WEIR_SESSION_VERSION);
    session_put32(out + AT_HEADER_BYTES, SESSION_HEADER);
    session_put64(out + AT_FILE_BYTES, layout->file_bytes);
    session_put64(out + AT_CREATED, (uint64_t)header->created);
    for (int i = 0; i < 2; i++)
        session_put64(out + AT_MODEL + 8 * i, id->model[i]),
            session_put64(out + AT_TOKENIZER + 8 * i, id->tokenizer[i]);
    memcpy(out + AT_FORMAT, id->format, sizeof id->format);
    memcpy(out + AT_POLICY, id->policy, sizeof id->policy);
    session_put64(out + AT_SINKS, (uint64_t)id->n_sinks);
    session_put64(out + AT_SINKS + 8, (uint64_t)id->sink_block_bytes);
    memcpy(out + AT_SINK_FORMAT, id->sink_format, sizeof id->sink_format);
    session_put32(out + AT_PAGE_TOKENS, WEIR_PAGE_TOKENS);
    session_put32(out + AT_PAGE_LAYOUT, SESSION_PAGE_LAYOUT);
    for (int i = 0; i < 4; i++) session_put64(out + AT_SHAPE + 8 * i, (uint64_t)shape[i]);
    session_put64(out + AT_N_TOKENS, (uint64_t)header->n_tokens);
    session_put64(out + AT_N_STATES, (uint64_t)header->n_states);
    session_put64(out + AT_FLAGS, header->is_automatic ? FLAG_AUTOMATIC : 0);
    session_put64(out + AT_N_SECTIONS, (uint64_t)layout->n_sections);
    for (int i = 0; i < layout->n_sections; i++) {
        unsigned char *const at = out + at_section(i);
        session_put32(at, (uint32_t)i + 1);
        session_put64(at + 8, layout->sections[i].offset);
        session_put64(at + 16, layout->sections[i].size);
        session_put64(at + 24, layout->sections[i].hash[0]);
        session_put64(at + 32, layout->sections[i].hash[1]);
    }
    session_put32(out + AT_FORM, (uint32_t)header->form.state_bits);
    session_put32(out + AT_FORM + 4, header->form.is_merged ? FLAG_MERGED : 0);
    session_put64(out + AT_FORM + 8, header->form.packed_bytes);
    session_put64(out + AT_FORM + 16, (uint64_t)header->form.n_rest);
    weir_numerics_encode(out + AT_NUMERICS, &id->numerics);
    session_put64(out + AT_NUMERICS_FLAGS, id->numerics.is_mixed ? FLAG_MIXED : 0);
    const int64_t windows[] = { id->n_window_layers, id->window, id->window_block_bytes };
    for (int i = 0; i < 3; i++) session_put64(out + AT_WINDOWS + 8 * i, (uint64_t)windows[i]);
    session_put64(out + AT_CHECKSUM, XXH3_64bits(out, AT_CHECKSUM));
}

static weir_status damaged(const char *path, const char *what, weir_error *error)
{
    return weir_error_set(
        error, WEIR_EFORMAT, "%s: damaged: %s; delete it or put back a good copy", path, what
    );
}

/* True for "NAME:BUDGET", such as "h2o:64". */
static bool is_policy(const char *text)
{
    const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_"),
                 digits = text[n] == ':' ? strspn(text + n + 1, "0123456789") : 0;
    return n > 0 && digits > 0 && text[n + 1 + digits] == '\0';
}

static weir_status decode_sections(
    session_layout *layout, const unsigned char *bytes, const char *path, weir_error *error
)
{
    for (int i = 0; i < layout->n_sections; i++) {
        const unsigned char *const at = bytes + at_section(i);
        session_section *const section = &layout->sections[i];
        if (session_get32(at) != (uint32_t)i + 1 || session_get32(at + 4) != 0 ||
            session_get64(at + 8) != section->offset || session_get64(at + 16) != section->size)
            return damaged(path, "a section is at the wrong offset", error);
        section->hash[0] = session_get64(at + 24);
        section->hash[1] = session_get64(at + 32);
    }
    return WEIR_OK;
}

/* Checks the version first: in another version the bytes after it may mean anything, the checksum
 * included. */
static weir_status check_frame(const unsigned char *bytes, const char *path, weir_error *error)
{
    const uint32_t version = session_get32(bytes + AT_VERSION);
    if (memcmp(bytes, SESSION_MAGIC, 8) != 0)
        return weir_error_set(error, WEIR_EFORMAT, "%s: not a session file", path);
    if (version != WEIR_SESSION_VERSION)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "%s: a session file of version %" PRIu32
            ", this program reads version %d; use the program that wrote it",
            path, version, (int)WEIR_SESSION_VERSION
        );
    if (session_get64(bytes + AT_CHECKSUM) != XXH3_64bits(bytes, AT_CHECKSUM))
        return damaged(path, "the header's checksum is wrong", error);
    const uint64_t n_sections = session_get64(bytes + AT_N_SECTIONS);
    const int unused =
        n_sections == SESSION_SECTIONS_WHOLE ? at_section(SESSION_SECTIONS_WHOLE) : AT_SINKS;
    if (session_get32(bytes + AT_HEADER_BYTES) != SESSION_HEADER ||
        (n_sections != SESSION_SECTIONS && n_sections != SESSION_SECTIONS_WHOLE) ||
        session_get32(bytes + AT_PAGE_TOKENS) != WEIR_PAGE_TOKENS ||
        session_get32(bytes + AT_PAGE_LAYOUT) != SESSION_PAGE_LAYOUT ||
        session_get64(bytes + AT_FLAGS) > FLAG_AUTOMATIC ||
        !weir_bytes_are_zero(bytes + unused, (size_t)(AT_SINKS - unused)) ||
        !weir_bytes_are_zero(bytes + AT_END, AT_CHECKSUM - AT_END))
        return damaged(path, "the header has fields that its version does not have", error);
    return WEIR_OK;
}

static weir_status decode_form(
    weir_session_header *header, const unsigned char *bytes, const char *path, weir_error *error
)
{
    const uint32_t flags = session_get32(bytes + AT_FORM + 4);
    const uint64_t packed = session_get64(bytes + AT_FORM + 8),
                   n_rest = session_get64(bytes + AT_FORM + 16);
    if (flags > FLAG_MERGED || n_rest > INT32_MAX)
        return damaged(path, "its form is out of range", error);
    header->form = (weir_session_form){ .state_bits = (int32_t)session_get32(bytes + AT_FORM),
                                        .n_rest = (int32_t)n_rest,
                                        .packed_bytes = (size_t)packed,
                                        .is_merged = flags == FLAG_MERGED };
    return WEIR_OK;
}

static weir_status decode_numerics(
    weir_numerics *out, const unsigned char *bytes, const char *path, weir_error *error
)
{
    const uint64_t flags = session_get64(bytes + AT_NUMERICS_FLAGS);
    if (!weir_numerics_decode(out, bytes + AT_NUMERICS) || flags > FLAG_MIXED)
        return damaged(path, "the numerics in the header are not valid", error);
    out->is_mixed = flags == FLAG_MIXED;
    return WEIR_OK;
}

weir_status session_header_decode(
    weir_session_header *header, session_layout *layout, const unsigned char bytes[SESSION_HEADER],
    uint64_t file_bytes, const char *path, weir_error *error
)
{
    WEIR_TRY(check_frame(bytes, path, error));
    *header = (weir_session_header){ .created = (int64_t)session_get64(bytes + AT_CREATED),
                                     .is_automatic = session_get64(bytes + AT_FLAGS) != 0 };
    weir_session_identity *const id = &header->identity;
    int64_t *const shape[] = { &id->n_layers, &id->n_heads, &id->block_bytes, &id->state_bytes };
    for (int i = 0; i < 2; i++)
        id->model[i] = session_get64(bytes + AT_MODEL + 8 * i),
        id->tokenizer[i] = session_get64(bytes + AT_TOKENIZER + 8 * i);
    for (int i = 0; i < 4; i++) *shape[i] = (int64_t)session_get64(bytes + AT_SHAPE + 8 * i);
    int64_t *const windows[] = { &id->n_window_layers, &id->window, &id->window_block_bytes };
    for (int i = 0; i < 3; i++) *windows[i] = (int64_t)session_get64(bytes + AT_WINDOWS + 8 * i);
    id->n_sinks = (int64_t)session_get64(bytes + AT_SINKS);
    id->sink_block_bytes = (int64_t)session_get64(bytes + AT_SINKS + 8);
    if (!weir_bytes_text(id->format, bytes + AT_FORMAT, sizeof id->format) ||
        !weir_bytes_text(id->sink_format, bytes + AT_SINK_FORMAT, sizeof id->sink_format) ||
        !weir_bytes_text(id->policy, bytes + AT_POLICY, sizeof id->policy))
        return damaged(path, "a name in the header is not terminated", error);
    const uint64_t n_tokens = session_get64(bytes + AT_N_TOKENS),
                   n_states = session_get64(bytes + AT_N_STATES),
                   salt = session_get64(bytes + AT_SECTIONS + SESSION_SALT * SECTION_BYTES + 16);
    if (n_tokens > INT32_MAX || n_states > WEIR_SESSION_STATES || salt > WEIR_PREFIX_SALT)
        return damaged(path, "a count in the header is out of range", error);
    header->n_tokens = (int32_t)n_tokens;
    header->n_states = (int32_t)n_states;
    header->salt_bytes = (size_t)salt;
    header->is_pruned = session_get64(bytes + AT_N_SECTIONS) == SESSION_SECTIONS;
    if (header->is_pruned) {
        header->pages_bytes = (size_t)session_get64(bytes + at_section(SESSION_PAGES) + 16);
        header->policy_bytes = (size_t)session_get64(bytes + at_section(SESSION_POLICY_STATE) + 16);
        header->unsealed_bytes =
            (size_t)session_get64(bytes + at_section(SESSION_UNSEALED_ROWS) + 16);
    }
    WEIR_TRY(decode_form(header, bytes, path, error));
    WEIR_TRY(decode_numerics(&id->numerics, bytes, path, error));
    if (header->is_pruned && !is_policy(id->policy))
        return damaged(path, "the header's policy is not valid", error);
    if (!session_layout_of(layout, header))
        return damaged(path, "a size in the header is out of range", error);
    if (session_get64(bytes + AT_FILE_BYTES) != layout->file_bytes)
        return damaged(path, "the header's sizes do not add up", error);
    if (file_bytes != layout->file_bytes)
        return weir_error_set(
            error, WEIR_EFORMAT,
            "%s: damaged: %" PRIu64 " bytes, the header says %" PRIu64
            "; delete it or put back a good copy",
            path, file_bytes, layout->file_bytes
        );
    header->bytes = (size_t)layout->file_bytes;
    return decode_sections(layout, bytes, path, error);
}
