/* engine/cli/run_get.c - weir get. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/log.h"
#include "engine/cli/open.h"
#include "engine/cli/process.h"
#include "engine/hub/hub.h"

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

/* Fills in what the command line and the environment say. */
static weir_status read_options(
    weir_hub_options *options, const weir_arguments *arguments, weir_error *error
)
{
    const char *const name = weir_argument(arguments, "name"), *const environment =
                                                                   not_empty(getenv("HF_ENDPOINT"));
    options->revision = weir_argument(arguments, "revision");
    options->file = weir_argument(arguments, "file");
    options->token = not_empty(getenv("HF_TOKEN"));
    options->endpoint = weir_argument(arguments, "endpoint");
    if (options->endpoint == NULL)
        options->endpoint = environment != NULL ? environment : WEIR_HUB_ENDPOINT;
    if (!weir_hub_name_parse(&options->name, name))
        return weir_error_set(
            error, WEIR_EINVAL,
            "%.200s: not the name of a model; it is OWNER/NAME, or OWNER/NAME:QUANT", name
        );
    if (options->file != NULL && options->name.quant[0] != '\0')
        return weir_error_set(
            error, WEIR_EINVAL, "%.200s: a quantisation and --file exclude each other", name
        );
    if (options->token != NULL) weir_process_hide();
    return WEIR_OK;
}

static weir_status print_path(weir_buffer *text, const char *name, const weir_hub_result *result)
{
    weir_log(
        WEIR_LOG_INFO, "%s: %zu file%s, %.1f MiB; %zu downloaded", name, result->n_files,
        result->n_files == 1 ? "" : "s", (double)result->bytes / (1 << 20), result->n_downloaded
    );
    return weir_buffer_format(text, "%s\n", result->path);
}

int weir_run_get(const weir_arguments *arguments)
{
    static weir_hub_result result;
    char models[PATH_MAX];
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    shown progress = { 0 };
    weir_hub_options options = { .models = models,
                                 .agent = "weir/" WEIR_VERSION,
                                 .wait_ms = 1000,
                                 .is_cancelled = is_cancelled,
                                 .progress = show,
                                 .warn = warn,
                                 .user = &progress };
    weir_status status = read_options(&options, arguments, &error);
    if (status == WEIR_OK) status = weir_models_folder(models, &error);
    weir_catch_interrupts();
    if (status == WEIR_OK) status = weir_hub_get(&options, &result, &error);
    weir_progress_end();
    if (status == WEIR_OK) status = print_path(&text, weir_argument(arguments, "name"), &result);
    int code = weir_end(status, &error);
    if (code == WEIR_EXIT_OK) code = weir_print(&text);
    weir_buffer_free(&text);
    return code;
}
