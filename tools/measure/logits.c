#include "tools/measure/logits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/file.h"
#include "engine/cli/progress.h"
#include "engine/engine_parts.h"
#include "engine/schedule/evaluate.h"

/* The file being written: the header is known in advance, rows are filled in by steps. */
typedef struct sheet {
    char *bytes;
    size_t size, data; /* data: offset of the tensors */
    int64_t n_tokens, n_vocab, width, n_layers;
    int64_t row;    /* of the running step */
    int64_t n_rows; /* of that step */
} sheet;

static float *logits_at(const sheet *s, int64_t row)
{
    return (float *)(s->bytes + s->data) + row * s->n_vocab;
}

static float *hidden_at(const sheet *s, int64_t layer, int64_t row)
{
    return (float *)(s->bytes + s->data) + s->n_tokens * s->n_vocab +
           (layer * s->n_tokens + row) * s->width;
}

static weir_status write_header(weir_buffer *out, const sheet *s)
{
    const size_t logits = (size_t)(s->n_tokens * s->n_vocab) * sizeof(float),
                 hidden = (size_t)(s->n_tokens * s->width) * sizeof(float);
    WEIR_TRY(weir_buffer_format(
        out,
        "{\"logits\":{\"dtype\":\"F32\",\"shape\":[%" PRId64 ",%" PRId64
        "],\"data_offsets\":[0,%zu]}",
        s->n_tokens, s->n_vocab, logits
    ));
    for (int64_t i = 0; i < s->n_layers; i++) {
        const size_t begin = logits + (size_t)i * hidden;
        WEIR_TRY(weir_buffer_format(
            out,
            ",\"hidden.%" PRId64 "\":{\"dtype\":\"F32\",\"shape\":[%" PRId64 ",%" PRId64
            "],\"data_offsets\":[%zu,%zu]}",
            i, s->n_tokens, s->width, begin, begin + hidden
        ));
    }
    WEIR_TRY(weir_buffer_text(out, "}"));
    while (out->size % 8 != 0) WEIR_TRY(weir_buffer_text(out, " "));
    return WEIR_OK;
}

static weir_status open_sheet(sheet *s, weir_error *error)
{
    weir_buffer header = { 0 };
    size_t cells = 0, per_token = 0;
    weir_status status = write_header(&header, s);
    if (status == WEIR_OK &&
        (!weir_mul_size(&per_token, (size_t)s->n_layers, (size_t)s->width) ||
         !weir_add_size(&per_token, per_token, (size_t)s->n_vocab) ||
         !weir_mul_size(&cells, per_token, (size_t)s->n_tokens * sizeof(float)) ||
         !weir_add_size(&s->size, cells, 8 + header.size)))
        status = WEIR_ENOMEM;
    if (status == WEIR_OK) {
        s->bytes = calloc(1, s->size);
        s->data = 8 + header.size;
        if (s->bytes == NULL) status = WEIR_ENOMEM;
    }
    if (status == WEIR_OK) {
        const uint64_t length = header.size;
        for (int i = 0; i < 8; i++) s->bytes[i] = (char)(length >> (8 * i));
        memcpy(s->bytes + 8, header.data, header.size);
    }
    weir_buffer_free(&header);
    return status == WEIR_OK
               ? WEIR_OK
               : weir_error_set(
                     error, status, "no memory for the logits of %" PRId64 " tokens", s->n_tokens
                 );
}

static void on_hidden(void *user, int64_t layer, const float *hidden)
{
    const sheet *const s = user;
    if (layer >= 0 && layer < s->n_layers)
        memcpy(hidden_at(s, layer, s->row), hidden, (size_t)(s->n_rows * s->width) * sizeof(float));
}

static void on_rows(void *user, int32_t first, int32_t n_rows)
{
    sheet *const s = user;
    s->row = first;
    s->n_rows = n_rows;
    weir_progress_tick(first);
}

static void on_logits(void *user, int32_t first, int32_t n_rows, const float *logits)
{
    const sheet *const s = user;
    memcpy(logits_at(s, first), logits, (size_t)(n_rows * s->n_vocab) * sizeof(float));
}

weir_status weir_write_logits(
    const weir_engine *engine, const weir_logits_options *options, weir_error *error
)
{
    const weir_shape *const shape = weir_model_shape(weir_engine_model(engine));
    sheet s = { .n_tokens = options->n_tokens,
                .n_vocab = shape->n_vocab,
                .width = shape->d_model,
                .n_layers = shape->n_layers };
    weir_kv_sequence sequence = { 0 };
    for (int32_t i = 0; i < options->n_tokens; i++) {
        if (options->tokens[i] < 0 || options->tokens[i] >= shape->n_vocab)
            return weir_error_set(
                error, WEIR_EINVAL, "token %d at position %d is not in the vocabulary of %" PRId64,
                (int)options->tokens[i], (int)i, shape->n_vocab
            );
    }
    weir_status status = open_sheet(&s, error);
    if (status == WEIR_OK)
        status = weir_kv_sequence_open(
            &sequence, weir_engine_store(engine), weir_engine_ledger(engine),
            weir_model_recurrent_bytes(weir_engine_model(engine)), error
        );
    if (status == WEIR_OK) {
        weir_evaluation evaluation = { .tokens = options->tokens,
                                       .n_tokens = options->n_tokens,
                                       .chunk = options->chunk,
                                       .decode_from = options->decode_from,
                                       .before = on_rows,
                                       .visit = on_logits,
                                       .user = &s,
                                       .stopped = &weir_interrupted };
        weir_runner_observe(weir_engine_runner(engine), on_hidden, &s);
        weir_progress_begin("computing", "tokens", options->n_tokens);
        status = weir_evaluate(weir_engine_runner(engine), &sequence, &evaluation, error);
        status = weir_progress_after(status, sequence.n_computed, error);
        weir_progress_end();
        weir_runner_observe(weir_engine_runner(engine), NULL, NULL);
    }
    if (status == WEIR_OK) status = weir_file_write_atomic(options->path, s.bytes, s.size, error);
    weir_kv_sequence_close(&sequence);
    free(s.bytes);
    return status;
}
