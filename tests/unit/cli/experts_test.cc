// weir experts: hits by budget, and what it refuses; its trace in weir plan.
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

/* A trace of the text, made with this memory.experts ("": all in memory), and what was printed. */
Outcome trace(const std::string &path, const std::vector<std::string> &settings = {})
{
    std::vector<std::string> words = { "experts", "trace", "--model",  kModel, "--text", text(),
                                       "--out",   path,    "--tokens", "200",  "--json" };
    for (const std::string &setting : settings) {
        words.emplace_back("--set");
        words.push_back(setting);
    }
    return run(words);
}

// What the trace says of a size is what a cache of that size had, for several sizes.
TEST(ExpertsCommand, TraceAgreesWithTheCache)
{
    const std::string path = ::testing::TempDir() + "/trace";
    double last = -1;
    for (const char *size : { "memory.experts=36KiB", "memory.experts=56KiB",
                              "memory.experts=76KiB", "memory.experts=96KiB" }) {
        SCOPED_TRACE(size);
        const Outcome traced =
            trace(path, { size, "memory.expert_prefetch=false", "memory.expert_pins=0" });
        ASSERT_EQ(traced.code, 0) << traced.err;
        const Json made(traced.out);
        const Outcome planned =
            run({ "plan", "--model", kModel, "--experts-trace", path, "--set", size, "--json" });
        ASSERT_EQ(planned.code, 0) << planned.err;
        const Json plan(planned.out);
        json_t *const cache = made.at("cache"), *const own = json_object_get(
                                                    plan.at("experts_trace"), "in_memory"
                                                );
        ASSERT_NE(cache, nullptr) << traced.out;
        ASSERT_NE(own, nullptr) << planned.out;
        const double hits = json_number_value(json_object_get(own, "hits"));
        EXPECT_EQ(
            json_number_value(json_object_get(own, "experts")),
            json_number_value(json_object_get(cache, "experts"))
        );
        EXPECT_EQ(hits, json_number_value(json_object_get(cache, "hits")));
        EXPECT_GE(hits, last);
        last = hits;
    }
    EXPECT_GT(last, 0.2);
    EXPECT_LT(last, 1.0);
}

TEST(ExpertsCommand, PlanShowsATrace)
{
    const std::string path = ::testing::TempDir() + "/trace3";
    ASSERT_EQ(trace(path).code, 0);
    const Outcome plan = run({ "plan", "--model", kModel, "--experts-trace", path, "--set",
                               "memory.experts=40KiB" });
    ASSERT_EQ(plan.code, 0) << plan.err;
    EXPECT_SAYS(plan.out, "experts  GiB       in memory");
    EXPECT_SAYS(plan.out, "  memory.experts\n");
    EXPECT_SAYS(plan.out, "200 tokens, 800 uses");
    const Outcome report = run({ "plan", "--report", "--model", kModel, "--experts-trace", path });
    EXPECT_EQ(report.code, 2);
    EXPECT_SAYS(report.err, "--experts-trace");
    const Outcome other = run({ "plan", "--model", "models/weir-demo", "--experts-trace", path });
    EXPECT_EQ(other.code, 1);
    EXPECT_SAYS(
        other.err, "is a trace of a model with 12 experts (2 layers, 6 in one), and this one has 0"
    );
}

/* The trace at `from` with another second line, in `to`. */
std::string with_sizes(const std::string &from, const std::string &to, const std::string &sizes)
{
    std::ifstream in(from);
    std::ofstream out(to);
    std::string line;
    for (int i = 0; std::getline(in, line); i++) out << (i == 1 ? sizes : line) << "\n";
    return to;
}

// As many experts in all are not the same experts. Their format may differ: sizes are the plan's.
TEST(ExpertsCommand, TracesOfOtherModels)
{
    const std::string path = ::testing::TempDir() + "/trace4", other = path + "-other";
    ASSERT_EQ(trace(path).code, 0);
    const auto plan = [&](const std::string &file) {
        return run({ "plan", "--model", kModel, "--experts-trace", file, "--set",
                     "memory.experts=40KiB", "--json" });
    };
    for (const char *sizes :
         { "layers 3 experts 6 total 12 bytes 1000", "layers 2 experts 8 total 12 bytes 1000" }) {
        const Outcome o = plan(with_sizes(path, other, sizes));
        EXPECT_EQ(o.code, 1) << sizes;
        EXPECT_SAYS(o.err, "is a trace of a model with 12 experts");
    }
    /* Sizes are compared before the lines are read, which takes long where they are large. */
    std::ofstream(other
    ) << "weir experts trace 1\nlayers 4096 experts 1024 total 4194304 bytes 1\nx\n";
    EXPECT_SAYS(plan(other).err, "is a trace of a model with 4194304 experts");
    const Outcome want = plan(path);
    ASSERT_EQ(want.code, 0) << want.err;
    const Outcome got = plan(with_sizes(path, other, "layers 2 experts 6 total 12 bytes 99999999"));
    EXPECT_EQ(got.code, 0) << got.err;
    const auto table = [](const Outcome &o) { return o.out.substr(o.out.find("\"experts_trace")); };
    EXPECT_EQ(table(got), table(want));
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
