/* host.c - a program that uses jansson, OpenMP and signals itself: the library leaves them alone.
 */
#include <jansson.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

static int failures;

static void expect(int condition, const char *what)
{
    if (!condition) printf("host: failed: %s\n", what);
    failures += !condition;
}

static int sum_of_threads(void)
{
    int sum = 0;
#pragma omp parallel reduction(+ : sum) num_threads(2)
    sum += omp_get_thread_num() + 1;
    return sum;
}

static void answer(weir_engine *engine)
{
    const char chat[] = "[{\"role\": \"user\", \"content\": \"Hello\"}]";
    weir_error error = { 0 };
    weir_sequence *sequence = NULL;
    weir_sampling_params params;
    int32_t *tokens = NULL;
    size_t n = 0, n_after = 0;
    weir_sampling_params_init(&params, sizeof params, engine);
    params.temperature = 0;
    params.max_tokens = 8;
    expect(
        weir_render_chat(engine, chat, sizeof chat - 1, &tokens, &n, NULL, &error) == WEIR_OK,
        error.text
    );
    expect(weir_sequence_new(&sequence, engine, &error) == WEIR_OK, error.text);
    expect(weir_sequence_sync(sequence, tokens, n, &error) == WEIR_OK, error.text);
    expect(weir_generate(sequence, &params, NULL, NULL, &error) == WEIR_OK, error.text);
    (void)weir_sequence_tokens(sequence, &n_after);
    expect(n_after > n, "an answer has tokens");
    weir_free(tokens);
    weir_sequence_free(sequence);
}

int main(void)
{
    json_malloc_t take, take_after;
    json_free_t give, give_after;
    struct sigaction before, after;
    weir_error error = { 0 };
    weir_engine *engine = NULL;
    weir_config *config = weir_config_new();
    const int threads = omp_get_max_threads();
    json_t *mine = json_pack("{s:i}", "mine", 1);
    json_get_alloc_funcs(&take, &give);
    (void)sigaction(SIGINT, NULL, &before);
    expect(sum_of_threads() == 3, "two threads before");
    expect(weir_config_set(config, "memory.host", "256MiB", &error) == WEIR_OK, error.text);
    expect(weir_engine_open(&engine, config, &error) == WEIR_OK, error.text);
    if (engine != NULL) answer(engine);
    expect(sum_of_threads() == 3, "two threads besides the engine's");
    expect(omp_get_max_threads() == threads, "the number of OpenMP threads is the program's");
    json_get_alloc_funcs(&take_after, &give_after);
    expect(take == take_after && give == give_after, "jansson's allocator is the program's");
    (void)sigaction(SIGINT, NULL, &after);
    expect(before.sa_handler == after.sa_handler, "SIGINT is the program's");
    weir_engine_close(engine);
    weir_config_free(config);
    char *const text = json_dumps(mine, JSON_COMPACT);
    expect(text != NULL && strcmp(text, "{\"mine\":1}") == 0, "values outlive the engine");
    free(text);
    json_decref(mine);
    expect(strcmp(weir_version(), WEIR_VERSION) == 0, "the header is that of the library");
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
