/* tools/eval/constructed.c - the weights of constructed.h. The residual stream has three parts of
 * n_kv_heads codes each, and a constant 1. All entries are -1, 0 or 1 as long as nothing is lost,
 * so its length is known and the norms' weights undo them. */
#include "tools/eval/constructed.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/buffer.h"
#include "engine/base/file.h"
#include "engine/sample/random.h"

enum {
    CODE = WEIR_CONSTRUCTED_CODE,
    HEAD = WEIR_CONSTRUCTED_HEAD,
    PAIRS = HEAD / 4,
    N_LAYERS = 2,
    FFN = 32
};

/* Two codes differ in at least this many signs. */
enum { LEAST_DISTANCE = 18 };

/* With base 2 the frequencies are 1 .. 1/2: the sum of 32 cosines falls from 32 by 8.3 one token
 * away from its peak, and further elsewhere within 100,000 tokens. POSITION^2 * 8.3 / sqrt(128) =
 * 47 nats keep layer 1 on one row, CODE_GAIN^2 * (64 - 28) / sqrt(128) = 115 layer 2. */
static const double rope_theta = 2.0, position_gain = 8.0, code_gain = 6.0;

/* If some head has lost an answer, it agrees in at most 1 - 0.5625 / n_kv_heads, otherwise in 1;
 * token 0 is between the two. */
static const double answer_gain = 40.0, none_margin = 0.36;

typedef struct tensor {
    char name[64];
    int64_t rows, columns; /* rows 0: a vector */
    float *data; /* owned */
} tensor;

enum { MAX_TENSORS = 3 + 9 * N_LAYERS };

typedef struct weights {
    const weir_constructed *model;
    int64_t width; /* of the residual stream */
    uint64_t *codes; /* [n_kv_heads, n_vocab] */
    tensor tensors[MAX_TENSORS];
    int count;
    bool is_short; /* a tensor could not be allocated */
} weights;

/* E: the token's own code (embedding); P: the code of the token before (layer 1); O: what was
 * recalled (layer 2); then the constant 1. */
static int64_t part(const weights *w, int which)
{
    return (int64_t)which * w->model->n_kv_heads * CODE;
}

static float sign_of(uint64_t code, int i) { return (code >> i & 1) != 0 ? 1.0f : -1.0f; }

static float *add(weights *w, const char *name, int layer, int64_t rows, int64_t columns)
{
    tensor *const t = &w->tensors[w->count++];
    if (layer < 0)
        (void)snprintf(t->name, sizeof t->name, "%s.weight", name);
    else
        (void)snprintf(t->name, sizeof t->name, "model.layers.%d.%s.weight", layer, name);
    t->rows = rows;
    t->columns = columns;
    t->data = calloc((size_t)((rows > 0 ? rows : 1) * columns), sizeof *t->data);
    w->is_short = w->is_short || t->data == NULL;
    return t->data;
}

/* Draws random codes, different for each head, and skips those too near to an earlier one. */
static weir_status choose_codes(weights *w, weir_error *error)
{
    enum { DRAWS_PER_CODE = 1000 };
    const int32_t n = w->model->n_vocab;
    for (int32_t head = 0; head < w->model->n_kv_heads; head++) {
        uint64_t *const codes = w->codes + (int64_t)head * n;
        int32_t count = 0;
        for (int64_t draw = 0; count < n; draw++) {
            if (draw == (int64_t)n * DRAWS_PER_CODE)
                return weir_error_set(
                    error, WEIR_EINVAL, "cannot find %d codes that are far enough apart", (int)n
                );
            const weir_philox block = weir_philox_block(
                (weir_philox){ { (uint32_t)draw, (uint32_t)(draw >> 32), (uint32_t)head, 0 } }, 1
            );
            const uint64_t code = (uint64_t)block.word[0] << 32 | block.word[1];
            int32_t i = 0;
            while (i < count && __builtin_popcountll(codes[i] ^ code) >= LEAST_DISTANCE) i++;
            if (i == count) codes[count++] = code;
        }
    }
    return WEIR_OK;
}

/* Adds a norm that gives the stream itself if n_entries of it are 1 or -1. */
static void add_norm(weights *w, const char *name, int layer, int64_t n_entries)
{
    float *const out = add(w, name, layer, 0, w->width);
    for (int64_t i = 0; out != NULL && i < w->width; i++)
        out[i] = (float)sqrt((double)n_entries / (double)w->width);
}

/* out[row, from + i] = gain for row = first + i: CODE rows copy a part of the stream. */
static void copy_rows(const weights *w, float *out, int64_t first, int64_t from, double gain)
{
    for (int i = 0; i < CODE; i++) out[(first + i) * w->width + from + i] = (float)gain;
}

/* Queries as if each were one token earlier than it is; all keys are equal. Only positions
 * differ. */
static void look_back(const weights *w, float *q, float *k)
{
    const int64_t one = part(w, 3);
    for (int64_t h = 0; h < w->model->n_heads; h++)
        for (int f = 0; f < PAIRS; f++) {
            const double frequency = pow(rope_theta, -(double)f / (double)PAIRS);
            q[(h * HEAD + f) * w->width + one] = (float)(position_gain * cos(frequency));
            q[(h * HEAD + PAIRS + f) * w->width + one] = (float)(-position_gain * sin(frequency));
        }
    for (int64_t g = 0; g < w->model->n_kv_heads; g++)
        for (int f = 0; f < PAIRS; f++) k[(g * HEAD + f) * w->width + one] = (float)position_gain;
}

/* Queries are the token's code, keys the code of the previous token, both in the half without
 * RoPE. */
static void compare(const weights *w, float *q, float *k)
{
    const int64_t group = w->model->n_heads / w->model->n_kv_heads;
    for (int64_t h = 0; h < w->model->n_heads; h++)
        copy_rows(w, q, h * HEAD + CODE, part(w, 0) + h / group * CODE, code_gain);
    for (int64_t g = 0; g < w->model->n_kv_heads; g++)
        copy_rows(w, k, g * HEAD + CODE, part(w, 1) + g * CODE, code_gain);
}

/* Values are the row's own code, twice; the heads of a group write their mean to part `to`. */
static void carry(const weights *w, float *v, float *out, int to)
{
    const int64_t n_heads = w->model->n_heads, group = n_heads / w->model->n_kv_heads;
    for (int64_t g = 0; g < w->model->n_kv_heads; g++)
        for (int half = 0; half < HEAD; half += CODE)
            copy_rows(w, v, g * HEAD + half, part(w, 0) + g * CODE, 1.0);
    for (int64_t h = 0; h < n_heads; h++)
        for (int i = 0; i < HEAD; i++)
            out[(part(w, to) + h / group * CODE + i % CODE) * n_heads * HEAD + h * HEAD + i] =
                (float)(0.5 / (double)group);
}

static void add_layer(weights *w, int layer)
{
    const int64_t q_rows = (int64_t)w->model->n_heads * HEAD,
                  kv_rows = (int64_t)w->model->n_kv_heads * HEAD;
    add_norm(w, "input_layernorm", layer, part(w, 1 + layer) + 1);
    add_norm(w, "post_attention_layernorm", layer, part(w, 2 + layer) + 1);
    float *const q = add(w, "self_attn.q_proj", layer, q_rows, w->width),
                 *const k = add(w, "self_attn.k_proj", layer, kv_rows, w->width),
                 *const v = add(w, "self_attn.v_proj", layer, kv_rows, w->width),
                 *const out = add(w, "self_attn.o_proj", layer, w->width, q_rows);
    (void)add(w, "mlp.gate_proj", layer, FFN, w->width); /* the feed-forward block adds zero */
    (void)add(w, "mlp.up_proj", layer, FFN, w->width);
    (void)add(w, "mlp.down_proj", layer, w->width, FFN);
    if (w->is_short) return;
    (layer == 0 ? look_back : compare)(w, q, k);
    carry(w, v, out, 1 + layer);
}

static void add_vocabulary(weights *w)
{
    const int32_t n = w->model->n_vocab, n_heads = w->model->n_kv_heads;
    float *const embed = add(w, "model.embed_tokens", -1, n, w->width), *const output =
                                                                            add(w, "lm_head", -1, n,
                                                                                w->width);
    if (w->is_short) return;
    for (int64_t id = 0; id < n; id++) {
        for (int i = 0; i < n_heads * CODE; i++) {
            const float sign = sign_of(w->codes[i / CODE * n + id], i % CODE);
            embed[id * w->width + part(w, 0) + i] = sign;
            if (id != WEIR_CONSTRUCTED_NONE)
                output[id * w->width + part(w, 2) + i] =
                    (float)(answer_gain / (n_heads * CODE)) * sign;
        }
        embed[id * w->width + part(w, 3)] = 1.0f;
    }
    output[WEIR_CONSTRUCTED_NONE * w->width + part(w, 3)] =
        (float)(answer_gain * (1.0 - none_margin / n_heads));
}

/* ---- files ----------------------------------------------------------------------------------- */

static weir_status write_weights(const weights *w, const char *path, weir_error *error)
{
    weir_buffer header = { 0 }, file = { 0 };
    size_t at = 0;
    weir_status status = weir_buffer_text(&header, "{");
    for (int i = 0; status == WEIR_OK && i < w->count; i++) {
        const tensor *const t = &w->tensors[i];
        const size_t bytes = (size_t)((t->rows > 0 ? t->rows : 1) * t->columns) * sizeof(float);
        char shape[64];
        if (t->rows > 0)
            (void
            )snprintf(shape, sizeof shape, "%lld,%lld", (long long)t->rows, (long long)t->columns);
        else
            (void)snprintf(shape, sizeof shape, "%lld", (long long)t->columns);
        status = weir_buffer_format(
            &header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
            i > 0 ? "," : "", t->name, shape, at, at + bytes
        );
        at += bytes;
    }
    if (status == WEIR_OK) status = weir_buffer_text(&header, "}");
    while (status == WEIR_OK && header.size % 8 != 0) status = weir_buffer_text(&header, " ");
    const uint64_t size = header.size;
    if (status == WEIR_OK) status = weir_buffer_reserve(&file, sizeof size + header.size + at);
    if (status == WEIR_OK) status = weir_buffer_add(&file, &size, sizeof size);
    if (status == WEIR_OK) status = weir_buffer_add(&file, header.data, header.size);
    for (int i = 0; status == WEIR_OK && i < w->count; i++) {
        const tensor *const t = &w->tensors[i];
        status = weir_buffer_add(
            &file, t->data, (size_t)((t->rows > 0 ? t->rows : 1) * t->columns) * sizeof(float)
        );
    }
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "%s: no memory for %zu bytes of weights", path, at);
    else
        status = weir_file_write_atomic(path, file.data, file.size, error);
    weir_buffer_free(&header);
    weir_buffer_free(&file);
    return status;
}

static weir_status write_config(const weights *w, const char *path, weir_error *error)
{
    const weir_constructed *const m = w->model;
    weir_buffer text = { 0 };
    weir_status status = weir_buffer_format(
        &text,
        "{\n \"model_type\": \"%s\",\n \"vocab_size\": %d,\n \"hidden_size\": %lld,\n "
        "\"num_hidden_layers\": %d,\n"
        " \"num_attention_heads\": %d,\n \"num_key_value_heads\": %d,\n \"head_dim\": %d,\n "
        "\"intermediate_size\": %d,\n"
        " \"max_position_embeddings\": %d,\n \"rms_norm_eps\": 1e-06,\n \"hidden_act\": "
        "\"silu\",\n \"rope_theta\": %g,\n"
        " \"partial_rotary_factor\": 0.5,\n \"tie_word_embeddings\": false,\n",
        m->window > 0 ? "mistral" : "llama", (int)m->n_vocab, (long long)w->width, (int)N_LAYERS,
        (int)m->n_heads, (int)m->n_kv_heads, (int)HEAD, (int)FFN, (int)m->context, rope_theta
    );
    if (status == WEIR_OK && m->window > 0)
        status = weir_buffer_format(&text, " \"sliding_window\": %d,\n", (int)m->window);
    if (status == WEIR_OK) status = weir_buffer_text(&text, " \"torch_dtype\": \"float32\"\n}\n");
    if (status != WEIR_OK)
        status = weir_error_set(error, status, "%s: no memory for the text", path);
    else
        status = weir_file_write_atomic(path, text.data, text.size, error);
    weir_buffer_free(&text);
    return status;
}

static weir_status check(const weir_constructed *m, weir_error *error)
{
    if (m->n_vocab < 16 || m->n_vocab > 8192)
        return weir_error_set(
            error, WEIR_EINVAL, "constructed model: %d tokens, allowed are 16 to 8192",
            (int)m->n_vocab
        );
    if (m->n_heads < 1 || m->n_heads > 16 || m->n_kv_heads < 1 || m->n_kv_heads > 4 ||
        m->n_heads % m->n_kv_heads != 0)
        return weir_error_set(
            error, WEIR_EINVAL,
            "constructed model: %d heads over %d KV heads, allowed are 1 to 16 "
            "over 1 to 4 that divide them",
            (int)m->n_heads, (int)m->n_kv_heads
        );
    if (m->context < 64 || m->context > 1 << 20)
        return weir_error_set(
            error, WEIR_EINVAL, "constructed model: a context of %d, allowed is 64 to %d",
            (int)m->context, 1 << 20
        );
    if (m->window < 0 || m->window == 1)
        return weir_error_set(
            error, WEIR_EINVAL,
            "constructed model: a window of %d, allowed are 0, and 2 or more: layer 1 attends to "
            "the previous row",
            (int)m->window
        );
    return WEIR_OK;
}

weir_status weir_constructed_write(
    const char *folder, const weir_constructed *model, weir_error *error
)
{
    char path[PATH_MAX];
    WEIR_TRY(check(model, error));
    if (strlen(folder) + 32 > sizeof path)
        return weir_error_set(error, WEIR_EINVAL, "%.200s..: the path is too long", folder);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return weir_error_set(error, WEIR_EIO, "%.300s: %s", folder, strerror(errno));
    weights w = { .model = model, .width = ((int64_t)3 * model->n_kv_heads + 1) * CODE };
    w.codes = calloc((size_t)model->n_kv_heads * (size_t)model->n_vocab, sizeof *w.codes);
    weir_status status = w.codes != NULL ? choose_codes(&w, error) : WEIR_OK;
    if (status == WEIR_OK && w.codes != NULL) {
        add_vocabulary(&w);
        add_norm(&w, "model.norm", -1, part(&w, 3) + 1);
        for (int layer = 0; layer < N_LAYERS; layer++) add_layer(&w, layer);
    }
    if (status == WEIR_OK && (w.codes == NULL || w.is_short))
        status = weir_error_set(error, WEIR_ENOMEM, "constructed model: no memory for its weights");
    (void)snprintf(path, sizeof path, "%s/config.json", folder);
    if (status == WEIR_OK) status = write_config(&w, path, error);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (status == WEIR_OK) status = write_weights(&w, path, error);
    for (int i = 0; i < w.count; i++) free(w.tensors[i].data);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the analyzer does not follow w.count */
    free(w.codes);
    return status;
}
