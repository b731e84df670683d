/* engine/serve/logprobs.c - arrays of log-probabilities and their two JSON forms. */
#include "engine/serve/logprobs.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/checked.h"
#include "engine/base/memory.h"
#include "engine/base/utf8.h"

void weir_logprob_list_free(weir_logprob_list *logprobs)
{
    weir_memory_give(logprobs->id);
    weir_memory_give(logprobs->logprob);
    weir_memory_give(logprobs->n_top);
    weir_memory_give(logprobs->top);
    weir_memory_give(logprobs->offset);
    *logprobs = (weir_logprob_list){ 0 };
}

static bool grow_one(void **array, size_t count, size_t element)
{
    size_t bytes;
    if (!weir_mul_size(&bytes, count, element)) return false;
    void *const grown = weir_memory_resize(*array, bytes > 0 ? bytes : 1);
    if (grown == NULL) return false;
    *array = grown;
    return true;
}

static weir_status grow(weir_logprob_list *logprobs)
{
    if (logprobs->count < logprobs->capacity) return WEIR_OK;
    const size_t capacity = logprobs->capacity < 16 ? 16 : logprobs->capacity * 2;
    size_t tops;
    if (!weir_mul_size(&tops, capacity, logprobs->width)) return WEIR_ENOMEM;
    if (!grow_one((void **)&logprobs->id, capacity, sizeof *logprobs->id) ||
        !grow_one((void **)&logprobs->logprob, capacity, sizeof *logprobs->logprob) ||
        !grow_one((void **)&logprobs->n_top, capacity, sizeof *logprobs->n_top) ||
        !grow_one((void **)&logprobs->top, tops, sizeof *logprobs->top) ||
        !grow_one((void **)&logprobs->offset, capacity, sizeof *logprobs->offset))
        return WEIR_ENOMEM;
    logprobs->capacity = capacity;
    return WEIR_OK;
}

weir_status weir_logprob_list_add(
    weir_logprob_list *logprobs, int32_t id, float logprob, const weir_logprob *top, int32_t n_top,
    int64_t offset
)
{
    WEIR_TRY(grow(logprobs));
    const size_t at = logprobs->count;
    int32_t kept = 0;
    for (; kept < n_top && (size_t)kept < logprobs->width; kept++)
        logprobs->top[at * logprobs->width + (size_t)kept] = top[kept];
    logprobs->id[at] = id;
    logprobs->logprob[at] = logprob;
    logprobs->n_top[at] = kept;
    logprobs->offset[at] = offset;
    logprobs->count++;
    return WEIR_OK;
}

int64_t weir_code_points(const char *text, size_t n)
{
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* ---- chat ------------------------------------------------------------------------------------ */

static void write_token(
    weir_json_out *out, const weir_tokenizer *tokenizer, int32_t id, float logprob, bool with_id
)
{
    size_t n;
    bool special;
    const char *const bytes = weir_tokenizer_token_bytes(tokenizer, id, &n, &special);
    if (with_id) weir_json_put_integer(out, "id", id);
    weir_json_key(out, "token");
    weir_json_bytes(out, bytes, n);
    weir_json_put_number(out, "logprob", (double)logprob);
    weir_json_key(out, "bytes");
    weir_json_open(out, '[');
    for (size_t i = 0; i < n; i++) weir_json_integer(out, (unsigned char)bytes[i]);
    weir_json_close(out, ']');
}

static void write_list(
    weir_json_out *out, const weir_logprob_list *logprobs, size_t from,
    const weir_tokenizer *tokenizer, bool with_ids
)
{
    weir_json_open(out, '[');
    for (size_t i = from; i < logprobs->count; i++) {
        weir_json_open(out, '{');
        write_token(out, tokenizer, logprobs->id[i], logprobs->logprob[i], with_ids);
        weir_json_key(out, "top_logprobs");
        weir_json_open(out, '[');
        for (int32_t k = 0; k < logprobs->n_top[i]; k++) {
            const weir_logprob *const one = &logprobs->top[i * logprobs->width + (size_t)k];
            weir_json_open(out, '{');
            write_token(out, tokenizer, one->id, one->logprob, with_ids);
            weir_json_close(out, '}');
        }
        weir_json_close(out, ']');
        weir_json_close(out, '}');
    }
    weir_json_close(out, ']');
}

void weir_logprob_list_write_chat(
    weir_json_out *out, const weir_logprob_list *logprobs, size_t from,
    const weir_tokenizer *tokenizer
)
{
    write_list(out, logprobs, from, tokenizer, false);
}

void weir_logprob_list_write_ids(
    weir_json_out *out, const weir_logprob_list *logprobs, size_t from,
    const weir_tokenizer *tokenizer
)
{
    write_list(out, logprobs, from, tokenizer, true);
}

/* ---- completions ----------------------------------------------------------------------------- */

/* A token's text. Bytes that are not UTF-8 are written as bytes:\xNN, so that different tokens have
 * different names. */
static weir_status token_name(weir_buffer *name, const weir_tokenizer *tokenizer, int32_t id)
{
    size_t n;
    bool special;
    const char *const bytes = weir_tokenizer_token_bytes(tokenizer, id, &n, &special);
    weir_buffer_clear(name);
    if (weir_utf8_valid(bytes, n)) return weir_buffer_add(name, bytes, n);
    WEIR_TRY(weir_buffer_text(name, "bytes:"));
    for (size_t i = 0; i < n; i++)
        WEIR_TRY(weir_buffer_format(name, "\\x%02x", (unsigned)(unsigned char)bytes[i]));
    return WEIR_OK;
}

typedef struct part {
    const weir_logprob_list *logprobs;
    size_t from;
} part;

static void write_name(weir_json_out *out, const weir_tokenizer *tokenizer, int32_t id, bool key)
{
    weir_buffer name = { 0 };
    const weir_status status = token_name(&name, tokenizer, id);
    if (status != WEIR_OK && out->status == WEIR_OK) out->status = status;
    if (status == WEIR_OK) weir_json_bytes(out, name.data, name.size);
    weir_buffer_free(&name);
    if (!key || out->status != WEIR_OK) return;
    out->status = weir_buffer_text(out->buffer, ":");
    out->comma = false;
}

/* Writes the best tokens, and the chosen one if it is not among them. */
static void write_top(
    weir_json_out *out, const weir_logprob_list *logprobs, size_t i, const weir_tokenizer *tokenizer
)
{
    if (isnan(logprobs->logprob[i])) {
        weir_json_null(out);
        return;
    }
    bool chosen = false;
    weir_json_open(out, '{');
    for (int32_t k = 0; k < logprobs->n_top[i]; k++) {
        const weir_logprob *const one = &logprobs->top[i * logprobs->width + (size_t)k];
        write_name(out, tokenizer, one->id, true);
        weir_json_number(out, (double)one->logprob);
        chosen = chosen || one->id == logprobs->id[i];
    }
    if (!chosen) {
        write_name(out, tokenizer, logprobs->id[i], true);
        weir_json_number(out, (double)logprobs->logprob[i]);
    }
    weir_json_close(out, '}');
}

void weir_logprob_list_write_completion(
    weir_json_out *out, const weir_logprob_list *prompt, const weir_logprob_list *answer,
    size_t from, const weir_tokenizer *tokenizer
)
{
    static const weir_logprob_list none = { 0 };
    static const char *const name[] = { "tokens", "token_logprobs", "top_logprobs", "text_offset" };
    const part parts[2] = { { prompt != NULL ? prompt : &none, 0 }, { answer, from } };
    weir_json_open(out, '{');
    for (int field = 0; field < 4; field++) {
        weir_json_key(out, name[field]);
        weir_json_open(out, '[');
        for (int p = 0; p < 2; p++) {
            const weir_logprob_list *const s = parts[p].logprobs;
            for (size_t i = parts[p].from; i < s->count; i++) {
                if (field == 0)
                    write_name(out, tokenizer, s->id[i], false);
                else if (field == 2)
                    write_top(out, s, i, tokenizer);
                else if (field == 3)
                    weir_json_integer(out, s->offset[i]);
                else if (isnan(s->logprob[i]))
                    weir_json_null(out);
                else
                    weir_json_number(out, (double)s->logprob[i]);
            }
        }
        weir_json_close(out, ']');
    }
    weir_json_close(out, '}');
}
