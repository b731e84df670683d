/* engine/text/spm.c - encoding with pieces: from normalised text to ids. */
#include "engine/text/spm.h"

#include <string.h>

#include "engine/base/memory.h"
#include "engine/base/utf8.h"
#include "engine/text/added_tokens.h"

static const uint32_t none = UINT32_MAX;

void weir_spm_job_free(weir_spm_job *job)
{
    weir_unigram_scratch_free(&job->unigram);
    for (int i = 0; i < 2; i++) weir_buffer_free(&job->buffers[i]);
    weir_buffer_free(&job->spans);
    weir_buffer_free(&job->word);
    weir_memory_give(job->splits);
}

/* ---- ids ------------------------------------------------------------------------------------- */

static weir_status add_known(weir_spm_job *job, int32_t id)
{
    job->after_unknown = false;
    return weir_ids_add(job->out, id);
}

/* A character, or several, without a piece. */
static weir_status add_unknown(weir_spm_job *job, const char *text, size_t n)
{
    if (job->spm->has_bytes) {
        for (size_t i = 0; i < n; i++)
            WEIR_TRY(add_known(job, job->byte_ids[(unsigned char)text[i]]));
        return WEIR_OK;
    }
    if (job->spm->unknown < 0 || (job->after_unknown && job->spm->fuses_unknown)) return WEIR_OK;
    WEIR_TRY(weir_ids_add(job->out, job->spm->unknown));
    job->after_unknown = true;
    return WEIR_OK;
}

/* Adds a symbol. An unused piece becomes its parts, each as it was when the piece was last found.
 * The recursion is as deep as a piece is long. */
static weir_status add_symbol(weir_spm_job *job, const char *text, size_t n)
{
    const int32_t id = weir_vocabulary_find_base(job->vocabulary, text, n);
    if (id < 0) return add_unknown(job, text, n);
    const bool unused = (job->vocabulary->tokens[id].flags & WEIR_TOKEN_UNUSED) != 0;
    const size_t left = unused && job->splits != NULL ? job->splits[id] : 0;
    if (left == 0 || left >= n) return add_known(job, id);
    WEIR_TRY(add_symbol(job, text, left));
    return add_symbol(job, text + left, n - left);
}

/* ---- BPE ------------------------------------------------------------------------------------- */

/* The user-defined piece at `at` of the text; -1: none. */
static int32_t find_user(weir_spm_job *job, size_t at, size_t end, size_t *length)
{
    const weir_trie *const user = &job->vocabulary->added[1];
    if (!user->first[(unsigned char)job->text[at]]) return -1;
    while (job->next_plain < job->n_plain && job->plain[job->next_plain].end <= at)
        job->next_plain++;
    const weir_span *const plain =
        job->next_plain < job->n_plain ? &job->plain[job->next_plain] : NULL;
    const bool inside = plain != NULL && plain->begin <= at;
    if (inside) return weir_trie_match(&job->spm->blanks, job->text + at, end - at, length);
    if (plain != NULL && plain->begin < end) end = plain->begin;
    return weir_trie_match(user, job->text + at, end - at, length);
}

/* Makes symbols of text [begin, end), one for each character; the index is the offset of its first
 * byte. User-defined pieces are symbols that do not merge. */
static weir_status make_symbols(weir_spm_job *job, size_t begin, size_t end, bool with_user)
{
    const size_t n = end - begin;
    WEIR_TRY(weir_bpe_reserve(job->bpe, n));
    weir_symbol *const symbols = job->bpe->symbols;
    uint32_t previous = none;
    for (size_t i = 0, length; i < n; i += length) {
        bool valid;
        const int32_t user = with_user ? find_user(job, begin + i, end, &length) : -1;
        if (user < 0) length = weir_utf8_step(job->text + begin + i, n - i, &valid);
        symbols[i] = (weir_symbol){ .id = user,
                                    .joined = user < 0 ? 0 : WEIR_SYMBOL_FROZEN,
                                    .previous = previous,
                                    .next = i + length == n ? none : (uint32_t)(i + length) };
        previous = (uint32_t)i;
    }
    return WEIR_OK;
}

static weir_status merge_scores(weir_spm_job *job, size_t begin, size_t end, bool with_user)
{
    if (begin == end) return WEIR_OK;
    WEIR_TRY(make_symbols(job, begin, end, with_user));
    const weir_bpe_merges merges = { .pieces = job->vocabulary,
                                     .ranks = job->spm->ranks,
                                     .longest = job->spm->longest,
                                     .text = job->text + begin,
                                     .n = end - begin,
                                     .splits = job->splits };
    weir_bpe_merge(job->bpe, &merges);
    for (uint32_t i = 0, next; i != none; i = next) {
        const weir_symbol *const symbol = &job->bpe->symbols[i];
        next = symbol->next;
        const size_t n = (next == none ? end - begin : next) - i;
        WEIR_TRY(
            symbol->joined == WEIR_SYMBOL_FROZEN ? add_known(job, symbol->id)
                                                 : add_symbol(job, merges.text + i, n)
        );
    }
    return WEIR_OK;
}

static void push_symbol(weir_bpe_scratch *bpe, uint32_t *count, int32_t id)
{
    const uint32_t i = (*count)++;
    bpe->symbols[i] = (weir_symbol){ .id = id, .previous = i == 0 ? none : i - 1, .next = none };
    if (i > 0) bpe->symbols[i - 1].next = i;
}

static weir_status merge_ranks(weir_spm_job *job, size_t begin, size_t end)
{
    const weir_spm *const spm = job->spm;
    const char *const text = job->text;
    uint32_t count = 0;
    bool after_unknown = false;
    WEIR_TRY(weir_bpe_reserve(job->bpe, end - begin));
    for (size_t i = begin, length; i < end; i += length) {
        bool valid;
        length = weir_utf8_step(text + i, end - i, &valid);
        const int32_t id = weir_vocabulary_find_base(job->vocabulary, text + i, length);
        if (id >= 0)
            push_symbol(job->bpe, &count, id);
        else if (spm->has_bytes)
            for (size_t k = 0; k < length; k++)
                push_symbol(job->bpe, &count, job->byte_ids[(unsigned char)text[i + k]]);
        else if (spm->unknown >= 0 && !(after_unknown && spm->fuses_unknown))
            push_symbol(job->bpe, &count, spm->unknown);
        after_unknown = id < 0;
    }
    if (count == 0) return WEIR_OK;
    weir_bpe_merge(job->bpe, &(weir_bpe_merges){ .pairs = job->merges });
    for (uint32_t i = 0; i != none; i = job->bpe->symbols[i].next)
        WEIR_TRY(weir_ids_add(job->out, job->bpe->symbols[i].id));
    return WEIR_OK;
}

/* ---- unigram --------------------------------------------------------------------------------- */

static bool allows(void *context, size_t begin, size_t end, int32_t id)
{
    weir_spm_job *const job = context;
    size_t length = 0;
    begin += job->at;
    end += job->at;
    while (job->next_plain < job->n_plain && job->plain[job->next_plain].end <= begin)
        job->next_plain++;
    if (job->next_plain == job->n_plain || job->plain[job->next_plain].begin >= end) return true;
    return weir_trie_match(&job->spm->blanks, job->text + begin, end - begin, &length) == id;
}

static weir_status take_piece(void *context, size_t begin, size_t end, int32_t id)
{
    weir_spm_job *const job = context;
    return id < 0 || id == job->spm->unknown
               ? add_unknown(job, job->text + job->at + begin, end - begin)
               : add_known(job, id);
}

/* ---- words ----------------------------------------------------------------------------------- */

static weir_status encode_word(weir_spm_job *job, size_t begin, size_t end)
{
    if (job->spm->kind == WEIR_SPM_SCORES) return merge_scores(job, begin, end, false);
    if (job->spm->kind == WEIR_SPM_RANKS) return merge_ranks(job, begin, end);
    job->at = begin;
    return weir_unigram_encode(
        &job->unigram, &job->spm->unigram, job->text + begin, end - begin, allows, take_piece, job
    );
}

static bool is_space_symbol(const char *text, size_t n)
{
    return n >= 3 && memcmp(text, WEIR_SPACE_SYMBOL, 3) == 0;
}

/* Cuts text [begin, end) where no merge and no piece can reach across, and at user-defined
 * pieces. */
static weir_status encode_words(weir_spm_job *job, size_t begin, size_t end, bool with_user)
{
    const char *const text = job->text;
    for (size_t i = begin, length; i < end; i += length) {
        bool valid;
        const int32_t user = with_user ? find_user(job, i, end, &length) : -1;
        if (user < 0) {
            length = weir_utf8_step(text + i, end - i, &valid);
            if (i == begin || job->spm->crosses[(unsigned char)text[i - 1]] ||
                !is_space_symbol(text + i, end - i))
                continue;
        }
        WEIR_TRY(encode_word(job, begin, i));
        begin = i;
        if (user < 0) continue;
        WEIR_TRY(add_known(job, user));
        begin += length;
    }
    return encode_word(job, begin, end);
}

/* The splits of unused pieces are those of the whole text, which is then not cut. */
static weir_status encode_uncut(weir_spm_job *job, size_t n)
{
    if (job->splits == NULL) {
        job->splits = weir_memory_take(job->vocabulary->size * sizeof *job->splits);
        if (job->splits == NULL) return WEIR_ENOMEM;
    }
    memset(job->splits, 0, job->vocabulary->size * sizeof *job->splits);
    return merge_scores(job, 0, n, true);
}

/* Appends the normal form of text [begin, end), which is plain or not, to the first buffer. */
static weir_status normalize_part(
    weir_spm_job *job, weir_sp_text *state, const char *text, size_t n, bool is_plain
)
{
    weir_span span = { .begin = job->buffers[0].size };
    WEIR_TRY(weir_sp_normalize(
        &job->spm->normalizer, &job->vocabulary->added[1], state, &job->buffers[0], text, n
    ));
    span.end = job->buffers[0].size;
    return is_plain && span.end > span.begin ? weir_buffer_add(&job->spans, &span, sizeof span)
                                             : WEIR_OK;
}

weir_status weir_spm_encode_text(
    weir_spm_job *job, const char *text, size_t begin, size_t end, const weir_span *plain,
    size_t n_plain
)
{
    weir_sp_text state = { .has_begun = false };
    weir_buffer *const out = &job->buffers[0];
    weir_buffer_clear(out);
    weir_buffer_clear(&job->spans);
    size_t next = weir_span_behind(plain, n_plain, begin);
    for (size_t at = begin, part; at < end; at = part) {
        while (next < n_plain && plain[next].end <= at) next++;
        const bool is_plain = next < n_plain && plain[next].begin <= at;
        part = next == n_plain ? end : is_plain ? plain[next].end : plain[next].begin;
        if (part > end) part = end;
        WEIR_TRY(normalize_part(job, &state, text + at, part - at, is_plain));
    }
    weir_sp_normalize_end(&job->spm->normalizer, out, 0);
    job->text = out->data;
    job->plain = (const weir_span *)job->spans.data;
    job->n_plain = job->spans.size / sizeof *job->plain;
    job->next_plain = 0;
    job->after_unknown = false;
    job->unigram.sum = 0;
    if (out->size == 0) return WEIR_OK;
    if (job->spm->has_unused && job->spm->kind == WEIR_SPM_SCORES)
        return encode_uncut(job, out->size);
    return encode_words(job, 0, out->size, job->spm->kind == WEIR_SPM_SCORES);
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

/* Each word of a pre-tokenizer is a text of its own. */
static weir_status encode_alone(weir_spm_job *job, size_t begin, size_t end)
{
    job->after_unknown = false;
    job->unigram.sum = 0;
    return encode_words(job, begin, end, false);
}

weir_status weir_spm_encode_piece(weir_spm_job *job, const char *piece, size_t n, bool is_first)
{
    const weir_metaspace *const metaspace = &job->spm->metaspace;
    job->text = piece;
    if (!metaspace->is_used || n == 0) return encode_alone(job, 0, n);
    weir_buffer *const word = &job->word;
    weir_buffer_clear(word);
    if (metaspace->prepends && (is_first || !metaspace->first_only) && piece[0] != ' ' &&
        !is_space_symbol(piece, n))
        WEIR_TRY(weir_buffer_text(word, WEIR_SPACE_SYMBOL));
    for (size_t i = 0; i < n;) {
        const char *const space = memchr(piece + i, ' ', n - i);
        const size_t end = space == NULL ? n : (size_t)(space - piece);
        WEIR_TRY(weir_buffer_add(word, piece + i, end - i));
        if (space != NULL) WEIR_TRY(weir_buffer_text(word, WEIR_SPACE_SYMBOL));
        i = end + (space != NULL);
    }
    job->text = word->data;
    size_t begin = 0;
    for (size_t i = 1; metaspace->splits && i < word->size; i++) {
        if (!is_space_symbol(word->data + i, word->size - i)) continue;
        WEIR_TRY(encode_alone(job, begin, i));
        begin = i;
    }
    return encode_alone(job, begin, word->size);
}
