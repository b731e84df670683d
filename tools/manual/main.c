/* tools/manual/main.c - writes the manual pages and completions into a folder:
 * manual FOLDER
 * man/man1/weir-COMMAND.1, man/man5/weir.toml.5, bash/weir, zsh/_weir, fish/weir.fish. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/file.h"
#include "engine/cli/command.h"
#include "engine/engine.h"
#include "tools/manual/manual.h"

/* Writes what `status` says is complete, and empties the buffer. */
static weir_status write_text(
    weir_buffer *text, weir_status status, const char *folder, const char *name, weir_error *error
)
{
    char path[PATH_MAX];
    if (status != WEIR_OK) return weir_error_set(error, status, "%s: cannot be made", name);
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return weir_error_set(error, WEIR_EINVAL, "%s: the path is too long", folder);
    status = weir_file_write_atomic(path, text->data, text->size, error);
    weir_buffer_clear(text);
    return status;
}

static weir_status make_folders(const char *folder, weir_error *error)
{
    static const char *const names[] = { "man", "man/man1", "man/man5", "bash", "zsh", "fish" };
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) >= (int)sizeof path)
            return weir_error_set(error, WEIR_EINVAL, "%s: the path is too long", folder);
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return weir_error_set(error, WEIR_EIO, "%s: %s", path, strerror(errno));
    }
    return WEIR_OK;
}

static weir_status write_all(
    weir_buffer *text, const weir_manual *manual, const char *folder, weir_error *error
)
{
    char name[100];
    WEIR_TRY(make_folders(folder, error));
    for (size_t i = 0; i < manual->n; i++) {
        const weir_command *const command = &manual->commands[i];
        (void)snprintf(name, sizeof name, "man/man1/weir-%s.1", command->name);
        for (char *c = name; *c != '\0'; c++)
            if (*c == ' ') *c = '-';
        WEIR_TRY(write_text(text, weir_page_of_command(text, manual, command), folder, name, error)
        );
    }
    WEIR_TRY(write_text(text, weir_page_of_program(text, manual), folder, "man/man1/weir.1", error)
    );
    WEIR_TRY(
        write_text(text, weir_page_of_keys(text, manual), folder, "man/man5/weir.toml.5", error)
    );
    WEIR_TRY(write_text(text, weir_complete_bash(text, manual), folder, "bash/weir", error));
    WEIR_TRY(write_text(text, weir_complete_zsh(text, manual), folder, "zsh/_weir", error));
    return write_text(text, weir_complete_fish(text, manual), folder, "fish/weir.fish", error);
}

int main(int argc, char **argv)
{
    weir_manual manual = { .version = WEIR_VERSION };
    weir_buffer text = { 0 };
    weir_error error = { 0 };
    if (argc != 2) {
        (void)fputs("usage: manual FOLDER\n", stderr);
        return WEIR_EXIT_USAGE;
    }
    manual.commands = weir_commands(&manual.n);
    const weir_status status = write_all(&text, &manual, argv[1], &error);
    weir_buffer_free(&text);
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_fail(status, &error);
}
