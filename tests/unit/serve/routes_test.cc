// Every route that docs/api.md names asks for a key, but for health and the page.
#include <map>
#include <regex>
#include <set>

#include "tests/unit/serve/server_fixture.h"

namespace {

using Route = std::pair<std::string, std::string>; /* method, path */

const std::set<Route> open_routes = {
    { "GET", "/health" }, { "GET", "/v1/health" }, { "GET", "/openapi.json" }, { "GET", "/" }
};

bool needs_no_key(const Route &route)
{
    return open_routes.count(route) > 0 || route.second.rfind("/page/", 0) == 0;
}

/* Those that the documentation names, an id in the place of {id}. */
std::set<Route> documented()
{
    weir_buffer text = {};
    weir_error error = {};
    EXPECT_EQ(WEIR_OK, weir_file_read(&text, "docs/api.md", 1 << 20, &error)) << error.text;
    const std::string api(text.data, text.size);
    weir_buffer_free(&text);
    std::set<Route> found;
    const std::regex named("`(GET|POST|DELETE) (/[^`? ]*)");
    for (auto at = std::sregex_iterator(api.begin(), api.end(), named);
         at != std::sregex_iterator(); ++at)
        found.insert({ (*at)[1], std::regex_replace((*at)[2].str(), std::regex("\\{id\\}"), "7") });
    return found;
}

TEST_F(Server, EveryRouteButHealthAndThePageNeedsAKey)
{
    weir_server_options options = default_options();
    const char *const key = "one";
    options.keys = &key;
    options.n_keys = 1;
    options.sessions = sessions_ = weir_fake_sessions_open();
    open({ 2, 4096, 100, 0 }, options);
    const std::set<Route> routes = documented();
    for (const char *const path : { "/v1/memory",
                                    "/v1/memory/plan",
                                    "/v1/memory/map",
                                    "/v1/sessions",
                                    "/v1/sessions/restore",
                                    "/v1/sessions/7",
                                    "/v1/states",
                                    "/v1/states/query",
                                    "/v1/states/merge",
                                    "/v1/states/7",
                                    "/v1/models",
                                    "/v1/models/7",
                                    "/v1/chat/completions",
                                    "/v1/completions",
                                    "/v1/responses",
                                    "/v1/responses/input_tokens",
                                    "/v1/messages",
                                    "/v1/messages/count_tokens",
                                    "/tokenize",
                                    "/detokenize",
                                    "/metrics",
                                    "/props",
                                    "/completion",
                                    "/infill",
                                    "/apply-template",
                                    "/slots",
                                    "/slots/7",
                                    "/v1/embeddings",
                                    "/v1/rerank",
                                    "/rerank",
                                    "/api/chat",
                                    "/api/generate",
                                    "/api/embed",
                                    "/api/embeddings",
                                    "/api/tags",
                                    "/api/ps",
                                    "/api/show",
                                    "/api/version" }) {
        bool is_there = false;
        for (const Route &route : routes) is_there = is_there || route.second == path;
        EXPECT_TRUE(is_there) << "docs/api.md does not name " << path;
    }
    for (const auto &[method, path] : routes) {
        const std::string body = method == "POST" ? "{}" : "",
                          length = "Content-Length: " + std::to_string(body.size()) + "\r\n";
        const bool is_open = needs_no_key({ method, path });
        for (const std::string &given :
             { std::string(), std::string("Authorization: Bearer two\r\n") }) {
            const std::string reply = request(method, path, length + given, body);
            EXPECT_EQ(reply.find(is_open ? "HTTP/1.1 200" : "HTTP/1.1 401"), 0u)
                << method << " " << path << ": " << reply;
        }
        const std::string reply =
            request(method, path, length + "Authorization: Bearer one\r\n", body);
        EXPECT_EQ(reply.find("HTTP/1.1 "), 0u) << method << " " << path;
        EXPECT_NE(reply.find("HTTP/1.1 401"), 0u) << method << " " << path;
    }
}

} // namespace
