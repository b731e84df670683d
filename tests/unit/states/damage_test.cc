// What may be wrong with the files of a database of states: other versions, damage, torn ends,
// files without records.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/states/states_internal.h"
#include "tests/unit/states/support.h"

namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;
using DamagedStates = Database;

/* ---- opening what is not right --------------------------------------------------------------- */
TEST_F(DamagedStates, IsMadeOnceAndOpenedByItsModel)
{
    const weir_states_kind kind = { { 1, 2 }, 4, "", 0 };
    EXPECT_EQ(weir_states_create(folder_.c_str(), &kind, &error_), WEIR_EINVAL);
    EXPECT_NE(std::string(error_.text).find("already"), std::string::npos);
    const weir_states_kind wide = { { 1, 2 }, WEIR_STATE_DIM + 1, "", 0 },
                           negative = { { 1, 2 }, -1, "", 0 };
    EXPECT_EQ(weir_states_create((work_ + "/wide").c_str(), &wide, &error_), WEIR_EINVAL);
    EXPECT_EQ(weir_states_create((work_ + "/wide").c_str(), &negative, &error_), WEIR_EINVAL);
    spill(folder_ + "/left-over.1.session", "x");
    for (bool writes : { true, false }) {
        weir_states *states = nullptr;
        const weir_states_options options = { folder_.c_str(), kind.model, writes, nullptr, 0 };
        EXPECT_EQ(weir_states_open(&states, &options, &error_), WEIR_EMISMATCH);
        EXPECT_NE(std::string(error_.text).find("another model"), std::string::npos);
        EXPECT_EQ(states, nullptr);
        EXPECT_EQ(n_files(), 1u);
        const weir_states_options nowhere = { work_.c_str(), test_model, writes, nullptr, 0 };
        EXPECT_EQ(weir_states_open(&states, &nowhere, &error_), WEIR_ENOTFOUND);
        EXPECT_FALSE(fs::exists(work_ + "/states.lock"));
    }
}

TEST_F(DamagedStates, DamagedHeadersAndOtherVersionsAreRefused)
{
    added("a");
    close();
    const std::string good = slurp(log_);
    const auto refused = [&](const std::string &bytes, weir_status status, const char *what) {
        spill(log_, bytes);
        weir_states *states = nullptr;
        const weir_states_options options = { folder_.c_str(), nullptr, true, nullptr, 0 };
        EXPECT_EQ(weir_states_open(&states, &options, &error_), status) << what;
        EXPECT_NE(std::string(error_.text).find(what), std::string::npos) << error_.text;
        weir_states_close(states);
        EXPECT_EQ(n_files(), 1u);
    };
    std::string bytes = good;
    bytes[0] ^= 1;
    refused(bytes, WEIR_EFORMAT, "not the log of a state database");
    for (const int version : { 0, 1, 2, 4 }) {
        bytes = good, bytes[8] = (char)version;
        refused(bytes, WEIR_EUNSUPPORTED, ("version " + std::to_string(version) + ",").c_str());
    }
    for (size_t at : { 12, 16, 20, 30, 40, 56, 64, 96, 300, 511 }) {
        bytes = good, bytes[at] ^= 4;
        refused(bytes, WEIR_EFORMAT, "checksum");
    }
    refused(good.substr(0, 511), WEIR_EFORMAT, "not the log of a state database");
    refused("", WEIR_EFORMAT, "not the log of a state database");
    spill(log_, good);
    open();
    EXPECT_EQ(names(), Names{ "a" });
}

TEST_F(DamagedStates, AFileThatIsGoneOrAnotherIsRefusedWithTheReason)
{
    added("a"), added("b"), added("c");
    const std::string a = file_of("a"), b = file_of("b"), c = file_of("c");
    char path[PATH_MAX];
    const auto look = [&](const char *name) {
        EXPECT_EQ(weir_states_find(states_, name, &info_, &error_), WEIR_OK);
        return weir_states_payload(states_, &info_, path, &error_);
    };
    fs::remove(a);
    fs::remove(b);
    write_session(b, 200);
    std::string bytes = slurp(c);
    fs::remove(c);
    bytes[300] ^= 1;
    spill(c, bytes);
    EXPECT_EQ(look("a"), WEIR_ENOTFOUND);
    EXPECT_NE(std::string(error_.text).find("missing"), std::string::npos);
    EXPECT_EQ(look("b"), WEIR_EMISMATCH);
    EXPECT_NE(std::string(error_.text).find("not the file that was added"), std::string::npos);
    EXPECT_EQ(look("c"), WEIR_EFORMAT);
    EXPECT_NE(std::string(error_.text).find("checksum"), std::string::npos);
    open();
    EXPECT_EQ(names(), (Names{ "c", "b" })); /* the others may be put back */
    close();
    open(false);
    EXPECT_EQ(names(), (Names{ "c", "b" }));
}

/* ---- the end of the log ---------------------------------------------------------------------- */
TEST_F(DamagedStates, ATornEndIsCutAtTheLastWholeRecord)
{
    added("a", { 1, 0, 0, 0 }), added("b", { 0, 1, 0, 0 }), added("c");
    close();
    const std::string whole = slurp(log_);
    const size_t record = state_record_bytes(4), two = STATE_HEADER + 2 * record;
    ASSERT_EQ(whole.size(), STATE_HEADER + 3 * record);
    const std::string file = slurp(folder_ + "/c.3.session");
    for (size_t left : { size_t(1), size_t(8), size_t(100), record / 2, record - 8, record - 1,
                         record, 2 * record + 9 }) {
        std::string bytes = whole.substr(0, two + left);
        if (left >= record)
            bytes.resize(two + left),
                bytes[two + 200] ^= 1; /* its size was written, its bytes were not */
        spill(log_, bytes);
        spill(folder_ + "/c.3.session", file);
        open(false);
        EXPECT_EQ(names(), (Names{ "b", "a" })) << left;
        EXPECT_EQ(fs::file_size(log_), two + left);
        open();
        EXPECT_EQ(names(), (Names{ "b", "a" })) << left;
        EXPECT_EQ(n_files(), 2u);
        EXPECT_EQ(added("c"), "c");
        EXPECT_EQ(info_.serial, 3);
        EXPECT_EQ(fs::file_size(log_), whole.size());
        close();
    }
}

TEST_F(DamagedStates, DamagedRecordsCostNoOthersAndTheirFilesComeBack)
{
    for (const char *label : { "a", "b", "c", "d" }) added(label, { 1, 0, 0, 0 });
    const size_t record = state_record_bytes(4);
    close();
    std::string bytes = slurp(log_);
    bytes[STATE_HEADER + record + 700] ^= 1;
    bytes[STATE_HEADER + 2 * record] ^= 1;
    spill(log_, bytes);
    open(false);
    EXPECT_EQ(names(), (Names{ "d", "a" }));
    EXPECT_EQ(slurp(log_), bytes);
    spill(folder_ + "/e.5.session", "in flight");
    spill(folder_ + "/no-state.3.session", "not whole");
    open();
    Names all = names();
    EXPECT_EQ(all.size(), 4u);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, (Names{ "a", "b", "c", "d" }));
    EXPECT_EQ(route({ 1, 0, 0, 0 }, 9), (Names{ "d", "a" }));
    char path[PATH_MAX];
    for (const char *name : { "a", "b", "c", "d" }) {
        ASSERT_EQ(weir_states_find(states_, name, &info_, &error_), WEIR_OK);
        EXPECT_EQ(weir_states_payload(states_, &info_, path, &error_), WEIR_OK) << error_.text;
    }
    EXPECT_EQ(fs::file_size(log_), STATE_HEADER + 4 * record);
    EXPECT_TRUE(fs::exists(folder_ + "/no-state.3.session"));
    EXPECT_FALSE(fs::exists(folder_ + "/e.5.session"));
}

TEST_F(DamagedStates, RecordsOfAnotherDatabaseAreNone)
{
    added("a");
    const std::string other = work_ + "/other";
    weir_states_kind kind = { { test_model[0], test_model[1] }, dim_, "test", 0 };
    ASSERT_EQ(weir_states_create(other.c_str(), &kind, &error_), WEIR_OK);
    const std::string header = slurp(other + "/states.log");
    spill(other + "/states.log", header + slurp(log_).substr(STATE_HEADER));
    fs::copy(file_of("a"), other + "/a.1.session");
    weir_states *states = nullptr;
    const weir_states_options options = { other.c_str(), test_model, false, nullptr, 0 };
    ASSERT_EQ(weir_states_open(&states, &options, &error_), WEIR_OK);
    EXPECT_EQ(weir_states_find(states, "a", &info_, &error_), WEIR_ENOTFOUND);
    weir_states_close(states);
    /* And a database that takes the place of an open one is no news of it. */
    fs::remove(log_);
    fs::copy(other + "/states.log", log_);
    EXPECT_EQ(weir_states_find(states_, "a", &info_, &error_), WEIR_EMISMATCH);
    EXPECT_NE(std::string(error_.text).find("replaced by another one"), std::string::npos);
}

/* ---- files without records ------------------------------------------------------------------- */
TEST_F(DamagedStates, LeftOversAreClearedAwayAndStrangersLeftAlone)
{
    added("a"), added("b");
    ASSERT_EQ(weir_states_remove(states_, "a", &error_), WEIR_OK);
    close();
    const char *const left_over[] = { "a.1.session", "x.3.session", "b.2.session.tmp.77",
                                      "y.3.session.tmp.1", "states.log.tmp.77" };
    for (const char *name : left_over) spill(folder_ + "/" + name, "x");
    weir_new_file written; /* by another process */
    ASSERT_EQ(weir_new_file_open(&written, (folder_ + "/z.3.session").c_str(), 0, &error_), WEIR_OK)
        << error_.text;
    const Names strangers = { "a.session",    "A.1.session", "b.2.sessions",    "new.4.session",
                              "b.02.session", ".1.session",  "b.2.session.old", "notes" };
    for (const auto &name : strangers) spill(folder_ + "/" + name, "x");
    open();
    for (const auto &name : strangers) EXPECT_TRUE(fs::exists(folder_ + "/" + name)) << name;
    for (const char *name : left_over) EXPECT_FALSE(fs::exists(folder_ + "/" + name)) << name;
    EXPECT_TRUE(fs::exists(written.temporary));
    weir_new_file_drop(&written);
    EXPECT_EQ(names(), Names{ "b" });
    EXPECT_EQ(slurp(file_of("b")), slurp(source_.file));
}

} // namespace
