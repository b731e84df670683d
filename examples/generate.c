/* generate.c - continues a text. Without MODEL it uses the demo model that comes with Weir.
 *     cc generate.c -o generate $(pkg-config --cflags --libs weir)
 *     ./generate "Once upon a time" [MODEL] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

static int fail(const weir_error *error)
{
    fprintf(stderr, "generate: %s\n", error->text);
    return EXIT_FAILURE;
}

static int print(void *user, int32_t token, const char *text, size_t length)
{
    (void)user;
    (void)token;
    return fwrite(text, 1, length, stdout) != length || fflush(stdout) != 0;
}

static int generate(weir_engine *engine, const char *prompt)
{
    weir_sequence *sequence = NULL;
    weir_sampling_params params;
    weir_usage_report usage = { .size = sizeof usage };
    weir_error error;
    int32_t *tokens = NULL;
    size_t n = 0;

    weir_sampling_params_init(&params, sizeof params, engine);
    params.temperature = 0;
    params.max_tokens = 48;
    int failed =
        weir_tokenize(engine, prompt, strlen(prompt), WEIR_TOKENIZE_BOS, &tokens, &n, &error) ||
        weir_sequence_new(&sequence, engine, &error) ||
        weir_sequence_sync(sequence, tokens, n, &error) ||
        weir_generate(sequence, &params, print, NULL, &error);
    if (failed) {
        (void)fail(&error);
    } else {
        weir_sequence_usage(sequence, &usage);
        printf("\n");
        fprintf(
            stderr, "%lld tokens in %.2f s, finish reason: %s\n", (long long)usage.answer_tokens,
            usage.decode_seconds, weir_finish_reason(sequence)
        );
    }
    weir_free(tokens);
    weir_sequence_free(sequence);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    weir_config *config = weir_config_new();
    weir_engine *engine = NULL;
    weir_error error;
    if (argc < 2 || argc > 3 || config == NULL) {
        fprintf(stderr, "usage: generate TEXT [MODEL]\n");
        return 2;
    }
    int failed = weir_config_set(config, "memory.host", "1GiB", &error) ||
                 (argc == 3 && weir_config_set(config, "model.path", argv[2], &error)) ||
                 weir_engine_open(&engine, config, &error);
    weir_config_free(config); /* the engine copied it */
    const int code = failed ? fail(&error) : generate(engine, argv[1]);
    weir_engine_close(engine);
    return code;
}
