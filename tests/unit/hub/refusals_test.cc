// Downloads that cannot be: each ends with a message that says why, and leaves what can go on.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "tests/unit/hub/get.h"

namespace hub {
namespace {

const auto is_file = [](const std::string &path) {
    return path.find("/resolve/") != std::string::npos;
};

TEST_F(Get, AWrongSumRemovesTheFile)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(1000) } };
    hub_.sums["m-Q8_0.gguf"] = std::string(64, 'e');
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, std::string(64, 'e'));
    EXPECT_SAYS(error_.text, sum_of(bytes_of(1000)));
    EXPECT_FALSE(is_there("m-Q8_0.gguf"));
    EXPECT_FALSE(is_there("m-Q8_0.gguf.part"));
    put("m-Q8_0.gguf.part", bytes_of(10)); /* of a part, too, after another try from the start */
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_FALSE(is_there("m-Q8_0.gguf.part"));
}

TEST_F(Get, WithoutAccessItSaysWhatToDo)
{
    int status = 401;
    std::string code;
    hub_.hook = [&](const std::string &, const std::string &, Reply *reply) {
        *reply = { status, code.empty() ? "" : "X-Error-Code: " + code + "\r\n", "no", -1, -1 };
    };
    ASSERT_EQ(get("o/n"), WEIR_ENOTFOUND);
    EXPECT_SAYS(error_.text, "HF_TOKEN");
    code = "GatedRepo";
    ASSERT_EQ(get("o/n"), WEIR_EIO);
    EXPECT_SAYS(error_.text, "ask for it at " + hub_.url() + "/o/n, then set HF_TOKEN");
    options_.token = "hf_secret";
    status = 403;
    ASSERT_EQ(get("o/n"), WEIR_EIO);
    EXPECT_SAYS(error_.text, "use a token of that account");
    code = "";
    ASSERT_EQ(get("o/n"), WEIR_EIO);
    EXPECT_SAYS(error_.text, "gives no access");
    EXPECT_EQ(std::string(error_.text).find("hf_secret"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/o")) << "nothing was made";
    EXPECT_EQ(hub_.requests().size(), 4u) << "a refusal is not tried again";
}

TEST_F(Get, WhatIsNotThereIsNamed)
{
    hub_.files = { { "m-Q8_0.gguf", "x" }, { "m-Q2_K.gguf", "x" } };
    ASSERT_EQ(get("o/n:Q3_K"), WEIR_ENOTFOUND);
    EXPECT_SAYS(error_.text, "it has Q2_K, Q8_0");
    std::string code;
    hub_.hook = [&](const std::string &, const std::string &, Reply *reply) {
        *reply = { 404, code, "", -1, -1 };
    };
    ASSERT_EQ(get("o/n"), WEIR_ENOTFOUND);
    EXPECT_SAYS(error_.text, "has no such model or revision");
    code = "X-Error-Code: RevisionNotFound\r\n";
    options_.revision = "v9";
    ASSERT_EQ(get("o/n"), WEIR_ENOTFOUND);
    EXPECT_SAYS(error_.text, "no revision \"v9\"");
}

TEST_F(Get, AHubThatStaysBusyIsGivenUp)
{
    hub_.hook = [](const std::string &, const std::string &, Reply *reply) {
        *reply = { 503, "X-Error-Message: maintenance\r\n", "", -1, -1 };
    };
    ASSERT_EQ(get("o/n"), WEIR_EIO);
    EXPECT_SAYS(error_.text, "status 503: maintenance (5 tries)");
    EXPECT_EQ(hub_.requests().size(), 5u);
}

TEST_F(Get, CtrlCEndsTheWait)
{
    hub_.hook = [this](const std::string &, const std::string &, Reply *reply) {
        *reply = { 503, "Retry-After: 3600\r\n", "", -1, -1 };
        is_cancelled_ = true;
    };
    ASSERT_EQ(get("o/n"), WEIR_ECANCELED);
    EXPECT_SAYS(error_.text, "interrupted");
}

TEST_F(Get, WithoutANetworkItSaysSo)
{
    options_.endpoint = "http://127.0.0.1:1";
    ASSERT_EQ(get("o/n"), WEIR_EIO);
    EXPECT_SAYS(error_.text, "is there a network?");
    options_.endpoint = "http://no.such.invalid";
    ASSERT_EQ(get("o/n"), WEIR_EIO);
    EXPECT_SAYS(error_.text, "no.such.invalid: is there a network?");
    EXPECT_SAYS(error_.text, "(5 tries)");
}

/* Answers a client's first bytes with text, which is no TLS. */
TEST_F(Get, WithoutTlsWhereItIsAskedForItSaysSo)
{
    struct sockaddr_in address = {};
    socklen_t n = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(bind(listener, reinterpret_cast<struct sockaddr *>(&address), n), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<struct sockaddr *>(&address), &n), 0);
    std::thread server([&] {
        char hello[512];
        const int fd = accept(listener, nullptr, nullptr);
        EXPECT_GT(recv(fd, hello, sizeof hello, 0), 0);
        EXPECT_TRUE(FakeServer::send_text(fd, "HTTP/1.1 400 Bad Request\r\n\r\n"));
        close(fd);
    });
    const std::string url = "https://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    options_.endpoint = url.c_str();
    EXPECT_EQ(get("o/n"), WEIR_EIO);
    server.join();
    close(listener);
    EXPECT_SAYS(error_.text, "TLS failed");
    EXPECT_SAYS(error_.text, url.substr(8));
}

TEST_F(Get, BadOptionsAreRefused)
{
    options_.endpoint = "ftp://h";
    EXPECT_EQ(get("o/n"), WEIR_EINVAL);
    options_.endpoint = "http://127.0.0.1:1";
    options_.token = "a\nb";
    EXPECT_EQ(get("o/n"), WEIR_EINVAL);
    EXPECT_EQ(std::string(error_.text).find("a\nb"), std::string::npos);
    options_.token = nullptr;
    options_.revision = "../x";
    EXPECT_EQ(get("o/n"), WEIR_EINVAL);
}

TEST_F(Get, RedirectsEnd)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(100) } };
    std::string to;
    hub_.hook = [&](const std::string &path, const std::string &, Reply *reply) {
        if (is_file(path)) *reply = { 302, to, "", -1, -1 };
    };
    to = "Location: /o/n/resolve/x/m\r\n";
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, "more than 8 redirects");
    to = "Location: file:///etc/passwd\r\n";
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, "is not followed");
    to = "";
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, "a redirect without an address");
}

TEST_F(Get, FilesOutsideOfTheFolderCannotBeChosen)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(100) } };
    hub_.extra_entries = R"(,{"path":"../../../x-Q4_K_M.gguf","size":5},)"
                         R"({"path":"/tmp/x-Q4_K_M.gguf","size":5},)"
                         R"({"path":"a\u0007-Q4_K_M.gguf","size":5})";
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(std::string(result_->path), at("m-Q8_0.gguf"));
    options_.file = "../../../x-Q4_K_M.gguf";
    ASSERT_EQ(get("o/n"), WEIR_ENOTFOUND);
}

TEST_F(Get, ListsThatCannotBeAreRefused)
{
    std::string body, headers;
    hub_.hook = [&](const std::string &path, const std::string &, Reply *reply) {
        if (path.find("/tree/") != std::string::npos) *reply = { 200, headers, body, -1, -1 };
    };
    for (const char *bad : { "{}", "[{", "[1]", "<html>" }) {
        body = bad;
        EXPECT_EQ(get("o/n"), WEIR_EFORMAT) << bad;
    }
    body = "[]";
    headers = "Link: <http://h/?cursor=1>; rel=\"next\"\r\n"; /* without end */
    EXPECT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, "more than 200 pages");
    headers = "";
    body = std::string((16 << 20) + 1, ' ');
    EXPECT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, "which is the limit");
    body = R"([{"path":"a-Q8_0.gguf","size":17000000000000}])";
    EXPECT_EQ(get("o/n"), WEIR_EIO) << "the disk is smaller";
    EXPECT_SAYS(error_.text, "MiB are still to come");
}

TEST_F(Get, LengthsThatContradictAreRefused)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(1000) } };
    Reply wrong;
    hub_.hook = [&](const std::string &path, const std::string &, Reply *reply) {
        if (is_file(path)) *reply = wrong;
    };
    wrong = { 200, "", bytes_of(1001), -1, -1 };
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, "has 1001 bytes of it, the list of files says 1000");
    wrong = { 200, "", bytes_of(999), -1, -1 };
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    wrong = { 206, "Content-Range: bytes 5-999/1000\r\n", bytes_of(995), -1, -1 };
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, "another part");
    wrong = { 206, "", bytes_of(1000), -1, -1 };
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    wrong = { 206, "Content-Range: bytes 0-999/2000\r\n", bytes_of(1000), -1, -1 };
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    wrong = { 206, "Content-Range: bytes 0-1000/*\r\n", bytes_of(1001), -1, -1 };
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, "more comes than its 1000 bytes");
    EXPECT_FALSE(is_there("m-Q8_0.gguf"));
}

TEST_F(Get, AFullDiskKeepsThePart)
{
    const std::string bytes = bytes_of(500000);
    hub_.files = { { "m-Q8_0.gguf", bytes } };
    (void)signal(SIGXFSZ, SIG_IGN); /* as weir_main */
    struct rlimit before, low;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 100000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    const weir_status status = get("o/n");
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_EQ(status, WEIR_EIO);
    EXPECT_SAYS(error_.text, "cannot write after 100000 bytes");
    EXPECT_SAYS(error_.text, "make room");
    EXPECT_EQ(text("m-Q8_0.gguf.part"), bytes.substr(0, 100000));
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
    EXPECT_EQ(text("m-Q8_0.gguf"), bytes);
}

TEST_F(Get, OneProcessAtATime)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(10) } };
    put("x", "");
    const int fd = open((folder_ + "/o/n").c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
    ASSERT_EQ(get("o/n"), WEIR_EIO);
    EXPECT_SAYS(error_.text, "is at work here");
    close(fd);
    ASSERT_EQ(get("o/n"), WEIR_OK) << error_.text;
}

TEST_F(Get, ALinkInPlaceOfAPartIsNotFollowed)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(10) } };
    put("x", "");
    std::filesystem::create_symlink(folder_ + "/elsewhere", at("m-Q8_0.gguf.part"));
    ASSERT_EQ(get("o/n"), WEIR_EIO);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
}

TEST_F(Get, ADamagedManifestIsNotOverwritten)
{
    hub_.files = { { "m-Q8_0.gguf", bytes_of(10) } };
    put(".weir.json", "{}");
    ASSERT_EQ(get("o/n"), WEIR_EFORMAT);
    EXPECT_SAYS(error_.text, ".weir.json");
    EXPECT_EQ(text(".weir.json"), "{}");
}

} // namespace
} // namespace hub
