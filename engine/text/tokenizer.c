/* engine/text/tokenizer.c - encoding: repair of ill-formed UTF-8, added tokens, normalisation,
 * added tokens of the normalised text, pieces, merges. All memory that changes belongs to the call,
 * so one tokenizer serves any number of threads. */
#include "engine/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/base/utf8.h"
#include "engine/text/added_tokens.h"
#include "engine/text/repair.h"
#include "engine/text/tokenizer_internal.h"

void weir_ids_free(weir_ids *ids)
{
    weir_memory_give(ids->data);
    *ids = (weir_ids){ 0 };
}

weir_status weir_ids_add(weir_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity) {
        size_t capacity, bytes;
        if (!weir_mul_size(&capacity, ids->capacity + 32, 2) ||
            !weir_mul_size(&bytes, capacity, sizeof *ids->data))
            return WEIR_ENOMEM;
        int32_t *const data = weir_memory_resize(ids->data, bytes);
        if (data == NULL) return WEIR_ENOMEM;
        ids->data = data;
        ids->capacity = capacity;
    }
    ids->data[ids->count++] = id;
    return WEIR_OK;
}

weir_status weir_tokenizer_open(
    weir_tokenizer **out, const weir_tensor_directory *directory, weir_error *error
)
{
    if (weir_tensor_directory_container(directory) == WEIR_CONTAINER_GGUF)
        return weir_tokenizer_open_gguf(out, directory, error);
    const char *const folder = weir_tensor_directory_folder(directory);
    weir_buffer path = { 0 };
    weir_status status = weir_buffer_format(&path, "%s/tokenizer.json", folder);
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "%s: no memory for the tokenizer's path", folder);
    else if (!weir_file_exists(path.data))
        status = weir_error_set(
            error, WEIR_ENOTFOUND, "%s: there is no tokenizer.json next to the weights", folder
        );
    else
        status = weir_tokenizer_open_json(out, path.data, error);
    weir_buffer_free(&path);
    return status;
}

void weir_tokenizer_close(weir_tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    weir_vocabulary_free(&tokenizer->vocabulary);
    weir_pair_free(&tokenizer->normalized.edges);
    weir_pair_free(&tokenizer->merges);
    weir_normalizer_free(&tokenizer->normalizer);
    weir_pretokenizer_free(&tokenizer->pretokenizer);
    weir_spm_free(tokenizer->spm);
    weir_buffer_free(&tokenizer->scratch);
    weir_memory_give(tokenizer->chat_template);
    weir_memory_give(tokenizer);
}

/* ---- encoding -------------------------------------------------------------------------------- */

typedef struct job {
    const weir_tokenizer *tokenizer;
    weir_ids *out;
    weir_matcher matcher;
    weir_bpe_scratch bpe;
    weir_spm_job spm;
    bool parse_special;
    const char *first; /* where the whole text begins in normalised text; NULL: elsewhere */
    const weir_span *plain; /* spans of the text being split */
    size_t n_plain;
    weir_error *error;
} job;

static weir_status job_init(job *job)
{
    const weir_tokenizer *const tokenizer = job->tokenizer;
    job->spm = (weir_spm_job){ .spm = tokenizer->spm,
                               .vocabulary = &tokenizer->vocabulary,
                               .merges = &tokenizer->merges,
                               .byte_ids = tokenizer->byte_ids,
                               .out = job->out,
                               .bpe = &job->bpe };
    return weir_matcher_init(&job->matcher) == WEIR_OK
               ? WEIR_OK
               : weir_error_set(job->error, WEIR_ENOMEM, "no memory to tokenise a text");
}

static void job_free(job *job)
{
    weir_matcher_free(&job->matcher);
    weir_bpe_scratch_free(&job->bpe);
    weir_spm_job_free(&job->spm);
}

static weir_status encode_piece(void *context, const char *piece, size_t n)
{
    job *const job = context;
    const weir_tokenizer *const tokenizer = job->tokenizer;
    if (tokenizer->spm != NULL)
        return weir_spm_encode_piece(&job->spm, piece, n, piece == job->first);
    const int32_t whole =
        tokenizer->ignore_merges ? weir_vocabulary_find_base(&tokenizer->vocabulary, piece, n) : -1;
    /* Text in which added tokens are not matched must not become one as a whole piece either. */
    if (whole >= 0 && (tokenizer->vocabulary.tokens[whole].flags & WEIR_TOKEN_ADDED) == 0)
        return weir_ids_add(job->out, whole);
    return weir_bpe_encode(&job->bpe, job->out, &tokenizer->merges, tokenizer->byte_ids, piece, n);
}

static weir_status encode_pieces(job *job, const char *text, size_t n)
{
    return weir_pretokenizer_run(
        &job->tokenizer->pretokenizer, &job->matcher, text, n, encode_piece, job, job->error
    );
}

static weir_status cannot_normalize(const job *job, weir_status status)
{
    return weir_error_set(
        job->error, status,
        status == WEIR_EFULL ? "the text has more than 2^30 bytes once it is normalised; send it "
                               "in smaller parts"
                             : "cannot normalise the text"
    );
}

/* Replaces *text [*n] by its normal form, which is valid until the next call. */
static weir_status normalize(job *job, const char **text, size_t *n)
{
    const weir_status status =
        weir_normalizer_run(weir_tokenizer_normalizer(job->tokenizer), job->spm.buffers, text, n);
    return status == WEIR_OK ? WEIR_OK : cannot_normalize(job, status);
}

/* Encodes text [begin, end) between added tokens. */
static weir_status encode_segment(job *job, const char *text, size_t begin, size_t end)
{
    if (job->tokenizer->spm != NULL && job->tokenizer->spm->is_sentencepiece) {
        const weir_status status =
            weir_spm_encode_text(&job->spm, text, begin, end, job->plain, job->n_plain);
        return status == WEIR_EFULL ? cannot_normalize(job, status) : status;
    }
    const char *segment = text + begin;
    size_t n = end - begin;
    WEIR_TRY(normalize(job, &segment, &n));
    job->first = begin == 0 ? segment : NULL;
    return encode_pieces(job, segment, n);
}

static weir_status segment_gap(void *context, const char *text, size_t begin, size_t end)
{
    return encode_segment(context, text, begin, end);
}
static weir_status pieces_gap(void *context, const char *text, size_t begin, size_t end)
{
    return encode_pieces(context, text + begin, end - begin);
}

static weir_status split(
    job *job, const weir_trie *trie, const char *text, size_t begin, size_t end, weir_gap_sink *sink
)
{
    const weir_added_search search = { .vocabulary = &job->tokenizer->vocabulary,
                                       .trie = trie,
                                       .out = job->out,
                                       .plain = job->plain,
                                       .n_plain = job->n_plain };
    return weir_added_split(&search, text, begin, end, sink, job);
}

static bool has_plain(const job *job, size_t begin, size_t end)
{
    const size_t i = weir_span_behind(job->plain, job->n_plain, begin);
    return i < job->n_plain && job->plain[i].begin < end;
}

/* Handles text between tokens of the raw text. If some of it is plain, the spans apply to the raw
 * text only, so tokens of the normalised text are matched in the raw text too, as they are
 * written. */
static weir_status normalized_gap(void *context, const char *text, size_t begin, size_t end)
{
    job *const job = context;
    if (has_plain(job, begin, end))
        return split(job, &job->tokenizer->vocabulary.added[1], text, begin, end, segment_gap);
    const char *segment = text + begin;
    size_t n = end - begin;
    WEIR_TRY(normalize(job, &segment, &n));
    job->first = begin == 0 ? segment : NULL;
    const size_t n_plain = job->n_plain;
    job->n_plain = 0;
    const weir_status status = split(job, &job->tokenizer->normalized, segment, 0, n, pieces_gap);
    job->n_plain = n_plain;
    return status;
}

static weir_status encode_valid(job *job, const char *text, size_t n)
{
    const weir_tokenizer *const tokenizer = job->tokenizer;
    const weir_trie *const added = tokenizer->vocabulary.added;
    if (!job->parse_special) {
        const weir_span whole = { .end = n };
        job->plain = &whole;
        job->n_plain = 1;
        const weir_status status = encode_segment(job, text, 0, n);
        job->plain = NULL;
        return status;
    }
    const bool normalized =
        added[1].n_tokens > 0 && !(tokenizer->spm != NULL && tokenizer->spm->is_sentencepiece);
    return split(job, &added[0], text, 0, n, normalized ? normalized_gap : segment_gap);
}

/* Encodes a repaired copy of ill-formed UTF-8, with the spans adjusted. */
static weir_status encode_repaired(job *job, const char *text, size_t n)
{
    weir_buffer copy = { 0 };
    weir_span *const spans = weir_memory_take((job->n_plain + 1) * sizeof *spans);
    weir_status status = spans == NULL ? WEIR_ENOMEM : WEIR_OK;
    if (status == WEIR_OK) {
        if (job->n_plain > 0) memcpy(spans, job->plain, job->n_plain * sizeof *spans);
        status = weir_utf8_repair(&copy, text, n, spans, job->n_plain);
    }
    job->plain = spans;
    status = status == WEIR_OK ? encode_valid(job, copy.data, copy.size)
                               : weir_error_set(job->error, status, "no memory to repair the text");
    weir_memory_give(spans);
    weir_buffer_free(&copy);
    return status;
}

static weir_status check_input(size_t length, const weir_encode_options *options, weir_error *error)
{
    if (length > WEIR_TEXT_BYTES)
        return weir_error_set(
            error, WEIR_EINVAL, "the text has %zu bytes, at most %d are tokenised", length,
            WEIR_TEXT_BYTES
        );
    size_t at = 0;
    for (size_t i = 0; options->plain != NULL && i < options->n_plain; i++) {
        const weir_span span = options->plain[i];
        if (span.begin < at || span.end < span.begin || span.end > length)
            return weir_error_set(
                error, WEIR_EINVAL,
                "span %zu of plain text [%zu, %zu) is out of order or past the %zu bytes", i,
                span.begin, span.end, length
            );
        at = span.end;
    }
    return WEIR_OK;
}

weir_status weir_tokenizer_encode(
    const weir_tokenizer *tokenizer, weir_ids *out, const char *text, size_t length,
    const weir_encode_options *options, weir_error *error
)
{
    WEIR_TRY(check_input(length, options, error));
    job job = { .tokenizer = tokenizer,
                .out = out,
                .parse_special = options->parse_special,
                .plain = options->plain,
                .n_plain = options->plain == NULL ? 0 : options->n_plain,
                .error = error };
    const size_t before = out->count;
    if (error != NULL) error->code = WEIR_OK;
    weir_status status = job_init(&job);
    if (status == WEIR_OK && options->add_special && tokenizer->add_bos)
        status = weir_ids_add(out, tokenizer->bos);
    if (status == WEIR_OK)
        status = weir_utf8_valid(text, length) ? encode_valid(&job, text, length)
                                               : encode_repaired(&job, text, length);
    if (status == WEIR_OK && options->add_end && tokenizer->end >= 0)
        status = weir_ids_add(out, tokenizer->end);
    job_free(&job);
    if (status == WEIR_OK) return WEIR_OK;
    out->count = before;
    return error == NULL || error->code == status
               ? status
               : weir_error_set(error, status, "no memory to tokenise a text");
}

/* ---- decoding and properties ----------------------------------------------------------------- */

const char *weir_tokenizer_token_bytes(
    const weir_tokenizer *tokenizer, int32_t id, size_t *length, bool *special
)
{
    const weir_token *const token = weir_vocabulary_at(&tokenizer->vocabulary, id);
    const bool present = token != NULL && token->flags != 0;
    *length = present ? token->length : 0;
    *special = present && (token->flags & WEIR_TOKEN_SPECIAL) != 0;
    return present ? tokenizer->vocabulary.bytes.data + token->offset : "";
}

static const char *text_of(const weir_tokenizer *tokenizer, int32_t id)
{
    size_t length;
    bool special;
    return weir_tokenizer_token_bytes(tokenizer, id, &length, &special);
}

size_t weir_tokenizer_size(const weir_tokenizer *tokenizer) { return tokenizer->size; }
const char *weir_tokenizer_chat_template(const weir_tokenizer *tokenizer)
{
    return tokenizer->chat_template;
}
const char *weir_tokenizer_bos_text(const weir_tokenizer *tokenizer)
{
    return text_of(tokenizer, tokenizer->bos);
}
const char *weir_tokenizer_eos_text(const weir_tokenizer *tokenizer)
{
    return text_of(tokenizer, tokenizer->eos);
}

const int32_t *weir_tokenizer_stop_ids(const weir_tokenizer *tokenizer, size_t *count)
{
    *count = tokenizer->n_stop;
    return tokenizer->stop;
}

bool weir_tokenizer_has_charsmap(const weir_tokenizer *tokenizer)
{
    return weir_tokenizer_normalizer(tokenizer)->charsmap.n_units > 0;
}

weir_status weir_tokenizer_charsmap(const weir_tokenizer *tokenizer, weir_buffer *out)
{
    return weir_charsmap_write(&weir_tokenizer_normalizer(tokenizer)->charsmap, out);
}

int32_t weir_tokenizer_find(const weir_tokenizer *tokenizer, const char *token, size_t length)
{
    const int32_t id = weir_vocabulary_find_added(&tokenizer->vocabulary, token, length);
    return id >= 0 ? id : weir_vocabulary_find_base(&tokenizer->vocabulary, token, length);
}
