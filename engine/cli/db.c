#include "engine/cli/db.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/cli/answer.h"
#include "engine/cli/open.h"

int weir_db_fail(weir_status status, const weir_error *error)
{
    const int code = weir_fail(status, error);
    return status == WEIR_EFULL ? WEIR_EXIT_FAILED : code;
}

int weir_db_open_engine(weir_engine **engine, const weir_arguments *arguments)
{
    weir_config       config = arguments->config;
    weir_error        error = { 0 };
    const char *const dir = weir_argument(arguments, "dir");
    if (snprintf(config.sessions.dir, sizeof config.sessions.dir, "%s", dir) >= (int)sizeof config.sessions.dir)
        return weir_fail(weir_error_set(&error, WEIR_EINVAL, "--dir is a path of more than %d bytes", WEIR_CONFIG_TEXT - 1), &error);
    config.sessions.autosave = false;
    return weir_open(engine, &config, WEIR_USE_SERVICE);
}

weir_status weir_db_need_sessions(const weir_engine *engine, weir_error *error)
{
    if (weir_engine_sessions(engine) != NULL) return WEIR_OK;
    return weir_error_set(error, WEIR_EUNSUPPORTED, "this model keeps no KV rows, so its texts cannot be saved as states");
}

weir_status weir_db_open(weir_states **states, const weir_engine *engine, const weir_arguments *arguments, bool writes, weir_error *error)
{
    WEIR_TRY(weir_db_need_sessions(engine, error));
    const weir_states_options options = { .folder = weir_argument(arguments, "dir"),
                                          .model = weir_sessions_identity_of(weir_engine_sessions(engine))->model,
                                          .writes = writes };
    return weir_states_open(states, &options, error);
}

weir_status weir_db_embed(float **vector, const weir_engine *engine, const weir_ids *ids, bool keeps, weir_error *error)
{
    const weir_request request = { .prompt = ids->data,
                                   .n_prompt = (int32_t)ids->count,
                                   .n_choices = 1,
                                   .cache_prompt = keeps,
                                   .want_embedding = true,
                                   .sampling = weir_sampling_default() };
    weir_cli_answer    answer = { 0 };
    weir_catch_interrupts();
    weir_status status = weir_cli_answer_wait(&answer, weir_engine_service(engine), &request, NULL, NULL, &weir_interrupted, error);
    if (status == WEIR_OK && weir_interrupted) status = weir_error_set(error, WEIR_ECANCELED, "interrupted");
    if (status == WEIR_OK) {
        *vector = answer.embedding;
        answer.embedding = NULL;
    }
    weir_cli_answer_free(&answer);
    return status;
}
