// Hosts, origins and keys.
#include "engine/serve/access.h"

#include <gtest/gtest.h>

#include <cstring>

namespace {

TEST(Access, ALoopbackServerHasLoopbackNamesAndListedOnes)
{
    weir_access access = {};
    access.is_loopback = true;
    access.hosts = "api.example.com , other";
    snprintf(access.own_host, sizeof access.own_host, "box");
    for (const char *const host :
         { "localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "127.9.9.9", "[::1]",
           "[::1]:80", "localhost.", "api.example.com", "API.example.com:443", "other" })
        EXPECT_TRUE(weir_access_host(&access, host)) << host;
    for (const char *const host :
         { "", ":80", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "0x7f.1",
           "10.0.0.1", "[::2]", "[::1", "::1", "[::1]x", "127.1", "localhost:", "localhost:x",
           "localhost:123456", "box", "example.com", "api", "," })
        EXPECT_FALSE(weir_access_host(&access, host)) << host;
}

TEST(Access, AnOpenServerHasAnyAddressAndItsName)
{
    weir_access access = {};
    snprintf(access.own_host, sizeof access.own_host, "box");
    for (const char *const host : { "10.0.0.1:8080", "[fe80::1]", "box", "Box:8080", "localhost" })
        EXPECT_TRUE(weir_access_host(&access, host)) << host;
    for (const char *const host : { "evil.example", "box.evil.example", "[10.0.0.1]", "10.0.0" })
        EXPECT_FALSE(weir_access_host(&access, host)) << host;
    access.own_host[0] = 0;
    EXPECT_FALSE(weir_access_host(&access, "box"));
}

TEST(Access, AnOriginIsTheHostItselfOrListed)
{
    EXPECT_TRUE(weir_origin_is_host("http://localhost:8080", "localhost:8080"));
    EXPECT_TRUE(weir_origin_is_host("https://LOCALHOST:8080", "localhost:8080"));
    EXPECT_TRUE(weir_origin_is_host("http://localhost", "localhost:80"));
    EXPECT_TRUE(weir_origin_is_host("https://a:443", "a"));
    for (const char *const origin :
         { "null", "", "file://", "localhost:8080", "http://localhost:80800",
           "http://localhost:808", "http://localhost", "http://localhost:8080.evil.example",
           "ftp://localhost:8080", "http://evil.example", "http://" })
        EXPECT_FALSE(weir_origin_is_host(origin, "localhost:8080")) << origin;
    weir_access access = {};
    EXPECT_FALSE(weir_access_origin(&access, "http://a"));
    access.origins = "http://a:3000, https://b";
    EXPECT_TRUE(weir_access_origin(&access, "http://a:3000"));
    EXPECT_TRUE(weir_access_origin(&access, "https://B"));
    EXPECT_FALSE(weir_access_origin(&access, "http://a"));
    EXPECT_FALSE(weir_access_origin(&access, "http://a:3000, https://b"));
    access.origins = "*";
    EXPECT_TRUE(weir_access_origin(&access, "null"));
}

TEST(Access, ListsAreChecked)
{
    weir_access access = {};
    weir_error error = {};
    const auto check = [&](const char *hosts, const char *origins) {
        access.hosts = hosts;
        access.origins = origins;
        return weir_access_check_lists(&access, &error);
    };
    EXPECT_EQ(WEIR_OK, check("", ""));
    EXPECT_EQ(WEIR_OK, check("a, b.c", "http://localhost:3000,https://x.y"));
    EXPECT_EQ(WEIR_ECONFIG, check("a:80", nullptr));
    EXPECT_NE(nullptr, strstr(error.text, "allowed_hosts: 'a:80'")) << error.text;
    EXPECT_EQ(WEIR_ECONFIG, check("http://a", nullptr));
    for (const char *const bad : { "a", "http://", "http://a/", "ftp://a", "http://a b", "null" })
        EXPECT_EQ(WEIR_ECONFIG, check(nullptr, bad)) << bad;
    EXPECT_EQ(WEIR_ECONFIG, check(nullptr, "*")) << "without a key";
    ASSERT_EQ(WEIR_OK, weir_access_add(&access, "k", 1, &error));
    EXPECT_EQ(WEIR_OK, check(nullptr, "*"));
}

TEST(Access, AKeyMayHaveAPriority)
{
    weir_access access = {};
    weir_error error = {};
    const auto add = [&](const char *line) {
        return weir_access_add(&access, line, strlen(line), &error);
    };
    ASSERT_EQ(WEIR_OK, add("one priority=-5"));
    ASSERT_EQ(WEIR_OK, add("two"));
    ASSERT_EQ(WEIR_OK, add("three   priority=1000"));
    EXPECT_EQ(-5, access.priority[weir_access_check(&access, "Bearer one", nullptr)]);
    EXPECT_EQ(0, access.priority[weir_access_check(&access, "Bearer two", nullptr)]);
    EXPECT_EQ(1000, access.priority[weir_access_check(&access, "Bearer three", nullptr)]);
    for (const char *const bad : { "a b", "a priority=", "a priority=1x", "a priority=1001",
                                   "a priority=-1001", "a priority=1 b", "a priority=99999999999" })
        EXPECT_EQ(WEIR_EINVAL, add(bad)) << bad;
    EXPECT_EQ(3u, access.n_keys);
}

TEST(Access, AKeyIsABearerOrAnApiKey)
{
    weir_access access = {};
    weir_error error = {};
    EXPECT_EQ(WEIR_EINVAL, weir_access_add(&access, "", 0, &error));
    EXPECT_EQ(WEIR_EINVAL, weir_access_add(&access, "a b", 3, &error));
    ASSERT_EQ(WEIR_OK, weir_access_add(&access, "one", 3, &error));
    ASSERT_EQ(WEIR_OK, weir_access_add(&access, "two", 3, &error));
    EXPECT_EQ(1, weir_access_check(&access, "Bearer two", nullptr));
    EXPECT_EQ(0, weir_access_check(&access, nullptr, "one"));
    EXPECT_EQ(0, weir_access_check(&access, "bearer one", "wrong")) << "the bearer counts";
    EXPECT_EQ(-1, weir_access_check(&access, "Bearer wrong", "one"));
    for (const char *const bad : { "Bearer on", "Bearer onex", "Bearer One", "Bearer  one",
                                   "Bearer one ", "one", "Bearer", "Bearer ", "Basic one", "" })
        EXPECT_EQ(-1, weir_access_check(&access, bad, nullptr)) << bad;
    EXPECT_EQ(-1, weir_access_check(&access, nullptr, ""));
    EXPECT_EQ(-1, weir_access_check(&access, nullptr, nullptr));
}

} // namespace
