/* document.c - computes a long document once, saves the state in a file, and answers questions:
 * ./document TEXT.txt STATE QUESTION... The first run writes STATE; later runs compute only the
 * questions. Building: docs/guides/library.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

#include "text.h"

/* Returns 0 on failure. */
static int read_file(text *out, const char *path)
{
    char piece[65536];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0) add(out, piece, n);
    const int is_read = !ferror(file);
    fclose(file);
    add(out, "", 0);
    return is_read;
}

/* Renders the prompt of a chat in which the user sends the document and a question. */
static weir_status render(
    weir_engine *engine, const text *document, const char *question, int32_t **tokens, size_t *n,
    weir_error *error
)
{
    static const char begin[] = "[{\"role\": \"user\", \"content\": ", end[] = "}]";
    text both = { 0 }, chat = { 0 };
    add(&both, document->data, document->size);
    add(&both, "\n\n", 2);
    add(&both, question, strlen(question));
    add(&chat, begin, sizeof begin - 1);
    add_json(&chat, both.data, both.size);
    add(&chat, end, sizeof end - 1);
    const weir_status status =
        weir_render_chat(engine, chat.data, chat.size, tokens, n, NULL, error);
    free(both.data);
    free(chat.data);
    return status;
}

/* Computes the common prefix of the prompts of two questions, which is the document, and writes it
 * to the file. */
static weir_status compute(
    weir_engine *engine, weir_sequence *sequence, const text *document, const char *state,
    weir_error *error
)
{
    int32_t *one = NULL, *other = NULL;
    size_t n_one = 0, n_other = 0, n = 0;
    weir_status status = render(engine, document, "Who?", &one, &n_one, error);
    if (status == WEIR_OK) status = render(engine, document, "Any?", &other, &n_other, error);
    if (status == WEIR_OK) {
        while (n < n_one && n < n_other && one[n] == other[n]) n++;
        status = weir_sequence_sync(sequence, one, n, error);
    }
    if (status == WEIR_OK) status = weir_sequence_save(sequence, state, error);
    weir_free(one);
    weir_free(other);
    return status;
}

static int print(void *user, int32_t token, const char *text, size_t length)
{
    (void)user;
    (void)token;
    return fwrite(text, 1, length, stdout) != length;
}

static weir_status ask(
    weir_engine *engine, weir_sequence *sequence, const text *document, const char *question,
    weir_error *error
)
{
    weir_sampling_params params;
    weir_usage_report usage = { .size = sizeof usage };
    int32_t *tokens = NULL;
    size_t n = 0;

    weir_sampling_params_init(&params, sizeof params, engine);
    params.temperature = 0;
    params.max_tokens = 32;
    weir_status status = render(engine, document, question, &tokens, &n, error);
    if (status == WEIR_OK) status = weir_sequence_sync(sequence, tokens, n, error);
    if (status == WEIR_OK) {
        weir_sequence_usage(sequence, &usage);
        printf("%s\n  ", question);
        status = weir_generate(sequence, &params, print, NULL, error);
        printf(
            "\n  [%lld tokens reused, %lld computed]\n", (long long)usage.cached_tokens,
            (long long)usage.computed_tokens
        );
    }
    weir_free(tokens);
    return status;
}

static weir_status answer_all(
    weir_engine *engine, weir_sequence *sequence, const text *document, char **arguments,
    weir_error *error
)
{
    weir_status status = weir_sequence_restore(sequence, arguments[0], error);
    if (status == WEIR_ENOTFOUND) status = compute(engine, sequence, document, arguments[0], error);
    for (int i = 1; status == WEIR_OK && arguments[i] != NULL; i++)
        status = ask(engine, sequence, document, arguments[i], error);
    return status;
}

int main(int argc, char **argv)
{
    weir_config *config = weir_config_new();
    weir_engine *engine = NULL;
    weir_sequence *sequence = NULL;
    weir_error error;
    text document = { 0 };
    if (argc < 4 || config == NULL) {
        fprintf(stderr, "usage: document TEXT.txt STATE QUESTION...\n");
        return 2;
    }
    if (!read_file(&document, argv[1])) {
        fprintf(stderr, "document: cannot read %s\n", argv[1]);
        return EXIT_FAILURE;
    }
    weir_status status = weir_config_set(config, "memory.host", "1GiB", &error);
    if (status == WEIR_OK) status = weir_engine_open(&engine, config, &error);
    if (status == WEIR_OK) status = weir_sequence_new(&sequence, engine, &error);
    if (status == WEIR_OK) status = answer_all(engine, sequence, &document, argv + 2, &error);
    if (status != WEIR_OK) fprintf(stderr, "document: %s\n", error.text);
    weir_sequence_free(sequence);
    weir_engine_close(engine);
    weir_config_free(config);
    free(document.data);
    return status == WEIR_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
