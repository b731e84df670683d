/* engine/cli/get.c - what the commands that download a model share. */
#include "engine/cli/get.h"

#include <stdlib.h>

#include "engine/base/log.h"
#include "engine/cli/open.h"
#include "engine/cli/process.h"

/* Megabytes that were there when the download began are not part of its progress: the time that is
 * left is estimated from the rest. */
typedef struct shown {
    int64_t start_mib;
    bool has_begun;
} shown;

static void show(void *user, int64_t done, int64_t total)
{
    shown *const s = user;
    if (!s->has_begun) {
        s->start_mib = done >> 20;
        s->has_begun = true;
        weir_progress_begin("downloading", "MiB", (total >> 20) - s->start_mib);
    }
    weir_progress_tick((done >> 20) - s->start_mib);
}

static void warn(void *user, const char *text)
{
    (void)user;
    weir_progress_pause();
    weir_log(WEIR_LOG_WARNING, "%s", text);
}

static bool is_cancelled(void *user)
{
    (void)user;
    return weir_interrupted != 0;
}

static const char *not_empty(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Fills in what the user and the environment say. */
static weir_status read_options(weir_hub_options *options, const weir_get *get, weir_error *error)
{
    const char *const environment = not_empty(getenv("HF_ENDPOINT"));
    options->revision = get->revision;
    options->file = get->file;
    options->token = not_empty(getenv("HF_TOKEN"));
    options->endpoint = get->endpoint;
    if (options->endpoint == NULL)
        options->endpoint = environment != NULL ? environment : WEIR_HUB_ENDPOINT;
    if (!weir_hub_name_parse(&options->name, get->name))
        return weir_error_set(
            error, WEIR_EINVAL,
            "%.200s: not the name of a model; it is OWNER/NAME, or OWNER/NAME:QUANT", get->name
        );
    if (options->file != NULL && options->name.quant[0] != '\0')
        return weir_error_set(
            error, WEIR_EINVAL, "%.200s: a quantisation and --file exclude each other", get->name
        );
    if (options->token != NULL) weir_process_hide();
    return WEIR_OK;
}

weir_status weir_get_model(weir_hub_result *out, const weir_get *get, weir_error *error)
{
    char models[PATH_MAX];
    shown progress = { 0 };
    weir_hub_options options = { .models = models,
                                 .agent = "weir/" WEIR_VERSION,
                                 .wait_ms = 1000,
                                 .is_cancelled = is_cancelled,
                                 .progress = show,
                                 .warn = warn,
                                 .user = &progress };
    WEIR_TRY(read_options(&options, get, error));
    WEIR_TRY(weir_models_folder(models, error));
    weir_catch_interrupts();
    const weir_status status = weir_hub_get(&options, out, error);
    weir_progress_end();
    if (status == WEIR_OK)
        weir_log(
            WEIR_LOG_INFO, "%s: %zu file%s, %.1f MiB; %zu downloaded", get->name, out->n_files,
            out->n_files == 1 ? "" : "s", (double)out->bytes / (1 << 20), out->n_downloaded
        );
    return status;
}
