/* weir plan as a user runs it: totals, sizes that can be read, and the limit that would fit. */
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/unit/cli/json.h"
#include "tests/unit/cli/program.h"

namespace {

using program::Outcome;
using program::run;

const std::string demo = "models/weir-demo";

Outcome plan(std::vector<std::string> more)
{
    std::vector<std::string> words = { "plan", "--model", demo };
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
}

/* MiB of "memory.host = 57MiB is the least that fits", -1: the text has none. */
long least_of(const std::string &text)
{
    std::smatch match;
    const bool found = std::regex_search(
        text, match, std::regex("memory\\.host = ([0-9]+)MiB is the least that fits")
    );
    return found ? std::stol(match[1]) : -1;
}

TEST(Plan, EndsWithTheTotalAndTheLimit)
{
    const Outcome text = plan({ "--memory", "256MiB" });
    ASSERT_EQ(text.code, 0) << text.err;
    const program::Json json(plan({ "--memory", "256MiB", "--json" }).out);
    char total[64];
    const double mib = 1024.0 * 1024.0;
    (void)snprintf(
        total, sizeof total, "%.1f MiB   of 256.0 MiB (memory.host)", json.number("total") / mib
    );
    EXPECT_SAYS(text.out, total);
}

TEST(Plan, ShowsSmallSizesInKibAndNoEmptyRows)
{
    const Outcome text = plan({ "--memory", "256MiB" });
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_FALSE(std::regex_search(text.out, std::regex(" 0\\.0 (MiB|KiB)"))) << text.out;
    EXPECT_TRUE(std::regex_search(text.out, std::regex("sampler +[0-9.]+ KiB"))) << text.out;
    EXPECT_EQ(text.out.find("state database"), std::string::npos) << "there is none";
    const Outcome refusal = plan({ "--memory", "40MiB" });
    EXPECT_EQ(refusal.code, 3);
    EXPECT_FALSE(std::regex_search(refusal.err, std::regex(" 0\\.0"))) << refusal.err;
}

/* Threads have stacks, which no account has: a server with more of them sets more aside. */
TEST(Plan, SetsMemoryAsideForThreads)
{
    const std::vector<std::string> few = { "--memory", "256MiB", "--set", "server.workers=4",
                                           "--json" };
    std::vector<std::string> many = { "--memory", "256MiB", "--set", "server.workers=64" };
    const Outcome text = plan(many);
    EXPECT_TRUE(std::regex_search(text.out, std::regex("process .* with [0-9]+ threads")))
        << text.out;
    many.push_back("--json");
    const program::Json before(plan(few).out), after(plan(many).out);
    EXPECT_EQ(after.number("threads"), before.number("threads") + 60);
    const auto process = [](const program::Json &json) {
        return json_integer_value(json_object_get(json.at("accounts"), "process"));
    };
    EXPECT_GE(process(after), process(before) + 60 * (64 << 10));
}

struct Refused {
    const char *name, *memory;
    std::vector<std::string> more;
};
class Least : public testing::TestWithParam<Refused> {};

/* What a refusal asks for is enough, and 1 MiB less is not. */
TEST_P(Least, FitsAndOneMibLessDoesNot)
{
    const Refused &c = GetParam();
    const auto with = [&](const std::string &memory) {
        std::vector<std::string> words = c.more;
        words.insert(words.end(), { "--memory", memory });
        return plan(words);
    };
    const Outcome refused = with(c.memory);
    ASSERT_EQ(refused.code, 3) << refused.out;
    const long least = least_of(refused.err);
    ASSERT_GT(least, 0) << refused.err;
    const Outcome fits = with(std::to_string(least) + "MiB");
    EXPECT_EQ(fits.code, 0) << fits.err;
    const Outcome below = with(std::to_string(least - 1) + "MiB");
    EXPECT_EQ(below.code, 3) << below.out;
    EXPECT_EQ(least_of(below.err), least) << "every refusal says the same";
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Least,
    testing::Values(
        Refused{ "Demo", "40MiB", {} }, Refused{ "BelowTheTokenizer", "2MiB", {} },
        Refused{ "LongWindow", "60MiB", { "--context", "100000" } },
        Refused{ "ManySequences", "40MiB", { "--max-sequences", "32" } },
        Refused{ "Formats", "40MiB", { "--kv-format", "turbo4" } },
        Refused{ "Policy", "40MiB", { "--policy", "snapkv", "--budget", "512", "--chunk", "512" } }
    ),
    [](const auto &info) { return std::string(info.param.name); }
);

TEST(Plan, SaysTheLeastThatFits)
{
    const Outcome text = plan({ "--memory", "256MiB" });
    const program::Json json(plan({ "--memory", "256MiB", "--json" }).out);
    const long least = long(json.number("least")) >> 20;
    EXPECT_SAYS(text.out, std::to_string(least) + ".0 MiB   the smallest memory.host that fits\n");
    EXPECT_EQ(plan({ "--memory", std::to_string(least) + "MiB" }).code, 0);
    const Outcome below = plan({ "--memory", std::to_string(least - 1) + "MiB" });
    EXPECT_EQ(below.code, 3);
    EXPECT_EQ(least_of(below.err), least) << "as a refusal says it";
}

/* What is configured of a disk counts, not what this plan has of it. */
TEST(Plan, SaysTheSameLeastAsARefusal)
{
    const auto with = [](long mib) {
        return plan({ "--memory", std::to_string(mib) + "MiB", "--disk", "50TiB", "--set",
                      "memory.snapshots=600MiB" });
    };
    const long least = least_of(with(60).err);
    ASSERT_GT(least, 600);
    EXPECT_SAYS(with(least).out, " " + std::to_string(least) + ".0 MiB   the smallest memory.host");
}

std::string bar_of(const weir_plan &plan, int columns)
{
    weir_buffer text = {};
    EXPECT_EQ(weir_plan_print_bar(&plan, columns, &text), WEIR_OK);
    const std::string out(text.data, text.size);
    weir_buffer_free(&text);
    return out;
}

TEST(Plan, IsAPictureOnATerminal)
{
    weir_plan plan = {};
    plan.cap = 400;
    plan.weights = 100;
    plan.kv = 150;
    plan.kv_windows = 50;
    plan.recurrent = 20;
    plan.activations = 10;
    plan.tokens = 30;
    EXPECT_EQ(
        bar_of(plan, 51), "  host   [##########====================~~+---....]\n"
                          "  # weights  = kv  ~ states  + activations  - other\n  . free\n"
    );
    plan.has_device = true;
    plan.device_cap = 540;
    plan.near_activations = 270;
    EXPECT_EQ(
        bar_of(plan, 0), "  host   [====---......................]\n"
                         "  device [#####========~~++++++++++++++]\n"
                         "  # weights  = kv  ~ states\n  + activations  - other  . free\n"
    );
    plan.cap = plan.device_cap = 1; /* more than there is room for */
    for (const int columns : { -1, 40, 99, 5000 }) {
        std::istringstream lines(bar_of(plan, columns));
        for (std::string line; std::getline(lines, line);)
            EXPECT_LE(line.size(), size_t(std::clamp(columns, 40, 120))) << line;
    }
    EXPECT_EQ(
        run({ "plan", "--model", demo, "--memory", "256MiB" }).out.find("[#"), std::string::npos
    ) << "a pipe";
}

/* The engine opens in it: the refusal of `generate` counts without a server. */
TEST(Plan, TheLeastOfAnEngineOpensIt)
{
    const auto generate = [](const std::string &memory) {
        return run({ "generate", "--model", demo, "--prompt", "Hello", "-n", "2", "--memory",
                     memory });
    };
    const Outcome refused = generate("4MiB");
    ASSERT_EQ(refused.code, 3) << refused.err;
    const long least = least_of(refused.err);
    ASSERT_GT(least, 4) << refused.err;
    EXPECT_EQ(generate(std::to_string(least) + "MiB").code, 0);
    EXPECT_EQ(generate(std::to_string(least - 1) + "MiB").code, 3);
}

TEST(Plan, SaysWhereMoreMemoryWouldNotHelp)
{
    const Outcome o = plan({ "--memory", "2MiB", "--disk", "1B" });
    EXPECT_EQ(o.code, 3);
    EXPECT_EQ(least_of(o.err), -1) << o.err;
}

TEST(Plan, WarnsOfALimitPastTheMachine)
{
    const Outcome more = plan({ "--memory", "500TiB" });
    EXPECT_EQ(more.code, 0) << more.err;
    EXPECT_SAYS(more.err, "memory.host is 524288000.0 MiB, more than the ");
    const Outcome less = plan({ "--memory", "256MiB" });
    EXPECT_EQ(less.err.find("more than the"), std::string::npos) << less.err;
}

} // namespace
