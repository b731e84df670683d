/* engine/cli/run_generate.c - weir generate: one prompt, one answer. */
#include "engine/cli/explain.h"
#include "engine/cli/generate.h"
#include "engine/cli/open.h"
#include "engine/cli/prompt.h"
#include "engine/cli/session.h"

int weir_run_generate(const weir_arguments *arguments)
{
    weir_engine *engine = NULL;
    weir_error error = { 0 };
    weir_ids ids = { 0 };
    weir_cli_answer answer = { 0 };
    const bool as_json = weir_argument_given(arguments, "json");
    if (weir_argument_given(arguments, "explain")) return weir_run_explain(&arguments->config);
    if (weir_prompt_check(arguments, &error) != WEIR_OK) return weir_fail(error.code, &error);
    const int code = weir_open(&engine, &arguments->config, WEIR_USE_SERVICE);
    if (code != WEIR_EXIT_OK) return code;
    const char *const session = weir_argument(arguments, "session");
    const weir_cli_prompt prompt = {
        .ids = &ids, .session = session, .reuses = session != NULL, .is_quiet = as_json
    };
    weir_status status = weir_prompt_from_arguments(&ids, engine, arguments, &error);
    if (status == WEIR_OK && session != NULL) status = weir_session_resume(engine, session, &error);
    if (status == WEIR_OK)
        status = weir_cli_generate(&answer, engine, &arguments->config, &prompt, &error);
    if (status == WEIR_OK && session != NULL)
        status = weir_session_keep(engine, session, NULL, &error);
    int result = status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
    if (status == WEIR_OK && (as_json || weir_engine_tokenizer(engine) == NULL))
        result = weir_cli_print_answer(engine, &answer, NULL);
    if (weir_interrupted) result = 130;
    weir_cli_answer_free(&answer);
    weir_ids_free(&ids);
    weir_engine_close(engine);
    return result;
}
