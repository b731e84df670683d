/* engine/cli/dispatch.c - finds the command for argv, and the files that are installed with the
 * program. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/cli/command.h"
#include "engine/cli/progress.h"
#include "engine/config/distance.h"
#include "engine/hub/models.h"

int weir_fail(weir_status status, const weir_error *error)
{
    (void)fprintf(stderr, "weir: %s\n", error->text);
    switch (status) {
    case WEIR_OK: return WEIR_EXIT_OK;
    case WEIR_EINVAL:
    case WEIR_ECONFIG: return WEIR_EXIT_USAGE;
    case WEIR_EFULL: return WEIR_EXIT_MEMORY;
    case WEIR_ENOMEM:
    case WEIR_EIO:
    case WEIR_EFORMAT:
    case WEIR_EMISMATCH:
    case WEIR_EUNSUPPORTED:
    case WEIR_EDEVICE:
    case WEIR_ECANCELED:
    case WEIR_ENOTFOUND: break;
    }
    return WEIR_EXIT_FAILED;
}

weir_status weir_stdout_lost(int why, weir_error *error)
{
    return weir_error_set(error, WEIR_EIO, "cannot write to stdout: %s", strerror(why));
}

weir_status weir_print_line(const char *line, weir_error *error)
{
    return puts(line) >= 0 && fflush(stdout) == 0 ? WEIR_OK : weir_stdout_lost(errno, error);
}

int weir_print(const weir_buffer *text)
{
    weir_error error = { 0 };
    if (fwrite(text->data, 1, text->size, stdout) == text->size && fflush(stdout) == 0)
        return WEIR_EXIT_OK;
    return weir_fail(weir_stdout_lost(errno, &error), &error);
}

/* Commands that print as they go leave it to this to notice that stdout lost some of it. */
static int end_output(int code)
{
    weir_error error = { 0 };
    const bool was_lost = ferror(stdout) != 0;
    if ((fflush(stdout) == 0 && !was_lost) || code != WEIR_EXIT_OK) return code;
    return weir_fail(
        was_lost ? weir_error_set(&error, WEIR_EIO, "cannot write to stdout")
                 : weir_stdout_lost(errno, &error),
        &error
    );
}

/* ---- files that come with the program: configs/ and models/weir-demo below one of these roots  */

enum { N_ROOTS = 4 };

typedef struct places {
    char roots[N_ROOTS][PATH_MAX]; /* [N_ROOTS]; "": none */
    char folders[N_ROOTS][PATH_MAX];
    const char *folder_list[N_ROOTS];
    size_t n_folders;
} places;

/* Returns false (out "") if the path would be too long. */
static bool join(char out[PATH_MAX], const char *folder, const char *name)
{
    if (snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX) return true;
    out[0] = '\0';
    return false;
}

/* The caller's folder, the current folder (the runfiles under `bazel run`), the executable's
 * runfiles, an installed share/weir. */
static void find_places(places *p, const char *caller)
{
    *p = (places){ 0 };
    char program[PATH_MAX], folder[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (caller != NULL) (void)snprintf(p->roots[0], PATH_MAX, "%s", caller);
    if (getcwd(p->roots[1], PATH_MAX) == NULL) p->roots[1][0] = '\0';
    if (n > 0) {
        program[n] = '\0';
        if (snprintf(folder, sizeof folder, "%s.runfiles", program) < (int)sizeof folder)
            (void)join(p->roots[2], folder, "weir");
        *strrchr(program, '/') = '\0';
        (void)join(p->roots[3], program, "../share/weir");
    }
    for (size_t i = 0; i < N_ROOTS; i++)
        if (p->roots[i][0] != '\0' && join(p->folders[i], p->roots[i], "configs") &&
            weir_file_is_directory(p->folders[i]))
            p->folder_list[p->n_folders++] = p->folders[i];
}

static bool takes_model(const weir_command *command)
{
    for (size_t g = 0; g < WEIR_OPTION_GROUPS && command->groups[g] != NULL; g++)
        for (size_t i = 0; i < command->groups[g]->n; i++) {
            const char *const key = command->groups[g]->options[i].key;
            if (key != NULL && strcmp(key, "model.path") == 0) return true;
        }
    return false;
}

/* Sets an empty model.path to that of the bundled demo, the name of a model to its path. */
static weir_status fill_model(weir_config *config, const places *p, weir_error *error)
{
    char path[PATH_MAX];
    if (config->n_models > 0) return WEIR_OK; /* serve starts a server for each */
    if (config->model.path[0] != '\0')
        return weir_models_resolve(config->model.path, sizeof config->model.path, error);
    for (size_t i = 0; i < N_ROOTS; i++) {
        if (p->roots[i][0] == '\0' || !join(path, p->roots[i], "models/weir-demo") ||
            !weir_file_is_directory(path))
            continue;
        const size_t length = strlen(path);
        if (length >= sizeof config->model.path) continue;
        memcpy(config->model.path, path, length + 1);
        return WEIR_OK;
    }
    return weir_error_set(
        error, WEIR_ENOTFOUND,
        "the bundled demo (models/weir-demo) is not installed with this program; give a model: "
        "--model PATH, or a name of `weir get`"
    );
}

/* ---- commands -------------------------------------------------------------------------------- */

/* True if argv begins with this command's name, of one word or two. */
static bool is_named(const weir_command *command, int argc, const char *const *argv, bool two_words)
{
    const char *const space = strchr(command->name, ' ');
    const size_t first = space != NULL ? (size_t)(space - command->name) : strlen(command->name);
    if (two_words != (space != NULL) || strlen(argv[0]) != first ||
        strncmp(argv[0], command->name, first) != 0)
        return false;
    return space == NULL || (argc > 1 && strcmp(argv[1], space + 1) == 0);
}

/* "models rm" goes before "models". *n_words: words of argv used. */
static const weir_command *find_command(
    const weir_command *commands, size_t n, int argc, const char *const *argv, int *n_words
)
{
    for (*n_words = 2; *n_words > 0; --*n_words)
        for (size_t i = 0; i < n; i++)
            if (is_named(&commands[i], argc, argv, *n_words == 2)) return &commands[i];
    return NULL;
}

/* True if commands of two words begin with `word`. */
static bool is_family(const weir_program *program, const char *word)
{
    const size_t n = strlen(word);
    for (size_t i = 0; i < program->n_commands; i++)
        if (strncmp(program->commands[i].name, word, n) == 0 && program->commands[i].name[n] == ' ')
            return true;
    return false;
}

static int unknown_command(const weir_program *program, int argc, const char *const *argv)
{
    char name[160];
    const size_t first = strlen(argv[0]);
    size_t nearest = 0, best = SIZE_MAX;
    (void)snprintf(name, sizeof name, "%.70s", argv[0]);
    for (size_t i = 0; i < program->n_commands;
         i++) { /* "eval" is right: the word after it is wrong */
        const char *const command = program->commands[i].name;
        if (argc > 1 && strncmp(command, argv[0], first) == 0 && command[first] == ' ')
            (void)snprintf(name, sizeof name, "%.70s %.70s", argv[0], argv[1]);
    }
    for (size_t i = 0; i < program->n_commands; i++) {
        const char *const command = program->commands[i].name;
        const bool begins = strncmp(command, argv[0], first) == 0 && command[first] == ' ';
        const size_t distance = begins && argc == 1 ? 0 : weir_edit_distance(name, command);
        if (distance < best) best = distance, nearest = i;
    }
    (void)fprintf(
        stderr,
        "weir: unknown command \"%s\"; the nearest is \"%s\". `%s --help` lists them all.\n", name,
        program->commands[nearest].name, program->name
    );
    return WEIR_EXIT_USAGE;
}

static int print_action(const weir_program *program, const weir_arguments *arguments)
{
    weir_buffer text = { 0 };
    weir_status status = WEIR_OK;
    switch (arguments->action) {
    case WEIR_ACTION_HELP:
        status = weir_command_help(&text, program->name, arguments->command);
        break;
    case WEIR_ACTION_HELP_CONFIG: status = weir_config_describe(&text); break;
    case WEIR_ACTION_PRINT_CONFIG: status = weir_config_print(&arguments->config, &text); break;
    case WEIR_ACTION_VERSION:
        status = weir_buffer_format(&text, "weir %s\n", program->version);
        break;
    case WEIR_ACTION_RUN: break;
    }
    const int code = status == WEIR_OK ? weir_print(&text) : WEIR_EXIT_FAILED;
    weir_buffer_free(&text);
    return code;
}

static int run(
    const weir_program *program, const weir_command *command, int argc, const char *const *argv
)
{
    static places here; /* large; a process runs one command */
    static weir_arguments arguments;
    weir_error error = { 0 };
    find_places(&here, program->caller);
    if (program->caller != NULL && chdir(program->caller) != 0) {
        (void
        )weir_error_set(&error, WEIR_EIO, "%.300s: cannot change to this folder", program->caller);
        return weir_fail(WEIR_EIO, &error);
    }
    const weir_config_search search = { .folders = here.folder_list, .n_folders = here.n_folders };
    if (weir_arguments_parse(&arguments, command, &search, argc, argv, &error) != WEIR_OK) {
        const char *const name = program->fixed == NULL ? command->name : "";
        const bool is_about_key = strncmp(error.text, "--set: ", 7) == 0 ||
                                  strncmp(error.text, "--config: ", 10) == 0 ||
                                  strncmp(error.text, "WEIR_", 5) == 0;
        (void)fprintf(
            stderr, "weir: %s\n`%s%s%s --help%s.\n", error.text, program->name,
            *name != '\0' ? " " : "", name,
            is_about_key ? "-config` lists every key" : "` lists the options"
        );
        return WEIR_EXIT_USAGE;
    }
    if (arguments.action != WEIR_ACTION_RUN) return print_action(program, &arguments);
    if (arguments.is_quiet) weir_progress_be_quiet();
    arguments.is_only_command = program->fixed != NULL;
    (void)weir_log_set_level_name(arguments.config.log.level); /* was checked when it was set */
    weir_status status = WEIR_OK;
    if (arguments.config.n_models > 0 && strcmp(command->name, "serve") != 0)
        status = weir_error_set(
            &error, WEIR_ECONFIG,
            "this configuration has [[models]], which only serve takes; give one of them"
        );
    else if (takes_model(command))
        status = fill_model(&arguments.config, &here, &error);
    return status == WEIR_OK ? command->run(&arguments) : weir_fail(status, &error);
}

/* Prints the list of commands, or of those of a family (NULL: all). Returns the exit code. */
static int print_commands(const weir_program *program, const char *family, bool asked)
{
    weir_buffer text = { 0 };
    int code = WEIR_EXIT_FAILED;
    if (weir_commands_help(&text, program->name, family, program->commands, program->n_commands) ==
        WEIR_OK) {
        code = asked ? weir_print(&text) : WEIR_EXIT_USAGE;
        if (!asked) (void)fwrite(text.data, 1, text.size, stderr);
    }
    weir_buffer_free(&text);
    return code;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* `weir help` with nothing, a command, or a family of commands. */
static int print_help(const weir_program *program, int argc, const char *const *argv)
{
    int n_words = 0;
    if (argc == 0 || asks_for_help(argv[0])) return print_commands(program, NULL, true);
    const weir_command *const command =
        find_command(program->commands, program->n_commands, argc, argv, &n_words);
    if (command != NULL && n_words == argc)
        return print_action(
            program, &(weir_arguments){ .action = WEIR_ACTION_HELP, .command = command }
        );
    if (argc == 1 && is_family(program, argv[0])) return print_commands(program, argv[0], true);
    return unknown_command(program, argc, argv);
}

static int dispatch(const weir_program *program, int argc, const char *const *argv)
{
    int n_words = 0;
    if (program->fixed != NULL) {
        const weir_command *const command =
            find_command(program->commands, program->n_commands, 1, &program->fixed, &n_words);
        WEIR_ASSERT(command != NULL);
        return run(program, command, argc > 0 ? argc - 1 : 0, argv + 1);
    }
    if (argc < 2) return print_commands(program, NULL, false);
    if (asks_for_help(argv[1])) return print_commands(program, NULL, true);
    if (strcmp(argv[1], "help") == 0) return print_help(program, argc - 2, argv + 2);
    if (strcmp(argv[1], "--version") == 0)
        return print_action(program, &(weir_arguments){ .action = WEIR_ACTION_VERSION });
    const weir_command *const command =
        find_command(program->commands, program->n_commands, argc - 1, argv + 1, &n_words);
    if (command == NULL && is_family(program, argv[1]) && (argc == 2 || asks_for_help(argv[2])))
        return print_commands(program, argv[1], argc > 2);
    if (command == NULL) return unknown_command(program, argc - 1, argv + 1);
    return run(program, command, argc - 1 - n_words, argv + 1 + n_words);
}

int weir_main(const weir_program *program, int argc, const char *const *argv)
{
    /* A write that exceeds `ulimit -f` fails instead of killing the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
    return end_output(dispatch(program, argc, argv));
}
