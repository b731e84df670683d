// weir experts: hits by budget, and what it refuses.
#include <fstream>
#include <sstream>

#include "tests/unit/cli/json.h"
#include "tests/unit/cli/program.h"

namespace {

using program::Json;
using program::Outcome;
using program::run;

const char kModel[] = "tests/golden/families/mixtral/mixtral-f16.gguf";

std::string text()
{
    const std::string path = ::testing::TempDir() + "/text";
    std::ofstream out(path);
    for (int i = 0; i < 60; i++) out << "One two " << i * 7919 % 1000 << " three. ";
    return path;
}

TEST(ExpertsCommand, MoreMemoryHasMoreHits)
{
    const Outcome o =
        run({ "experts", "--model", kModel, "--text", text(), "--tokens", "200", "--json" });
    ASSERT_EQ(o.code, 0) << o.err;
    const Json json(o.out);
    EXPECT_EQ(json.number("tokens"), 200);
    EXPECT_EQ(json.number("experts"), 12);
    EXPECT_EQ(json.number("uses"), 200 * 2 * 2) << "two layers choose two";
    const Outcome table = run({ "experts", "--model", kModel, "--text", text() });
    ASSERT_EQ(table.code, 0) << table.err;
    double before = -1;
    std::string line;
    std::istringstream lines(table.out.substr(table.out.find("experts  GiB")));
    std::getline(lines, line);
    int n = 0;
    for (; std::getline(lines, line); n++) {
        double experts, bytes, hits;
        ASSERT_EQ(sscanf(line.c_str(), "%lf %lf %lf", &experts, &bytes, &hits), 3) << line;
        EXPECT_GE(hits, before) << line;
        before = hits;
    }
    EXPECT_EQ(n, 10);
    EXPECT_GT(before, 90) << "all experts fit";
}

TEST(ExpertsCommand, WhatItCannotDo)
{
    const Outcome none = run({ "experts", "--model", "models/weir-demo", "--text", text() });
    EXPECT_NE(none.code, 0);
    EXPECT_NE(none.err.find("this model has no experts"), std::string::npos) << none.err;
    const Outcome no_text = run({ "experts", "--model", kModel });
    EXPECT_EQ(no_text.code, 2);
}

} // namespace
