/* engine/cli/chat_commands.c - what can be said to the program itself in a chat. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/cli/chat.h"
#include "engine/cli/command.h"
#include "engine/config/distance.h"
#include "engine/formats/json.h"
#include "offload/ledger.h"

/* `text`: what follows the command's name, without blanks around it. */
typedef weir_status command_run(weir_chat *chat, const char *text, weir_error *error);

static command_run help, system_message, save, memory, policy, undo;

static const struct {
    const char *name, *usage, *summary;
    command_run *run; /* NULL: ends the conversation */
} commands[] = {
    { "help", "", "lists these commands", help },
    { "system", "[TEXT]", "sets the system message, or shows it; - removes it", system_message },
    { "undo", "", "takes back the last message and its answer", undo },
    { "save", "FILE", "writes the conversation; `weir chat --messages FILE` goes on with it",
      save },
    { "memory", "", "shows the memory in use, by account, and what is left of the window", memory },
    { "policy", "[NAME [ROWS]]", "limits the rows of each KV head, or shows how they are limited",
      policy },
    { "exit", "", "ends the conversation, as Ctrl-D does", NULL },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static weir_status help(weir_chat *chat, const char *text, weir_error *error)
{
    (void)chat;
    (void)text;
    (void)error;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char left[40];
        (void)snprintf(left, sizeof left, "/%s %s", commands[i].name, commands[i].usage);
        (void)printf("%-22s%s\n", left, commands[i].summary);
    }
    (void)puts("A message that begins with / is written with two. Ctrl-C stops an answer.");
    return WEIR_OK;
}

/* Prints a message, which may be from a file: its control characters would reach the terminal. */
static void print_text(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        const bool is_c1 = c[0] == '\xC2' && (c[1] & 0xE0) == 0x80;
        const bool is_control =
            ((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7F;
        (void)putchar(is_c1 || is_control ? '?' : *c);
        c += is_c1;
    }
}

static const char *content_of(const json_t *message)
{
    return json_string_value(json_object_get(message, "content"));
}

static bool has_role(const json_t *message, const char *role)
{
    const char *const found = json_string_value(json_object_get(message, "role"));
    return found != NULL && strcmp(found, role) == 0;
}

static weir_status system_message(weir_chat *chat, const char *text, weir_error *error)
{
    const json_t *const first = json_array_get(chat->messages, 0);
    if (*text == '\0') {
        const char *const content = has_role(first, "system") ? content_of(first) : NULL;
        print_text(content != NULL ? content : "(there is no system message)");
        (void)putchar('\n');
        return WEIR_OK;
    }
    const bool removes = strcmp(text, "-") == 0;
    return weir_chat_set_system(chat, removes ? "" : text, removes ? 0 : strlen(text), error);
}

static weir_status undo(weir_chat *chat, const char *text, weir_error *error)
{
    (void)text;
    size_t n = json_array_size(chat->messages), turn = n;
    while (turn > 0 && !has_role(json_array_get(chat->messages, turn - 1), "user")) turn--;
    if (turn == 0) return weir_error_set(error, WEIR_EINVAL, "there is no message to take back");
    const char *const content = content_of(json_array_get(chat->messages, turn - 1));
    (void)fputs("(taken back: ", stdout);
    print_text(content != NULL ? content : "");
    (void)puts(")");
    for (; n >= turn; n--) (void)json_array_remove(chat->messages, n - 1);
    return WEIR_OK;
}

static weir_status save(weir_chat *chat, const char *text, weir_error *error)
{
    char path[PATH_MAX];
    weir_buffer out = { 0 };
    if (*text == '\0') return weir_error_set(error, WEIR_EINVAL, "name a file: /save FILE");
    WEIR_TRY(weir_config_path(path, sizeof path, text, error));
    if (weir_file_exists(path) && strcmp(path, chat->saved) != 0)
        return weir_error_set(error, WEIR_EINVAL, "%s: is there already; name another file", path);
    weir_status status = weir_json_write(&out, chat->messages, JSON_INDENT(2));
    if (status == WEIR_OK) status = weir_buffer_text(&out, "\n");
    if (status != WEIR_OK)
        (void)weir_error_set(error, status, "no memory for the text of the conversation");
    else
        status = weir_file_write_private(path, out.data, out.size, error);
    weir_buffer_free(&out);
    if (status != WEIR_OK) return status;
    memcpy(chat->saved, path, sizeof path);
    (void)printf("(saved %zu messages to %s)\n", json_array_size(chat->messages), path);
    return WEIR_OK;
}

/* ---- memory and policy ----------------------------------------------------------------------- */

static double mib(double bytes) { return bytes / (1024.0 * 1024.0); }

static void print_tier(const weir_ledger_state *state, weir_tier tier)
{
    if (state->total[tier] == 0) return;
    (void)printf("%s\n", weir_tier_name(tier));
    for (int i = 0; i < WEIR_ACCOUNT_COUNT; i++)
        if (state->used[tier][i] > 0)
            (void)printf(
                "  %-18s%10.1f MiB\n", weir_account_name((weir_account)i),
                mib((double)state->used[tier][i])
            );
    (void)printf("  %-18s%10.1f MiB", "total", mib((double)state->total[tier]));
    if (state->cap[tier] > 0) (void)printf(" of %.1f MiB", mib((double)state->cap[tier]));
    (void)putchar('\n');
}

static weir_status memory(weir_chat *chat, const char *text, weir_error *error)
{
    (void)text;
    (void)error;
    weir_ledger_state state;
    weir_service_stats stats;
    const weir_service *const service = weir_engine_service(chat->engine);
    weir_ledger_read(weir_engine_ledger(chat->engine), &state);
    weir_service_stats_of(service, &stats);
    for (int i = 0; i < WEIR_TIER_COUNT; i++) print_tier(&state, (weir_tier)i);
    if (chat->has_usage)
        (void)printf(
            "conversation: %d of %d tokens, %.1f MiB of KV; %d of its last prompt were cached\n",
            (int)(chat->usage.n_prompt + chat->usage.n_answer),
            (int)weir_service_facts_of(service)->window, mib((double)chat->usage.kv_bytes),
            (int)chat->usage.n_cached
        );
    (void)printf(
        "KV pages: room for %" PRId64 " more tokens; %" PRId64 " tokens are cached\n",
        stats.kv_tokens_free, stats.kept_tokens
    );
    return WEIR_OK;
}

/* "snapkv" or "snapkv 2048". */
static weir_status set_policy(weir_chat *chat, const char *text, weir_error *error)
{
    char name[32], *end = NULL;
    weir_policy_options options;
    const size_t length = strcspn(text, " \t");
    const char *const rest = text + length + strspn(text + length, " \t");
    int64_t rows = weir_engine_config(chat->engine)->kv.policy.budget;
    (void)snprintf(name, sizeof name, "%.*s", (int)(length < 31 ? length : 31), text);
    WEIR_TRY(weir_policy_options_default(&options, name, error));
    if (*rest != '\0') {
        rows = strtoll(rest, &end, 10);
        if (*rest < '0' || *rest > '9' || *end != '\0' || rows < 1 || rows > INT32_MAX)
            return weir_error_set(
                error, WEIR_EINVAL, "%.40s: must be a number of rows: /policy NAME ROWS", rest
            );
    }
    const bool is_full = weir_policy_is_full(&options);
    if (is_full && *rest != '\0')
        return weir_error_set(error, WEIR_EINVAL, "%s keeps every row: it has no budget", name);
    if (!is_full && rows < 1)
        return weir_error_set(error, WEIR_EINVAL, "give the rows to keep: /policy %s ROWS", name);
    chat->policy = options;
    chat->has_policy = true;
    chat->kv_budget = is_full ? 0 : rows;
    return WEIR_OK;
}

static weir_status policy(weir_chat *chat, const char *text, weir_error *error)
{
    const weir_config *const config = weir_engine_config(chat->engine);
    if (*text != '\0') WEIR_TRY(set_policy(chat, text, error));
    const char *const name =
        chat->has_policy ? weir_policy_name(&chat->policy) : config->kv.policy.name;
    const int64_t rows = chat->has_policy ? chat->kv_budget : config->kv.policy.budget;
    if (strcmp(name, "full") == 0)
        (void)puts("policy full: keeps every row");
    else
        (void)printf("policy %s: keeps %" PRId64 " rows of each KV head\n", name, rows);
    if (*text == '\0' && chat->has_usage && chat->usage.kv_policy != NULL)
        (void)printf(
            "the last answer: %" PRId64 " rows kept, %" PRId64 " dropped, as a mean over heads\n",
            chat->usage.n_rows, chat->usage.n_evicted
        );
    return WEIR_OK;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

bool weir_chat_is_command(const char *line, size_t length)
{
    return length > 0 && line[0] == '/' && (length == 1 || line[1] != '/');
}

static weir_status unknown(const char *name, weir_error *error)
{
    size_t nearest = 0, best = SIZE_MAX;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const size_t distance = weir_edit_distance(name, commands[i].name);
        if (distance < best) best = distance, nearest = i;
    }
    return weir_error_set(
        error, WEIR_EINVAL,
        "unknown command \"/%s\"; the nearest is \"/%s\". /help lists them, // begins a message "
        "with /",
        name, commands[nearest].name
    );
}

bool weir_chat_command(weir_chat *chat, const char *line, size_t length)
{
    char name[32];
    weir_error error = { 0 };
    weir_buffer text = { 0 };
    size_t begin = 1, i = 0;
    while (begin < length && line[begin] != ' ' && line[begin] != '\t') begin++;
    (void)snprintf(name, sizeof name, "%.*s", (int)(begin < 31 ? begin - 1 : 30), line + 1);
    while (begin < length && (line[begin] == ' ' || line[begin] == '\t')) begin++;
    while (length > begin && (line[length - 1] == ' ' || line[length - 1] == '\t')) length--;
    while (i < N_COMMANDS && strcmp(commands[i].name, name) != 0) i++;
    if (i < N_COMMANDS && commands[i].run == NULL) return false;
    weir_status status = i < N_COMMANDS ? WEIR_OK : unknown(name, &error);
    if (status == WEIR_OK && weir_buffer_add(&text, line + begin, length - begin) != WEIR_OK)
        status = weir_error_set(&error, WEIR_ENOMEM, "no memory for this command");
    if (status == WEIR_OK) status = commands[i].run(chat, text.size > 0 ? text.data : "", &error);
    if (status != WEIR_OK) (void)fprintf(stderr, "weir: %s\n", error.text);
    (void)fflush(stdout);
    weir_buffer_free(&text);
    return true;
}
