#include "engine/session/state_service.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/memory.h"
#include "engine/formats/json.h"
#include "engine/session/file/session_file.h"

/* ---- ingesting ------------------------------------------------------------------------------- */
static XXH128_hash_t hash_of(const weir_document *document)
{
    return XXH3_128bits(document->tokens, (size_t)document->n_tokens * sizeof *document->tokens);
}

typedef struct ingestion {
    const weir_state_service *documents;
    const weir_document *document;
} ingestion;

/* The sequence was just computed and is cached. */
static weir_status write_state(void *user, const char *path, int64_t max_bytes, weir_error *error)
{
    const ingestion *const in = user;
    const weir_document *const document = in->document;
    const weir_state_request state = { .state_bits =
                                           weir_states_kind_of(in->documents->states)->state_bits,
                                       .max_bytes = max_bytes };
    const weir_session_request request = { .name = "state",
                                           .salt = document->salt,
                                           .tokens = document->tokens,
                                           .n_tokens = document->n_tokens };
    weir_session_result result = { 0 };
    weir_error why = { 0 };
    const weir_status status =
        weir_sessions_write_state(in->documents->sessions, &request, &state, path, &result, &why);
    if (status == WEIR_OK) return WEIR_OK;
    if (status != WEIR_ENOTFOUND) return weir_error_set(error, status, "%s", why.text);
    return weir_error_set(
        error, WEIR_EUNSUPPORTED,
        "nothing of %d tokens can be saved: a state ends with a block of the "
        "architecture (block_rows), or a page of 64 "
        "tokens where the kv.format has whole pages (%s)",
        (int)document->n_tokens, why.text
    );
}

weir_status weir_state_service_add(
    const weir_state_service *documents, const weir_document *document, const float *vector,
    weir_state_info *info, weir_error *error
)
{
    ingestion in = { .documents = documents, .document = document };
    const XXH128_hash_t hash = hash_of(document);
    const weir_new_state state = { .label = document->label,
                                   .owner = document->owner,
                                   .metadata = document->metadata,
                                   .vector = weir_states_kind_of(documents->states)->dim > 0
                                                 ? vector
                                                 : NULL,
                                   .source = { hash.low64, hash.high64 },
                                   .write = write_state,
                                   .user = &in };
    return weir_states_add(documents->states, &state, info, error);
}

weir_status weir_state_service_find(
    const weir_state_service *documents, const weir_document *document, weir_state_info *info,
    weir_error *error
)
{
    const XXH128_hash_t hash = hash_of(document);
    const uint64_t source[2] = { hash.low64, hash.high64 };
    return weir_states_find_source(
        documents->states, source, document->owner, weir_sessions_numerics(documents->sessions),
        info, error
    );
}

weir_status weir_state_service_ingest(
    const weir_state_service *documents, const weir_document *document, weir_state_info *info,
    bool *is_new, weir_error *error
)
{
    weir_embedding embedding = { 0 };
    const weir_status found = weir_state_service_find(documents, document, info, error);
    *is_new = found == WEIR_ENOTFOUND;
    if (!*is_new) return found;
    weir_status status = weir_embedding_wait(&embedding, documents, document, true, error);
    if (status == WEIR_OK)
        status = weir_state_service_add(documents, document, embedding.vector, info, error);
    weir_embedding_close(&embedding);
    return status;
}

weir_status weir_state_service_check_vectors(const weir_state_service *documents, weir_error *error)
{
    const weir_states_kind *const kind = weir_states_kind_of(documents->states);
    if (strcmp(kind->embedding, WEIR_STATE_SERVICE_EMBEDDING) == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EMISMATCH, "the vectors of this database were made by \"%s\"", kind->embedding
    );
}

weir_status weir_state_service_route(
    const weir_state_service *documents, const weir_document *document,
    const weir_states_question *question, weir_state_hit *hits, size_t *n, weir_error *error
)
{
    weir_states_question asked = *question;
    weir_embedding embedding = { 0 };
    WEIR_TRY(weir_state_service_check_vectors(documents, error));
    weir_status status = weir_embedding_wait(&embedding, documents, document, false, error);
    asked.vector = embedding.vector;
    if (status == WEIR_OK) status = weir_states_route(documents->states, &asked, hits, n, error);
    weir_embedding_close(&embedding);
    return status;
}

/* ---- merging --------------------------------------------------------------------------------- */
typedef struct merging {
    const weir_state_service *documents;
    const weir_merge *merge;
    weir_state_merged *merged;
} merging;

static weir_status write_merged(void *user, const char *path, int64_t max_bytes, weir_error *error)
{
    const merging *const m = user;
    weir_states *const states = m->documents->states;
    char earlier[PATH_MAX], later[PATH_MAX];
    weir_session_result result;
    WEIR_TRY(weir_states_payload(states, m->merge->earlier, earlier, error));
    WEIR_TRY(weir_states_payload(states, m->merge->later, later, error));
    const weir_merge_request request = {
        .earlier = earlier,
        .later = later,
        .state = { .state_bits = weir_states_kind_of(states)->state_bits, .max_bytes = max_bytes }
    };
    return weir_sessions_merge(m->documents->sessions, &request, path, m->merged, &result, error);
}

/* The vector of both sequences together, weighted by their rows. `other` [dim] is scratch. */
static bool mix_vectors(
    const weir_state_service *d, const weir_merge *merge, float *vector, float *other
)
{
    const int32_t dim = weir_states_kind_of(d->states)->dim;
    const double n = (double)merge->earlier->n_tokens + (double)merge->later->n_tokens;
    const double share = n > 0 ? (double)merge->earlier->n_tokens / n : 0.5;
    if (dim == 0 || weir_states_vector(d->states, merge->earlier, vector, NULL) != WEIR_OK ||
        weir_states_vector(d->states, merge->later, other, NULL) != WEIR_OK)
        return false;
    for (int32_t i = 0; i < dim; i++)
        vector[i] = (float)(share * (double)vector[i] + (1 - share) * (double)other[i]);
    return true;
}

/* The given metadata, plus the states that were merged. */
static weir_status write_metadata(char **out, const weir_merge *merge, weir_error *error)
{
    json_t *root = NULL;
    weir_status status = WEIR_OK;
    const char *const given = merge->metadata != NULL ? merge->metadata : "{}";
    json_t *const names =
        json_pack("{s:s, s:s}", "earlier", merge->earlier->name, "later", merge->later->name);
    status =
        weir_json_parse_within(&root, given, strlen(given), "metadata", &weir_json_request, error);
    if (status == WEIR_EFORMAT || (status == WEIR_OK && !json_is_object(root)))
        status = weir_error_set(error, WEIR_EINVAL, "the metadata is not a JSON object");
    if (status == WEIR_OK && (names == NULL || json_object_set(root, "merged", names) != 0 ||
                              (*out = weir_json_text(root, JSON_COMPACT)) == NULL))
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for metadata");
    json_decref(names);
    json_decref(root);
    return status;
}

weir_status weir_state_service_merge(
    const weir_state_service *documents, const weir_merge *merge, weir_state_info *info,
    weir_state_merged *merged, weir_error *error
)
{
    const size_t dim = (size_t)weir_states_kind_of(documents->states)->dim;
    merging m = { .documents = documents, .merge = merge, .merged = merged };
    float *const vectors = weir_memory_take((2 * dim + 1) * sizeof *vectors);
    char *metadata = NULL;
    weir_status status = WEIR_OK;
    if (merge->earlier->serial == merge->later->serial)
        status = weir_error_set(error, WEIR_EINVAL, "a state cannot be merged with itself");
    else if (vectors == NULL)
        status = weir_error_set(error, WEIR_ENOMEM, "no memory for a vector");
    if (status == WEIR_OK) status = write_metadata(&metadata, merge, error);
    if (status == WEIR_OK) {
        const bool has_vector = mix_vectors(documents, merge, vectors, vectors + dim);
        const weir_new_state state = { .label = merge->label,
                                       .owner = merge->owner,
                                       .metadata = metadata,
                                       .vector = has_vector ? vectors : NULL,
                                       .write = write_merged,
                                       .user = &m };
        status = weir_states_add(documents->states, &state, info, error);
    }
    weir_memory_give(metadata);
    weir_memory_give(vectors);
    return status;
}

/* ---- going on -------------------------------------------------------------------------------- */
/* For states that are not exact: a first byte that no request's salt has, and the digest of the
 * file. */
static weir_status choose_salt(weir_beginning *b, const char *salt, weir_error *error)
{
    int n;
    if (weir_state_is_exact(&b->info))
        n = snprintf(b->salt, sizeof b->salt, "%s", salt != NULL ? salt : WEIR_PREFIX_NO_SALT);
    else
        n = snprintf(
            b->salt, sizeof b->salt, "\x02%016" PRIx64 ":%s", b->info.payload[0],
            salt != NULL ? salt : ""
        );
    return n < (int)sizeof b->salt
               ? WEIR_OK
               : weir_error_set(error, WEIR_EINVAL, "the salt is too long to be used with a state");
}

static weir_status read_tokens(weir_beginning *b, const weir_state_service *d, weir_error *error)
{
    weir_session_reader *reader = NULL;
    WEIR_TRY(weir_session_open(&reader, b->path, error));
    const weir_session_header *const header = weir_session_header_of(reader);
    const size_t n = (size_t)header->n_tokens + (size_t)header->form.n_rest;
    b->n_tokens = (int32_t)n;
    b->n_held = header->n_tokens;
    b->n_kept = weir_state_is_exact(&b->info) ? 0 : b->n_held;
    b->tokens = weir_memory_take(n * sizeof *b->tokens);
    const weir_status status =
        b->tokens != NULL
            ? weir_session_read_tokens(
                  reader, b->tokens, weir_service_facts_of(d->service)->n_valid_vocab, error
              )
            : weir_error_set(error, WEIR_ENOMEM, "%s: no memory for its tokens", b->path);
    weir_session_close(reader);
    return status;
}

weir_status weir_beginning_open(
    weir_beginning *out, const weir_state_service *documents, const weir_state_info *info,
    const char *salt, weir_error *error
)
{
    *out = (weir_beginning){ .info = *info };
    WEIR_TRY(weir_states_payload(documents->states, info, out->path, error));
    WEIR_TRY(choose_salt(out, salt, error));
    const weir_status status = read_tokens(out, documents, error);
    if (status != WEIR_OK) weir_beginning_close(out);
    return status;
}

weir_status weir_beginning_load(
    const weir_beginning *beginning, const weir_state_service *documents, weir_error *error
)
{
    weir_session_result result;
    return weir_sessions_read(
        documents->sessions, beginning->path, beginning->salt, &result, error
    );
}

void weir_beginning_close(weir_beginning *beginning)
{
    weir_memory_give(beginning->tokens);
    beginning->tokens = NULL;
}
