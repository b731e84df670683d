/* chat.c - a chat in the terminal with streamed answers. Ctrl-C stops an answer, Ctrl-D exits.
 *     cc chat.c -o chat $(pkg-config --cflags --libs weir)
 *     ./chat [MODEL] */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

#include "text.h"

static weir_sequence *volatile answering; /* stopped by Ctrl-C */

static void on_interrupt(int signal)
{
    (void)signal;
    weir_sequence *sequence = answering;
    if (sequence != NULL) weir_sequence_cancel(sequence);
}

/* Appends a message to the list, which stays open: "[{..}". */
static void add_message(text *chat, const char *role, const char *content, size_t n)
{
    add(chat, chat->size == 0 ? "[" : ",", 1);
    add(chat, "{\"role\":\"", 9);
    add(chat, role, strlen(role));
    add(chat, "\",\"content\":", 12);
    add_json(chat, content, n);
    add(chat, "}", 1);
}

static int hear(void *user, int32_t token, const char *piece, size_t length)
{
    (void)token;
    add(user, piece, length);
    return fwrite(piece, 1, length, stdout) != length || fflush(stdout) != 0;
}

/* Renders the whole chat again for each turn: earlier turns are in the cache. */
static weir_status answer(
    weir_engine *engine, weir_sequence *sequence, text *chat, text *heard, weir_error *error
)
{
    int32_t *tokens = NULL;
    size_t n = 0;
    add(chat, "]", 1);
    weir_status status = weir_render_chat(engine, chat->data, chat->size, &tokens, &n, NULL, error);
    chat->data[--chat->size] = '\0';
    answering = sequence;
    if (status == WEIR_OK) status = weir_sequence_sync(sequence, tokens, n, error);
    if (status == WEIR_OK) status = weir_generate(sequence, NULL, hear, heard, error);
    answering = NULL;
    weir_free(tokens);
    return status;
}

static int talk(weir_engine *engine, weir_sequence *sequence)
{
    text chat = { 0 }, heard = { 0 };
    char line[4096];
    weir_error error;
    int code = EXIT_SUCCESS;
    while (code == EXIT_SUCCESS && (printf("> "), fflush(stdout), fgets(line, sizeof line, stdin))
    ) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0') continue;
        add_message(&chat, "user", line, strlen(line));
        heard.size = 0;
        const weir_status status = answer(engine, sequence, &chat, &heard, &error);
        if (status != WEIR_OK && status != WEIR_ECANCELED) {
            fprintf(stderr, "chat: %s\n", error.text);
            code = EXIT_FAILURE;
        }
        printf("%s\n", status == WEIR_ECANCELED ? " [stopped]" : "");
        add_message(&chat, "assistant", heard.data != NULL ? heard.data : "", heard.size);
    }
    free(chat.data);
    free(heard.data);
    return code;
}

int main(int argc, char **argv)
{
    weir_config *config = weir_config_new();
    weir_engine *engine = NULL;
    weir_sequence *sequence = NULL;
    weir_error error;
    int code = EXIT_FAILURE;
    struct sigaction interrupt = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };
    if (argc > 2 || config == NULL) {
        fprintf(stderr, "usage: chat [MODEL]\n");
        return 2;
    }
    (void)sigaction(SIGINT, &interrupt, NULL);
    if (weir_config_set(config, "memory.host", "1GiB", &error) ||
        weir_config_set(config, "sampling.max_tokens", "256", &error) ||
        (argc == 2 && weir_config_set(config, "model.path", argv[1], &error)) ||
        weir_engine_open(&engine, config, &error) || weir_sequence_new(&sequence, engine, &error))
        fprintf(stderr, "chat: %s\n", error.text);
    else
        code = talk(engine, sequence);
    weir_sequence_free(sequence);
    weir_engine_close(engine);
    weir_config_free(config);
    return code;
}
