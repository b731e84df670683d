/* engine/cli/run_models.c - weir models, weir models rm. */
#include <inttypes.h>

#include "engine/base/log.h"
#include "engine/base/memory.h"
#include "engine/cli/open.h"
#include "engine/cli/print.h"
#include "engine/hub/models.h"

static double mib(int64_t bytes) { return (double)bytes / (1 << 20); }

static weir_status print_entry(weir_buffer *text, const weir_model_entry *entry)
{
    WEIR_TRY(weir_buffer_format(
        text, "%-48s %-10s %10.1f MiB  %.10s  ", entry->name,
        entry->quant[0] != '\0' ? entry->quant : "-", mib(entry->bytes), entry->date
    ));
    if (entry->is_complete)
        WEIR_TRY(weir_buffer_text(text, "complete"));
    else
        WEIR_TRY(weir_buffer_format(text, "partial, %.1f MiB here", mib(entry->here)));
    return weir_buffer_format(text, "  %s\n", entry->path);
}

/* A string, or null for "". */
static json_t *text_or_null(const char *text)
{
    return text[0] != '\0' ? json_string(text) : json_null();
}

static json_t *entry_json(const weir_model_entry *entry)
{
    return json_pack(
        "{s:s, s:o, s:I, s:I, s:b, s:o, s:o, s:o, s:s}", "name", entry->name, "quantisation",
        text_or_null(entry->quant), "bytes", (json_int_t)entry->bytes, "bytes_here",
        (json_int_t)entry->here, "complete", (int)entry->is_complete, "revision",
        text_or_null(entry->revision), "commit", text_or_null(entry->commit), "date",
        text_or_null(entry->date), "path", entry->path
    );
}

static int print_json(const weir_model_entry *entries, size_t n)
{
    json_t *models = json_array();
    for (size_t i = 0; i < n && models != NULL; i++)
        if (json_array_append_new(models, entry_json(&entries[i])) != 0) {
            json_decref(models);
            models = NULL;
        }
    return weir_print_json(models != NULL ? json_pack("{s:o}", "models", models) : NULL);
}

static int print_text(const weir_model_entry *entries, size_t n, const char *folder)
{
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    if (n == 0) weir_log(WEIR_LOG_INFO, "%s: no models here; `weir get` downloads them", folder);
    for (size_t i = 0; i < n && status == WEIR_OK; i++) status = print_entry(&text, &entries[i]);
    const int code = status != WEIR_OK ? WEIR_EXIT_FAILED
                     : text.size > 0   ? weir_print(&text)
                                       : WEIR_EXIT_OK;
    weir_buffer_free(&text);
    return code;
}

int weir_run_models(const weir_arguments *arguments)
{
    char folder[PATH_MAX];
    weir_error error = { 0 };
    weir_model_entry *entries = NULL;
    size_t n = 0;
    weir_status status = weir_models_folder(folder, &error);
    if (status == WEIR_OK) status = weir_models_list(&entries, &n, folder, &error);
    const int code = status != WEIR_OK                        ? weir_fail(status, &error)
                     : weir_argument_given(arguments, "json") ? print_json(entries, n)
                                                              : print_text(entries, n, folder);
    weir_memory_give(entries);
    return code;
}

static void note_removed(void *text, const char *path)
{
    (void)!weir_buffer_format(text, "removed %s\n", path); /* the file is gone in any case */
}

int weir_run_models_rm(const weir_arguments *arguments)
{
    char folder[PATH_MAX];
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    weir_hub_name name;
    const char *const given = weir_argument(arguments, "name");
    weir_status status = weir_models_folder(folder, &error);
    if (status == WEIR_OK && !weir_hub_name_parse(&name, given))
        status = weir_error_set(
            &error, WEIR_EINVAL,
            "%.200s: not the name of a model; it is OWNER/NAME, or OWNER/NAME:QUANT", given
        );
    if (status == WEIR_OK) status = weir_models_remove(folder, &name, note_removed, &text, &error);
    int code = text.size > 0 ? weir_print(&text) : WEIR_EXIT_OK;
    if (status != WEIR_OK) code = weir_fail(status, &error);
    weir_buffer_free(&text);
    return code;
}
