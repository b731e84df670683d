#include <math.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/evaluate.h"
#include "engine/schedule/evaluate.h"

enum { MAX_TEXT = 1 << 28 };

typedef struct scorer {
    const int32_t *window; /* tokens of the window now running */
    int32_t        n;
    int64_t        n_vocab, n_valid, n_scored;
    double         nll;
} scorer;

double weir_eval_log_probability(const float *row, int64_t n, int32_t id)
{
    double largest = row[0], sum = 0.0;
    for (int64_t i = 1; i < n; i++) largest = fmax(largest, (double)row[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)row[i] - largest);
    return (double)row[id] - largest - log(sum);
}

static void on_logits(void *user, int32_t first, int32_t n_rows, const float *logits)
{
    scorer *const s = user;
    for (int32_t r = 0; r < n_rows && first + r + 1 < s->n; r++) {
        s->nll -= weir_eval_log_probability(logits + r * s->n_vocab, s->n_valid, s->window[first + r + 1]);
        s->n_scored++;
    }
}

weir_status weir_eval_tokens(weir_ids *ids, size_t *n_bytes, const weir_engine *engine, const char *path, weir_error *error)
{
    const weir_tokenizer *const tokenizer = weir_engine_tokenizer(engine);
    weir_buffer                 text = { 0 };
    if (tokenizer == NULL) return weir_error_set(error, WEIR_EUNSUPPORTED, "the model has no tokenizer: the text cannot be scored");
    weir_status status = weir_file_read_input(&text, path, MAX_TEXT, error);
    *n_bytes = text.size;
    if (status == WEIR_OK)
        status = weir_tokenizer_encode(tokenizer, ids, text.data, text.size, &(weir_encode_options){ .parse_special = true }, error);
    weir_buffer_free(&text);
    return status;
}

weir_status weir_eval_perplexity(weir_perplexity *out, const weir_engine *engine, const char *path, int32_t window, weir_error *error)
{
    const weir_shape *const shape = weir_model_shape(weir_engine_model(engine));
    scorer                  s = { .n = window, .n_vocab = shape->n_vocab };
    weir_ids                ids = { 0 };
    weir_sequence           sequence = { 0 };
    size_t                  n_bytes = 0;
    if (window < 2 || window > weir_engine_plan_of(engine)->window)
        return weir_error_set(error, WEIR_EINVAL, "the window is %d tokens, allowed is 2 to %d", (int)window,
                              (int)weir_engine_plan_of(engine)->window);
    weir_status status = weir_eval_tokens(&ids, &n_bytes, engine, path, error);
    if (status == WEIR_OK && ids.count < (size_t)window)
        status = weir_error_set(error, WEIR_EINVAL, "%s: %zu tokens, fewer than one window of %d", path, ids.count, (int)window);
    if (status == WEIR_OK)
        status = weir_sequence_open(&sequence, weir_engine_store(engine), weir_engine_ledger(engine),
                                    weir_model_recurrent_bytes(weir_engine_model(engine)), error);
    s.n_valid = status == WEIR_OK ? (int64_t)weir_tokenizer_size(weir_engine_tokenizer(engine)) : 0;
    const size_t n_windows = ids.count / (size_t)window;
    for (size_t i = 0; status == WEIR_OK && i < n_windows; i++) {
        s.window = ids.data + i * (size_t)window;
        weir_sequence_clear(&sequence);
        status = weir_evaluate(
            weir_engine_runner(engine), &sequence,
            &(weir_evaluation){ .tokens = s.window, .n_tokens = window, .decode_from = INT32_MAX, .visit = on_logits, .user = &s }, error);
    }
    if (status == WEIR_OK) {
        const double mean = s.nll / (double)s.n_scored;
        *out = (weir_perplexity){ .nll = mean,
                                  .perplexity = exp(mean),
                                  .n_scored = s.n_scored,
                                  .n_tokens = (int64_t)ids.count,
                                  .bits_per_byte = mean / log(2.0) * (double)ids.count / (double)n_bytes };
    }
    weir_sequence_close(&sequence);
    weir_ids_free(&ids);
    return status;
}
