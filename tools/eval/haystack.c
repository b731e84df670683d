#include "tools/eval/haystack.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/error.h"
#include "tools/eval/essay_text.h"

const char weir_eval_noise[] = "The hills are green. The river runs slowly. The evening is calm. "
                               "We walk along it. Then we go home again.";

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static bool is_utf8(const char *text, size_t n)
{
    json_t *const value = json_stringn(text, n); /* accepts only valid UTF-8 */
    json_decref(value);
    return value != NULL;
}

weir_status weir_eval_essay_open(
    weir_eval_essay *out, const char *text, size_t n, const char *name, weir_error *error
)
{
    enum { LEAST = 10 };
    if (!is_utf8(text, n))
        return weir_error_set(error, WEIR_EFORMAT, "%s: the text is not valid UTF-8", name);
    *out = (weir_eval_essay){ .text = malloc(n + 1),
                              .starts = malloc((n / 2 + 1) * sizeof *out->starts) };
    if (out->text == NULL || out->starts == NULL) {
        weir_eval_essay_close(out);
        return weir_error_set(error, WEIR_ENOMEM, "%s: no memory for its words", name);
    }
    memcpy(out->text, text, n);
    out->text[n] = '\0';
    for (size_t i = 0; i < n; i++) {
        const bool is_word = !is_space(out->text[i]) && out->text[i] != '\0';
        if (!is_word)
            out->text[i] = '\0';
        else if (i == 0 || out->text[i - 1] == '\0')
            out->starts[out->n_words++] = i;
    }
    if (out->n_words >= LEAST) return WEIR_OK;
    const size_t n_words = out->n_words;
    weir_eval_essay_close(out);
    return weir_error_set(
        error, WEIR_EFORMAT, "%s: %zu words, needs at least %d to hide needles in", name, n_words,
        LEAST
    );
}

weir_status weir_eval_essay_bundled(weir_eval_essay *out, weir_error *error)
{
    return weir_eval_essay_open(
        out, weir_eval_essay_texts[0].text, strlen(weir_eval_essay_texts[0].text),
        weir_eval_essay_texts[0].name, error
    );
}

void weir_eval_essay_close(weir_eval_essay *essay)
{
    free(essay->text);
    free(essay->starts);
    *essay = (weir_eval_essay){ 0 };
}

static const char *word_at(const weir_eval_essay *essay, size_t i)
{
    return essay->text + essay->starts[i % essay->n_words];
}

/* A sentence ends at . ! or ?, also if quotes or brackets follow. */
static bool ends_sentence(const char *word)
{
    size_t n = strlen(word);
    while (n > 1 && strchr("\"')]", word[n - 1]) != NULL) n--;
    return strchr(".!?", word[n - 1]) != NULL;
}

static weir_status put_needles(
    weir_buffer *out, size_t sentence, size_t n_sentences, const char *const *needles,
    const uint32_t *depths, size_t n
)
{
    for (size_t i = 0; i < n; i++) {
        if (n_sentences * depths[i] / 100 != sentence) continue;
        WEIR_TRY(weir_buffer_format(
            out, "%s%s", out->size > 0 && !is_space(out->data[out->size - 1]) ? " " : "", needles[i]
        ));
    }
    return WEIR_OK;
}

weir_status weir_eval_essay_print(
    weir_buffer *out, const weir_eval_essay *essay, size_t first, size_t n_words,
    const char *const *needles, const uint32_t *depths, size_t n
)
{
    size_t n_sentences = 0, sentence = 0;
    for (size_t i = 0; i < n_words; i++)
        n_sentences += i + 1 == n_words || ends_sentence(word_at(essay, first + i));
    WEIR_TRY(put_needles(out, 0, n_sentences, needles, depths, n));
    for (size_t i = 0; i < n_words; i++) {
        const char *const word = word_at(essay, first + i);
        WEIR_TRY(weir_buffer_format(
            out, "%s%s", out->size > 0 && !is_space(out->data[out->size - 1]) ? " " : "", word
        ));
        if (i + 1 < n_words && !ends_sentence(word)) continue;
        sentence++;
        WEIR_TRY(put_needles(out, sentence, n_sentences, needles, depths, n));
    }
    return WEIR_OK;
}
