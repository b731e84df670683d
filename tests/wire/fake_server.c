/* tests/wire/fake_server.c - the real HTTP server over the fake service: what the wire suite runs against without a model.
 *   fake_server --tokenizer tokenizer.json [--set server.KEY=VALUE]... [--slots N] [--window N] [--step-us N] [--metrics-compat vllm] */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/serve/server.h"
#include "tests/wire/fake_service.h"

typedef struct arguments {
    const char         *tokenizer;
    const char         *key;
    weir_server_options server;
    weir_fake_options   fake;
} arguments;

static bool set_key(arguments *a, const char *assignment)
{
    weir_server_options *const o = &a->server;
    const char *const          value = strchr(assignment, '=');
    if (value == NULL) return false;
    const size_t    n = (size_t)(value - assignment);
    const long long number = atoll(value + 1);
    const struct { const char *key; int64_t *out; } numbers[] = {
        { "server.body_limit", &o->body_limit }, { "server.max_connections", &o->max_connections },
        { "server.read_timeout_ms", &o->read_timeout_ms }, { "server.write_timeout_ms", &o->write_timeout_ms }, { "server.ping_ms", &o->ping_ms },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strlen(numbers[i].key) == n && strncmp(assignment, numbers[i].key, n) == 0) return *numbers[i].out = number, true;
    if (strncmp(assignment, "server.port=", n + 1) == 0) return o->port = (int)number, true;
    if (strncmp(assignment, "server.host=", n + 1) == 0) return o->host = value + 1, true;
    if (strncmp(assignment, "server.api_key=", n + 1) == 0) return a->key = value + 1, true;
    return false;
}

static bool read_arguments(arguments *a, int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *const name = argv[i], *const value = argv[i + 1];
        if (strcmp(name, "--tokenizer") == 0) a->tokenizer = value;
        else if (strcmp(name, "--slots") == 0) a->fake.n_slots = atoi(value);
        else if (strcmp(name, "--window") == 0) a->fake.window = atoi(value);
        else if (strcmp(name, "--step-us") == 0) a->fake.step_us = atoll(value);
        else if (strcmp(name, "--fail-after") == 0) a->fake.fail_after = atoll(value);
        else if (strcmp(name, "--metrics-compat") == 0) a->server.metrics_vllm = strcmp(value, "vllm") == 0;
        else if (strcmp(name, "--set") != 0 || !set_key(a, value)) return false;
    }
    if (a->key != NULL && a->key[0] != 0) a->server.keys = &a->key, a->server.n_keys = 1;
    return argc % 2 == 1;
}

static weir_status serve(arguments *a, const sigset_t *signals, weir_error *error)
{
    weir_tokenizer     *tokenizer = NULL;
    weir_service       *service = NULL;
    weir_chat_template *chat = NULL;
    weir_server        *server = NULL;
    weir_status         status = weir_tokenizer_open_json(&tokenizer, a->tokenizer, error);
    if (status != WEIR_OK) goto done;
    status = weir_fake_service_open(&service, tokenizer, &a->fake);
    if (status != WEIR_OK) goto done;
    const char *const text = weir_tokenizer_chat_template(tokenizer);
    status = weir_chat_template_open(&chat, text != NULL ? text : "", text != NULL ? strlen(text) : 0, error);
    if (status != WEIR_OK) goto done;
    a->server.service = service;
    a->server.tokenizer = tokenizer;
    a->server.chat = chat;
    status = weir_server_open(&server, &a->server, error);
    if (status == WEIR_OK) status = weir_server_start(server, error);
    if (status != WEIR_OK) goto done;
    (void)printf("listening on port %d\n", weir_server_port(server));
    (void)fflush(stdout);
    int signal = 0;
    (void)sigwait(signals, &signal);
    weir_server_drain(server, weir_clock_ns() + 5000000000);
done:
    weir_server_close(server);
    weir_fake_service_close(service);
    weir_chat_template_close(chat);
    weir_tokenizer_close(tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    arguments a = { .tokenizer = "models/weir-demo/tokenizer.json", .fake = { .n_slots = 4, .window = 4096, .step_us = 2000 },
                    .server = { .log_fd = 2, .port = 8080, .fingerprint = "fake-1", .version = "fake",
                                .sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 } } };
    if (!read_arguments(&a, argc, argv)) {
        (void)fprintf(stderr, "fake_server: unknown argument\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    weir_error        error = { 0 };
    const weir_status status = serve(&a, &signals, &error);
    if (status != WEIR_OK) (void)fprintf(stderr, "fake_server: %s\n", error.text);
    return status == WEIR_OK ? 0 : 1;
}
