/* engine/cli/run_serve.c - weir serve: load, listen, drain on SIGTERM, SIGHUP or Ctrl-C, exit at
 * once on the second signal. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/cli/api_keys.h"
#include "engine/cli/explain.h"
#include "engine/cli/notify.h"
#include "engine/cli/open.h"
#include "engine/cli/process.h"
#include "engine/cli/router.h"
#include "engine/cli/sandbox.h"
#include "engine/serve/server.h"

static weir_reasoning_field reasoning_field(const char *name)
{
    if (strcmp(name, "reasoning") == 0) return WEIR_REASONING;
    return strcmp(name, "both") == 0 ? WEIR_REASONING_BOTH : WEIR_REASONING_CONTENT;
}

static weir_server_options server_options(
    const weir_config *config, const weir_engine *engine, const weir_keys *k,
    const char *fingerprint
)
{
    return (weir_server_options
    ){ .host = config->server.host,
       .port = (int)config->server.port,
       .insecure = config->server.insecure,
       .keys = k->list,
       .n_keys = k->n,
       .body_limit = config->server.body_limit,
       .header_limit = config->server.header_limit,
       .allowed_hosts = config->server.allowed_hosts,
       .allowed_origins = config->server.allowed_origins,
       .max_connections = config->server.max_connections,
       .connections_per_address = config->server.connections_per_address,
       .n_workers = (int)config->server.workers,
       .header_timeout_ms = config->server.header_timeout_ms,
       .read_timeout_ms = config->server.read_timeout_ms,
       .write_timeout_ms = config->server.write_timeout_ms,
       .ping_ms = config->server.ping_ms,
       .model_name = weir_engine_plan_of(engine)->facts.model,
       .aliases = config->server.aliases,
       .fingerprint = fingerprint,
       .version = WEIR_VERSION,
       .metrics_vllm = strcmp(config->server.metrics_compat, "vllm") == 0,
       .truncate_middle = strcmp(config->server.on_overflow, "truncate_middle") == 0,
       .reasoning_field = reasoning_field(config->server.reasoning_field),
       .sampling = weir_sampling_of(config),
       .has_seed = config->sampling.seed >= 0,
       .max_tokens = config->sampling.max_tokens,
       .log_fd = STDOUT_FILENO,
       .ledger = weir_engine_ledger(engine),
       .service = weir_engine_service(engine),
       .sessions = weir_engine_sessions(engine),
       .states = weir_engine_states(engine),
       .state_sessions = weir_engine_state_sessions(engine),
       .tokenizer = weir_engine_tokenizer(engine),
       .chat = weir_engine_chat(engine),
       .chat_problem = weir_engine_chat_problem(engine) };
}

static void announce(const weir_config *config, const weir_engine *engine, int port)
{
    const weir_plan *const plan = weir_engine_plan_of(engine);
    const double mib = 1024.0 * 1024.0;
    weir_log(
        WEIR_LOG_INFO,
        "%s (%s): weights %.1f MiB, KV %.1f MiB for %lld tokens in %s, window %d, %d sequences",
        plan->facts.model, plan->facts.arch, (double)plan->weights / mib, (double)plan->kv / mib,
        (long long)plan->kv_rows, plan->facts.kv_format, (int)plan->facts.window,
        (int)plan->facts.n_slots
    );
    if (plan->has_device)
        weir_log(
            WEIR_LOG_INFO, "computing on %s: %s, %.1f MiB of its %.1f MiB (memory.device)",
            plan->device, plan->device_title, (double)weir_plan_device_total(plan) / mib,
            (double)plan->device_cap / mib
        );
    else if (strcmp(config->kernels.device, "auto") == 0)
        weir_log(WEIR_LOG_INFO, "computing on the CPU: %s", plan->device_why);
    char url[WEIR_URL];
    weir_url(url, config->server.host, port);
    weir_log(WEIR_LOG_INFO, "listening on %s (OpenAI API under /v1, chat page at /)", url);
}

/* Signals write to a pipe, so that any thread may receive them. Until the server listens, they have
 * their default action: the process ends. */
static int signal_pipe[2] = { -1, -1 };

static void on_signal(int number)
{
    static volatile sig_atomic_t seen = 0;
    const unsigned char byte = (unsigned char)number;
    if (seen) _exit(128 + number); /* the second signal: exit even if threads hang */
    seen = 1;
    const ssize_t written = write(signal_pipe[1], &byte, 1);
    (void)written;
}

/* Returns false with errno set. A program started by nohup does not end with its terminal. */
static bool catch_hangup(const struct sigaction *action)
{
    struct sigaction now;
    if (sigaction(SIGHUP, NULL, &now) != 0) return false;
    return now.sa_handler == SIG_IGN || sigaction(SIGHUP, action, NULL) == 0;
}

static weir_status catch_signals(weir_error *error)
{
    const struct sigaction action = { .sa_handler = on_signal };
    bool good = pipe2(signal_pipe, O_CLOEXEC) == 0;
    good = good && sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0;
    good = good && catch_hangup(&action) && signal(SIGPIPE, SIG_IGN) != SIG_ERR;
    if (good) return WEIR_OK;
    return weir_error_set(error, WEIR_EIO, "cannot catch signals: %s", strerror(errno));
}

static int wait_for_signal(void)
{
    unsigned char number = SIGTERM;
    while (read(signal_pipe[0], &number, 1) < 0 && errno == EINTR) continue;
    return number;
}

/* Folders in which files are opened while the server runs: sessions and states. The model and the
 * disk tier are already open. */
static weir_status enter_sandbox(
    const weir_engine *engine, const weir_config *config, weir_error *error
)
{
    const bool strict = strcmp(config->server.sandbox, "strict") == 0;
    const char *folders[2];
    size_t n = 0;
    weir_sandbox_state state;
    if (strcmp(config->server.sandbox, "off") == 0) return WEIR_OK;
    /* Its driver opens devices and libraries at any time. */
    if (weir_engine_plan_of(engine)->has_device) {
        if (strict)
            return weir_error_set(
                error, WEIR_EUNSUPPORTED,
                "server.sandbox = \"strict\" is not possible with a GPU; set kernels.device to "
                "\"cpu\", or "
                "server.sandbox to \"off\""
            );
        weir_log(WEIR_LOG_INFO, "no sandbox: not possible with a GPU");
        return WEIR_OK;
    }
    if (weir_engine_sessions(engine) != NULL && config->sessions.dir[0] != '\0')
        folders[n++] = config->sessions.dir;
    if (weir_engine_states(engine) != NULL) folders[n++] = config->states.dir;
    const weir_sandbox_options options = { .folders = folders, .n_folders = n, .strict = strict };
    WEIR_TRY(weir_sandbox_enter(&state, &options, error));
    if (state.landlock == 0)
        weir_log(WEIR_LOG_INFO, "no sandbox: this kernel has no Landlock");
    else
        weir_log(
            WEIR_LOG_INFO, "sandbox: Landlock ABI %d, %zu folders, TCP %s, system calls %s",
            state.landlock, n, state.tcp ? "closed but for the port" : "open",
            state.filter ? "filtered" : "not filtered"
        );
    return WEIR_OK;
}

/* A server whose manager cannot be told serves all the same. */
static int open_manager(void)
{
    weir_error error = { 0 };
    int fd;
    if (weir_notify_open(&fd, getenv("NOTIFY_SOCKET"), &error) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "%s", error.text);
    return fd;
}

static void tell_manager(int fd, const char *state)
{
    weir_error error = { 0 };
    if (weir_notify_send(fd, state, &error) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "%s", error.text);
}

static int serve(weir_server *server, weir_engine *engine, const weir_config *config)
{
    weir_error error = { 0 };
    const int32_t n_restored = weir_engine_restore_sessions(engine);
    weir_status status = catch_signals(&error);
    if (n_restored > 0)
        weir_log(
            WEIR_LOG_INFO, "%d conversations were restored from %s", (int)n_restored,
            config->sessions.dir
        );
    const int manager = open_manager(); /* the sandbox forbids connections */
    if (status == WEIR_OK) status = enter_sandbox(engine, config, &error);
    if (status == WEIR_OK) status = weir_server_start(server, &error);
    if (status != WEIR_OK) {
        weir_notify_close(manager);
        return weir_fail(status, &error);
    }
    announce(config, engine, weir_server_port(server));
    tell_manager(manager, "READY=1\nSTATUS=listening");
    const int number = wait_for_signal();
    tell_manager(manager, "STOPPING=1\nSTATUS=running answers finish, then sessions are saved");
    weir_log(
        WEIR_LOG_INFO, "%s: running answers have %lld ms to finish; a second signal ends at once",
        strsignal(number), (long long)config->server.drain_timeout_ms
    );
    const int64_t deadline = weir_clock_ns() + config->server.drain_timeout_ms * 1000000;
    weir_server_drain(server, deadline);
    weir_service_drain(weir_engine_service(engine), deadline);
    const int32_t n_saved = weir_engine_save_sessions(engine);
    if (n_saved > 0)
        weir_log(
            WEIR_LOG_INFO, "%d conversations were saved in %s", (int)n_saved, config->sessions.dir
        );
    weir_notify_close(manager);
    return WEIR_EXIT_OK;
}

static int open_and_serve(const weir_config *config, const weir_keys *k)
{
    weir_engine *engine = NULL;
    weir_server *server = NULL;
    weir_error error = { 0 };
    char fingerprint[640];
    int code = weir_open(&engine, config, WEIR_USE_SERVER);
    if (code != WEIR_EXIT_OK) return code;
    (void)snprintf(
        fingerprint, sizeof fingerprint, "weir-%s-%s-%s", WEIR_VERSION,
        weir_engine_plan_of(engine)->facts.model, config->kv.policy.name
    );
    weir_status status = WEIR_OK;
    if (weir_engine_tokenizer(engine) == NULL)
        status = weir_error_set(
            &error, WEIR_EUNSUPPORTED, "%s: no tokenizer, so it cannot be served",
            config->model.path
        );
    const weir_server_options options = server_options(config, engine, k, fingerprint);
    if (status == WEIR_OK) status = weir_server_open(&server, &options, &error);
    code = status == WEIR_OK ? serve(server, engine, config) : weir_fail(status, &error);
    weir_server_close(server);
    weir_engine_close(engine);
    return code;
}

/* ---- several models -------------------------------------------------------------------------- */

static int router_manager = -1;

static void announce_router(const weir_config *config, int port)
{
    char url[WEIR_URL];
    weir_url(url, config->server.host, port);
    weir_log(
        WEIR_LOG_INFO, "listening on %s (OpenAI API under /v1, %zu models, loaded on demand)", url,
        config->n_models
    );
    router_manager = open_manager();
    tell_manager(router_manager, "READY=1\nSTATUS=listening");
}

static int serve_models(const weir_arguments *arguments, const weir_keys *k)
{
    weir_error error = { 0 };
    const weir_status status = catch_signals(&error);
    const int code = status == WEIR_OK
                         ? weir_serve_models(arguments, k, signal_pipe[0], announce_router)
                         : weir_fail(status, &error);
    tell_manager(router_manager, "STOPPING=1\nSTATUS=ended");
    weir_notify_close(router_manager);
    return code;
}

/* Returns memory that libraries free to the system: few arenas, large blocks always mapped. */
static void tighten_malloc(void)
{
    enum { ARENAS = 2, MAPPED_BYTES = 128 << 10 };
    (void)mallopt(M_ARENA_MAX, ARENAS);
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, MAPPED_BYTES);
}

int weir_run_serve(const weir_arguments *arguments)
{
    static const int64_t last_lines_ms = 1000;
    static weir_keys k;
    weir_error error = { 0 };
    const bool is_router = arguments->config.n_models > 0;
    if (is_router &&
        (weir_argument_given(arguments, "plan") || weir_argument_given(arguments, "explain")))
        return weir_fail(
            weir_error_set(
                &error, WEIR_ECONFIG,
                "--plan and --explain are of one model: give one of [[models]]"
            ),
            &error
        );
    if (weir_argument_given(arguments, "plan")) return weir_print_plan(&arguments->config, false);
    if (weir_argument_given(arguments, "explain")) return weir_run_explain(&arguments->config);
    tighten_malloc();
    weir_line_writer *const log =
        weir_line_writer_open(STDERR_FILENO, "weir: warning: ", " log lines were dropped");
    /* If the writer cannot start, lines are written by the threads that log them. */
    weir_log_set_writer(log);
    const weir_status status = weir_keys_read(&k, &arguments->config, &error);
    const int code = status != WEIR_OK ? weir_fail(status, &error)
                     : is_router       ? serve_models(arguments, &k)
                                       : open_and_serve(&arguments->config, &k);
    weir_keys_free(&k);
    weir_log_set_writer(NULL);
    weir_line_writer_close(log, last_lines_ms);
    return code;
}
