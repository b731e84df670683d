/* engine/cli/command.h - the commands and exit codes of the programs.
 *
 * Exit codes: 0 ok, 1 runtime or model, 2 usage or configuration, 3 the memory plan does not fit,
 * 130 Ctrl-C. Answers go to stdout, messages to stderr. A run function gets complete arguments: the
 * configuration is checked, and model.path names a file or folder if the command has the option
 * --model. */
#pragma once
#include "engine/cli/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weir_exit {
    WEIR_EXIT_OK = 0,
    WEIR_EXIT_FAILED = 1,
    WEIR_EXIT_USAGE = 2,
    WEIR_EXIT_MEMORY = 3,
    WEIR_EXIT_INTERRUPTED = 130
} weir_exit;

/* Prints "weir: text" on stderr. Returns the exit code: usage for ECONFIG and EINVAL, memory for
 * EFULL, else failed. */
int weir_fail(weir_status status, const weir_error *error);
/* Returns EIO: stdout could not be written, with this errno. */
weir_status weir_stdout_lost(int why, weir_error *error);
/* Writes a line to stdout. */
weir_status weir_print_line(const char *line, weir_error *error);
/* Writes to stdout. Returns the exit code: failed, with a message, if it cannot be written. */
int weir_print(const weir_buffer *text);

const weir_command *weir_commands(size_t *n); /* `serve` is the first */

int weir_run_serve(const weir_arguments *arguments);
int weir_run_plan(const weir_arguments *arguments);
int weir_run_generate(const weir_arguments *arguments);
int weir_run_chat(const weir_arguments *arguments);
int weir_run_run(const weir_arguments *arguments);
int weir_run_session_list(const weir_arguments *arguments);
int weir_run_session_save(const weir_arguments *arguments);
int weir_run_session_restore(const weir_arguments *arguments);
int weir_run_session_delete(const weir_arguments *arguments);
int weir_run_get(const weir_arguments *arguments);
int weir_run_models(const weir_arguments *arguments);
int weir_run_models_rm(const weir_arguments *arguments);
int weir_run_db_create(const weir_arguments *arguments);
int weir_run_db_ingest(const weir_arguments *arguments);
int weir_run_db_list(const weir_arguments *arguments);
int weir_run_db_query(const weir_arguments *arguments);
int weir_run_db_merge(const weir_arguments *arguments);
int weir_run_db_delete(const weir_arguments *arguments);
int weir_run_logits(const weir_arguments *arguments);
int weir_run_tokenize(const weir_arguments *arguments);
int weir_run_render(const weir_arguments *arguments);
int weir_run_bench(const weir_arguments *arguments);
int weir_run_load(const weir_arguments *arguments);
int weir_run_experts(const weir_arguments *arguments);
int weir_run_experts_trace(const weir_arguments *arguments);
int weir_run_verify(const weir_arguments *arguments);
int weir_run_imatrix(const weir_arguments *arguments);
int weir_run_convert(const weir_arguments *arguments);
int weir_run_calibrate(const weir_arguments *arguments);
int weir_run_eval_constructed(const weir_arguments *arguments);
int weir_run_eval_generate(const weir_arguments *arguments);
int weir_run_eval_matrix(const weir_arguments *arguments);
int weir_run_eval_structured(const weir_arguments *arguments);
int weir_run_eval_policies(const weir_arguments *arguments);
int weir_run_eval_retrieval(const weir_arguments *arguments);
int weir_run_eval_perplexity(const weir_arguments *arguments);
int weir_run_eval_kv_quality(const weir_arguments *arguments);
int weir_run_eval_state_quality(const weir_arguments *arguments);
int weir_run_eval_toolcalls(const weir_arguments *arguments);

typedef struct weir_program {
    const weir_command *commands; /* [n_commands] */
    size_t n_commands;
    const char *name, *version; /* as messages show them */
    /* NULL: argv[1] names the command (argv[1] and argv[2] for "eval retrieval"); otherwise the
     * command of this program. */
    const char *fixed;
    const char *caller; /* relative names start from this folder; NULL: the current one */
} weir_program;

/* The body of main. Returns the exit code. */
int weir_main(const weir_program *program, int argc, const char *const *argv);

#ifdef __cplusplus
}
#endif
