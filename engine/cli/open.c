#include "engine/cli/open.h"

#include <stdio.h>
#include <string.h>

static void show_loading(void *user, size_t done, size_t total)
{
    bool *const has_begun = user;
    if (!*has_begun) weir_progress_begin("loading", "MiB", (int64_t)(total >> 20));
    *has_begun = true;
    weir_progress_tick((int64_t)(done >> 20));
    if (done >= total) weir_progress_end();
}

int weir_end(weir_status status, const weir_error *error)
{
    weir_progress_end();
    if (status == WEIR_OK) return WEIR_EXIT_OK;
    const int code = weir_fail(status, error);
    return status == WEIR_ECANCELED && weir_interrupted ? WEIR_EXIT_INTERRUPTED : code;
}

int weir_open(weir_engine **out, const weir_config *config, weir_use use)
{
    weir_error error = { 0 };
    bool has_begun = false;
    const weir_engine_options options = { .config = config,
                                          .with_service = use != WEIR_USE_RUNNER,
                                          .with_server = use == WEIR_USE_SERVER,
                                          .progress = show_loading,
                                          .user = &has_begun };
    const weir_status status = weir_engine_open_with(out, &options, &error);
    weir_progress_end();
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}

void weir_url(char out[WEIR_URL], const char *host, int port)
{
    const size_t n = strlen(host);
    if (n > 5 && strcmp(host + n - 5, ".sock") == 0) {
        (void)snprintf(out, WEIR_URL, "unix:%s", host);
        return;
    }
    const bool is_v6 = strchr(host, ':') != NULL && host[0] != '[';
    (void
    )snprintf(out, WEIR_URL, "http://%s%s%s:%d", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
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
    sampling.seed = weir_sampling_seed(config->sampling.seed);
    return sampling;
}
