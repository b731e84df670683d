#include "engine/cli/open.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/base/clock.h"

volatile int weir_interrupted = 0;

static void on_interrupt(int number)
{
    (void)number;
    weir_interrupted = 1;
}

void weir_catch_interrupts(void)
{
    const struct sigaction action = { .sa_handler = on_interrupt };
    (void)sigaction(SIGINT, &action, NULL);
}

/* One line, redrawn in place; cleared when all is loaded. */
static void draw_progress(void *user, size_t done, size_t total)
{
    enum { WIDTH = 40 };
    static const char bar[WIDTH + 1] = "########################################";
    const int         filled = total > 0 ? (int)(done * WIDTH / total) : WIDTH;
    (void)user;
    if (done >= total)
        (void)fputs("\r\033[K", stderr);
    else
        (void)fprintf(stderr, "\rloading [%.*s%*s] %zu of %zu MiB", filled, bar, WIDTH - filled, "", done >> 20, total >> 20);
    (void)fflush(stderr);
}

int weir_open(weir_engine **out, const weir_config *config, weir_use use)
{
    weir_error                error = { 0 };
    const weir_engine_options options = { .config = config,
                                          .with_service = use != WEIR_USE_RUNNER,
                                          .with_server = use == WEIR_USE_SERVER,
                                          .progress = isatty(STDERR_FILENO) ? draw_progress : NULL };
    const weir_status         status = weir_engine_open(out, &options, &error);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}

void weir_url(char out[WEIR_URL], const char *host, int port)
{
    const bool is_v6 = strchr(host, ':') != NULL && host[0] != '[';
    (void)snprintf(out, WEIR_URL, "http://%s%s%s:%d", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
                   port);
}

weir_sampling weir_sampling_of(const weir_config *config)
{
    weir_sampling sampling = weir_sampling_default();
    sampling.temperature = (float)config->sampling.temperature;
    sampling.top_k = (int32_t)config->sampling.top_k;
    sampling.top_p = (float)config->sampling.top_p;
    sampling.min_p = (float)config->sampling.min_p;
    sampling.repetition_penalty = (float)config->sampling.repetition_penalty;
    sampling.presence_penalty = (float)config->sampling.presence_penalty;
    sampling.frequency_penalty = (float)config->sampling.frequency_penalty;
    sampling.seed = (uint64_t)config->sampling.seed;
    if (config->sampling.seed < 0 && getrandom(&sampling.seed, sizeof sampling.seed, 0) != (ssize_t)sizeof sampling.seed)
        sampling.seed = (uint64_t)weir_clock_ns();
    return sampling;
}
