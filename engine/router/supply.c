/* engine/router/supply.c - brings models and requests together. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/router/internal.h"

enum { LATE_WAITS = 2 }; /* of router.wait, that a load has while others wait for its memory */
static const double mib = 1024.0 * 1024.0;

int weir_supply_find(const weir_router *router, const char *name, size_t n)
{
    for (size_t i = 0; i < router->loads.n; i++)
        if (strlen(router->loads.of[i].name) == n && memcmp(router->loads.of[i].name, name, n) == 0)
            return (int)i;
    return -1;
}

static weir_load *load_of(const weir_route *route)
{
    return &route->router->loads.of[route->model];
}

/* ---- requests -------------------------------------------------------------------------------- */

static void find_first(weir_router *router, weir_load *load, int model)
{
    load->waits_since_ns = 0;
    for (const weir_route *r = router->routes; r != NULL; r = r->next)
        if (r->phase == WEIR_ROUTE_WAIT && r->is_counted && r->model == model &&
            (load->waits_since_ns == 0 || r->since_ns < load->waits_since_ns))
            load->waits_since_ns = r->since_ns;
}

void weir_supply_leave(weir_route *route)
{
    if (!route->is_counted) return;
    weir_load *const load = load_of(route);
    route->is_counted = false;
    if (route->phase == WEIR_ROUTE_WAIT) {
        load->n_waiting--;
        route->router->n_waiting--;
        find_first(route->router, load, route->model);
    } else {
        load->n_running--; /* what its server wrote may still be on its way */
        load->used_ns = weir_clock_ns();
    }
}

static void refuse_failed(weir_route *route, const weir_load *load, int64_t now_ns)
{
    const int64_t left_ns = load->retry_ns - now_ns;
    weir_answer_refuse(
        route, 503, "model_failed", left_ns > 0 ? (int)(left_ns / 1000000000) + 1 : 1,
        "the server of the model %s ended with exit code %d; its messages say why; try again",
        load->name, load->exit_code
    );
}

void weir_supply_ask(weir_route *route)
{
    weir_router *const router = route->router;
    weir_load *const load = load_of(route);
    const int64_t now_ns = weir_clock_ns();
    if (router->drains) {
        weir_answer_refuse(route, 503, NULL, 0, "this server is shutting down");
    } else if (load->state == WEIR_LOAD_NONE && load->failed && now_ns < load->retry_ns) {
        refuse_failed(route, load, now_ns);
    } else if (load->state == WEIR_LOAD_DONE && !load->leaves && !load->stop) {
        weir_route_pass(route);
    } else if (router->n_waiting >= router->options.queue) {
        weir_answer_refuse(
            route, 503, NULL, 1, "%lld requests wait for models (router.queue); try again",
            (long long)router->n_waiting
        );
    } else {
        route->phase = WEIR_ROUTE_WAIT;
        route->since_ns = now_ns;
        route->is_counted = true;
        router->n_waiting++;
        if (load->n_waiting++ == 0) load->waits_since_ns = now_ns;
        weir_loads_plan(&router->loads); /* a request after this one must not overtake it */
    }
}

/* All that wait for a model go on, or are told that it failed. */
static void let_go(weir_router *router, size_t i)
{
    weir_load *const load = &router->loads.of[i];
    for (weir_route *r = router->routes; r != NULL; r = r->next) {
        if (r->phase != WEIR_ROUTE_WAIT || r->model != (int)i) continue;
        weir_supply_leave(r);
        if (load->state == WEIR_LOAD_DONE)
            weir_route_pass(r);
        else
            refuse_failed(r, load, weir_clock_ns());
    }
}

/* ---- servers --------------------------------------------------------------------------------- */

static void fail(weir_router *router, size_t i, int exit_code, int64_t now_ns)
{
    weir_load_fail(&router->loads.of[i], exit_code, now_ns, router->options.backoff_ms * 1000000);
    router->loads.of[i].state = WEIR_LOAD_NONE;
    let_go(router, i);
}

void weir_supply_ended(weir_router *router, size_t i, int64_t now_ns)
{
    weir_load *const load = &router->loads.of[i];
    const bool asked = load->state == WEIR_LOAD_ENDING;
    const int exit_code = weir_child_end(router, i);
    for (weir_route *r = router->routes; r != NULL; r = r->next)
        if (r->phase == WEIR_ROUTE_PASS && r->model == (int)i) weir_supply_leave(r);
    load->state = WEIR_LOAD_NONE;
    if (asked) {
        load->n_unloads++;
        weir_load_outlive(load);
        weir_log(
            exit_code == 0 ? WEIR_LOG_INFO : WEIR_LOG_WARNING,
            "model %s: unloaded, with exit code %d", load->name, exit_code
        );
        return;
    }
    weir_log(
        WEIR_LOG_WARNING, "model %s: its server ended with exit code %d", load->name, exit_code
    );
    fail(router, i, exit_code, now_ns);
}

static void start(weir_router *router, size_t i, int64_t now_ns)
{
    weir_error error = { 0 };
    weir_load *const load = &router->loads.of[i];
    weir_log(
        WEIR_LOG_INFO, "model %s: loading, with %.1f MiB", load->name, (double)load->bytes / mib
    );
    load->start = load->is_late = false;
    if (weir_child_start(router, i, &error) == WEIR_OK) {
        weir_load_begin(load, now_ns);
        return;
    }
    weir_log(WEIR_LOG_ERROR, "model %s: %s", load->name, error.text);
    fail(router, i, 126, now_ns);
}

/* A server listens when its model is loaded; what it does then (restoring sessions, entering its
 * sandbox) requests spend in its queue of connections. */
static void look_for(weir_router *router, size_t i, int64_t now_ns)
{
    weir_load *const load = &router->loads.of[i];
    const int fd = weir_child_connect(router, i);
    load->is_late = now_ns - load->begun_ns > LATE_WAITS * router->options.wait_ms * 1000000;
    if (fd < 0 && errno != EAGAIN) return;
    load->is_late = false;
    if (fd >= 0) (void)close(fd);
    weir_log(WEIR_LOG_INFO, "model %s: loaded", load->name);
    load->state = WEIR_LOAD_DONE;
    load->failed = false;
    load->used_ns = now_ns;
    load->n_loads++;
    let_go(router, i);
}

/* One that stopped leaving goes on at once. */
static void let_go_on(weir_router *router)
{
    for (size_t i = 0; i < router->loads.n; i++) {
        const weir_load *const load = &router->loads.of[i];
        if (load->state == WEIR_LOAD_DONE && !load->leaves && !load->stop && load->n_waiting > 0)
            let_go(router, i);
    }
}

/* A late load is a failure, so that those that wait for it are not first again. */
static void give_up(weir_router *router, size_t i, int64_t now_ns)
{
    weir_load *const load = &router->loads.of[i];
    weir_log(
        WEIR_LOG_WARNING, "model %s: not loaded after %.0f s, and another waits for its memory",
        load->name, (double)(now_ns - load->begun_ns) / 1e9
    );
    weir_load_fail(load, 128 + SIGTERM, now_ns, router->options.backoff_ms * 1000000);
    let_go(router, i);
}

void weir_supply_run(weir_router *router, int64_t now_ns)
{
    weir_loads *const loads = &router->loads;
    for (size_t i = 0; i < loads->n; i++)
        if (loads->of[i].state == WEIR_LOAD_BEGUN) look_for(router, i, now_ns);
    weir_loads_plan(loads);
    for (size_t i = 0; i < loads->n; i++) {
        weir_load *const load = &loads->of[i];
        if (load->start) start(router, i, now_ns);
        if (load->stop) {
            const bool gives_up = load->state == WEIR_LOAD_BEGUN && load->n_waiting > 0;
            load->state = WEIR_LOAD_ENDING;
            weir_child_stop(router, i, now_ns);
            if (gives_up) give_up(router, i, now_ns);
        }
        weir_child_tick(router, i, now_ns);
    }
    let_go_on(router);
}
