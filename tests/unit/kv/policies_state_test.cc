/* States of sequences (saved, forked, damaged), and options. */
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <cstring>

#include "engine/kv/policy/rotate.h"
#include "tests/unit/kv/policy_sequence.h"

namespace {

using policy_test::Data;
using policy_test::Floats;
using policy_test::Ints;
using policy_test::random_data;
using policy_test::Sequence;
using Bytes = std::vector<unsigned char>;

const char *const stateful[][2] = {
    { "h2o", "sinks=2,recent=3,every=1" },
    { "h2o", "sinks=2,recent=3,every=1,scope=kv_head,normalise=true,decay=0.9" },
    { "observed", "every=4" },
    { "scissorhands", "every=6,history=10,recent=3" },
    { "tova", "" },
    { "snapkv", "window=5,every=4" },
    { "snapkv_decode", "window=5,every=4" },
    { "rkv", "window=5,every=4" },
    { "expected", "sinks=2,future=9,every=4" },
    { "sinks", "sinks=2" },
    { "sinks", "sinks=2,every=3,positions=cache" },
    { "random", "every=4" },
};

Bytes saved(const Sequence &seq)
{
    Bytes out(weir_policy_saved_bytes(seq.policy(), seq.state()));
    weir_policy_write(seq.policy(), seq.state(), out.data());
    return out;
}

weir_status load(Sequence *seq, const Bytes &bytes, std::string *why = nullptr)
{
    weir_error error = {};
    const Bytes exact(bytes);
    const weir_status status =
        weir_policy_load(seq->policy(), seq->state(), exact.data(), exact.size(), &error);
    if (why != nullptr) *why = error.text;
    EXPECT_EQ(status == WEIR_OK, error.text[0] == '\0');
    return status;
}

Bytes sealed(Bytes bytes)
{
    const uint64_t sum = XXH3_64bits(bytes.data(), bytes.size() - 8);
    memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
    return bytes;
}

bool is_reset(const Sequence &seq, const Sequence &fresh)
{
    return memcmp(seq.state(), fresh.state(), weir_policy_state_bytes(seq.policy())) == 0;
}

/* ---- going on -------------------------------------------------------------------------------- */

TEST(PolicyState, ASavedOneGoesOnAsIfNothingHadBeen)
{
    const Data data = random_data(2, 4, 2, 80, 8, 71);
    for (const auto &kind : stateful) {
        Sequence whole(data, kind[0], kind[1]), again(data, kind[0], kind[1]);
        for (Sequence *seq : { &whole, &again }) {
            seq->forward(17);
            while (seq->position() < 45) seq->step(1, 20, WEIR_POLICY_DECODE);
        }
        const Bytes bytes = saved(again);
        weir_policy_reset(again.policy(), again.state());
        std::string why;
        ASSERT_EQ(load(&again, bytes, &why), WEIR_OK) << kind[0] << why;
        EXPECT_EQ(saved(again), bytes) << kind[0];
        while (whole.position() < 80) {
            whole.step(1, 20, WEIR_POLICY_DECODE);
            again.step(1, 20, WEIR_POLICY_DECODE);
            for (int64_t i = 0; i < 4; i++)
                ASSERT_EQ(again.held(i / 2, i % 2), whole.held(i / 2, i % 2))
                    << kind[0] << whole.position();
        }
        EXPECT_EQ(saved(again), saved(whole)) << kind[0];
    }
}

TEST(PolicyState, AForkIsACopyOfBytes)
{
    const Data data = random_data(1, 4, 2, 60, 8, 72);
    for (const auto &kind : stateful) {
        Sequence trunk(data, kind[0], kind[1]), fork(data, kind[0], kind[1]);
        for (Sequence *seq : { &trunk, &fork }) {
            seq->forward(12);
            while (seq->position() < 30) seq->step(1, 20, WEIR_POLICY_DECODE);
        }
        weir_policy_reset(fork.policy(), fork.state());
        memcpy(fork.state(), trunk.state(), weir_policy_state_bytes(trunk.policy()));
        for (Sequence *seq : { &trunk, &fork })
            while (seq->position() < 60) seq->step(1, 20, WEIR_POLICY_DECODE);
        EXPECT_EQ(fork.held(0, 1), trunk.held(0, 1)) << kind[0];
        EXPECT_EQ(saved(fork), saved(trunk)) << kind[0];
    }
}

TEST(PolicyState, OnlyWhatIsInUseIsWritten)
{
    const Data data = random_data(1, 2, 1, 400, 8, 73);
    Sequence seq(data, "h2o", "");
    seq.forward(10);
    EXPECT_EQ(saved(seq).size(), 8u + 16 + 32 + 8 + 4 * 10 + 8);
    EXPECT_GT(weir_policy_state_bytes(seq.policy()), 4 * 400u);
}

/* ---- damage ---------------------------------------------------------------------------------- */

TEST(PolicyState, CutShortLongerOrChangedIsRefusedAndLeavesNothing)
{
    const Data data = random_data(1, 2, 1, 40, 8, 74);
    for (const auto &kind : stateful) {
        Sequence seq(data, kind[0], kind[1]), fresh(data, kind[0], kind[1]);
        seq.forward(9);
        const Bytes good = saved(seq);
        for (size_t n = 0; n < good.size(); n += good.size() > 600 ? 17 : 1) {
            EXPECT_EQ(
                load(&seq, Bytes(good.begin(), good.begin() + static_cast<long>(n))), WEIR_EFORMAT
            ) << kind[0]
              << n;
            if (n >= 32)
                EXPECT_NE(
                    load(&seq, sealed(Bytes(good.begin(), good.begin() + static_cast<long>(n)))),
                    WEIR_OK
                ) << kind[0]
                  << n;
            EXPECT_TRUE(is_reset(seq, fresh));
        }
        for (size_t i = 0; i < good.size(); i += 5) {
            Bytes bad = good;
            bad[i] ^= 4;
            EXPECT_NE(load(&seq, bad), WEIR_OK) << i;
        }
        Bytes longer = good;
        longer.insert(longer.end() - 8, 0);
        EXPECT_EQ(load(&seq, sealed(longer)), WEIR_EFORMAT);
        EXPECT_TRUE(is_reset(seq, fresh));
        EXPECT_EQ(load(&seq, good), WEIR_OK);
    }
}

TEST(PolicyState, NumbersOutOfRangeAreRefused)
{
    const Data data = random_data(1, 2, 1, 40, 8, 75);
    Sequence seq(data, "h2o", ""), fresh(data, "h2o", "");
    seq.forward(9);
    const Bytes good = saved(seq);
    const auto with = [&](size_t offset, int64_t value) {
        Bytes bad = good;
        memcpy(bad.data() + offset, &value, 8);
        return sealed(bad);
    };
    for (const size_t offset :
         { 24u, 32u, 40u, 48u, 56u }) { /* forwards, position, observed, keys held, rows */
        for (const int64_t value : { int64_t{ -1 }, INT64_MIN, INT64_MAX })
            EXPECT_EQ(load(&seq, with(offset, value)), WEIR_EFORMAT) << offset;
        EXPECT_TRUE(is_reset(seq, fresh));
    }
    EXPECT_EQ(load(&seq, with(56, 41)), WEIR_EFORMAT) << "more rows than a head may have";
    EXPECT_EQ(load(&seq, with(48, 1)), WEIR_EFORMAT) << "keys held by a method that holds none";
    EXPECT_EQ(load(&seq, with(40, 10)), WEIR_EFORMAT) << "more queries than positions";
    for (const float value : { NAN, INFINITY }) {
        Bytes bad = good;
        memcpy(bad.data() + 64, &value, 4);
        EXPECT_EQ(load(&seq, sealed(bad)), WEIR_EFORMAT);
    }
    EXPECT_TRUE(is_reset(seq, fresh));
}

/* The keys that are rotated are in the state: their number is the same in all layers, and no more
 * than there is room for. */
TEST(PolicyState, HeldKeysAreSavedAndChecked)
{
    const Data data = random_data(2, 2, 1, 40, 8, 78);
    Sequence seq(data, "sinks", "sinks=3,every=4,positions=cache"),
        fresh(data, "sinks", "sinks=3,every=4,positions=cache");
    seq.forward(20);
    EXPECT_EQ(weir_policy_n_held(seq.state()), 0);
    seq.plan({ 10 });
    EXPECT_EQ(weir_policy_n_held(seq.state()), 3);
    const Bytes good = saved(seq);
    const size_t layer = 8 + 3 * 8 * 4, first = 48, keys = 56 + 8;
    ASSERT_EQ(good.size(), 56 + 2 * layer + 8);
    EXPECT_EQ(memcmp(good.data() + keys, data.key(0, 0, 0), 3 * 8 * 4), 0) << "as they were";
    const auto with = [&](size_t offset, int64_t value) {
        Bytes bad = good;
        memcpy(bad.data() + offset, &value, 8);
        return sealed(bad);
    };
    for (const int64_t value : { int64_t{ -1 }, int64_t{ 2 }, int64_t{ 4 }, INT64_MAX })
        EXPECT_EQ(load(&seq, with(first, value)), WEIR_EFORMAT);
    Bytes bad = good;
    const float no_number = NAN;
    memcpy(bad.data() + keys, &no_number, 4);
    EXPECT_EQ(load(&seq, sealed(bad)), WEIR_EFORMAT);
    EXPECT_TRUE(is_reset(seq, fresh));
    EXPECT_EQ(load(&seq, good), WEIR_OK);
    Floats got(8), expected(data.key(1, 0, 2), data.key(1, 0, 2) + 8);
    const weir_policy_tile tile = { 1, 0, 2, 1, got.data(), nullptr };
    const int64_t distance = 1000;
    const auto frequencies = data.frequencies();
    const auto shape = policy_test::shape_of(data, frequencies, 0);
    weir_policy_rotate_keys(seq.policy(), seq.state(), &tile, distance);
    weir_rows_rotate(expected.data(), 1, &distance, &shape);
    EXPECT_EQ(got, expected);
}

/* Rows that cannot be read are told, and nothing is held. */
TEST(PolicyState, KeysThatCannotBeReadAreNotHeld)
{
    const Data data = random_data(1, 2, 2, 40, 8, 79);
    Sequence seq(data, "sinks", "sinks=3,every=4,positions=cache");
    seq.forward(20);
    seq.read_status = WEIR_EIO;
    EXPECT_THROW(seq.plan({ 10 }), std::runtime_error);
    EXPECT_EQ(weir_policy_n_held(seq.state()), 0);
    seq.read_status = WEIR_OK;
    seq.plan({ 10 });
    EXPECT_EQ(weir_policy_n_held(seq.state()), 3);
}

TEST(PolicyState, OfAnotherPolicyOptionsOrModelIsRefused)
{
    const Data data = random_data(1, 2, 1, 40, 8, 76), wide = random_data(1, 2, 1, 40, 16, 76);
    Sequence seq(data, "h2o", "");
    std::string why;
    seq.forward(9);
    const Bytes bytes = saved(seq);
    Sequence other(data, "observed", ""), options(data, "h2o", "recent=65"), model(wide, "h2o", "");
    for (Sequence *one : { &other, &options, &model }) {
        EXPECT_EQ(load(one, bytes, &why), WEIR_EMISMATCH);
        EXPECT_NE(why.find("other options"), std::string::npos) << why;
    }
    Bytes version = bytes;
    version[4] = 2;
    EXPECT_EQ(load(&seq, version, &why), WEIR_EUNSUPPORTED);
}

/* ---- options --------------------------------------------------------------------------------- */

std::string refusal(const char *name, const std::string &list)
{
    weir_policy_options options, before;
    weir_error error = {};
    if (weir_policy_options_default(&options, name, &error) != WEIR_OK) return error.text;
    before = options;
    EXPECT_EQ(weir_policy_options_set(&options, list.c_str(), &error), WEIR_ECONFIG)
        << name << " " << list;
    EXPECT_EQ(memcmp(&options, &before, sizeof options), 0)
        << "nothing is set by a list that is refused";
    return error.text;
}

TEST(PolicyOptions, AreReadAsTheyArePrinted)
{
    const char *summary;
    size_t n = 0;
    for (const char *name; (name = weir_policy_at(n, &summary)) != nullptr; n++) {
        weir_policy_options options, again;
        weir_buffer seq = {};
        weir_error error = {};
        ASSERT_EQ(weir_policy_options_default(&options, name, &error), WEIR_OK) << error.text;
        ASSERT_EQ(weir_policy_options_print(&seq, &options), WEIR_OK);
        const char *const list = strchr(seq.data, ' ');
        ASSERT_EQ(weir_policy_options_default(&again, name, &error), WEIR_OK);
        if (list != nullptr)
            ASSERT_EQ(weir_policy_options_set(&again, list + 1, &error), WEIR_OK) << error.text;
        EXPECT_EQ(memcmp(&options, &again, sizeof options), 0) << seq.data;
        EXPECT_GT(strlen(summary), 10u);
        const char *option, *help;
        char value[64];
        size_t n_options = 0;
        while (weir_policy_option_at(&options, n_options, &option, value, sizeof value, &help)) {
            EXPECT_NE(
                std::string(seq.data).find(std::string(option) + "=" + value), std::string::npos
            ) << option;
            EXPECT_GT(strlen(help), 10u);
            n_options++;
        }
        EXPECT_EQ(n_options == 0, list == nullptr);
        weir_buffer_free(&seq);
    }
    EXPECT_EQ(n, 18u);
}

TEST(PolicyOptions, OfTheMatrixAreTheMethodsOwn)
{
    const char *name, *summary;
    std::string names;
    for (size_t i = 0; (name = weir_policy_at(i, &summary)) != nullptr; i++) {
        const char *const list = weir_policy_matrix_options(i, true);
        weir_policy_options options;
        weir_error error = {};
        ASSERT_EQ(weir_policy_options_default(&options, name, &error), WEIR_OK) << error.text;
        if (list == nullptr) continue;
        EXPECT_EQ(weir_policy_options_set(&options, list, &error), WEIR_OK) << error.text;
        names += weir_policy_matrix_options(i, false) == nullptr ? " !" : " ";
        names += name;
    }
    EXPECT_EQ(
        names, " full sinks h2o scissorhands snapkv rkv tova keydiff knorm expected lagkv "
               "landmarks !triattention random"
    );
}

TEST(PolicyOptions, ErrorsNameWhatIsNearAndWhatIsAllowed)
{
    EXPECT_EQ(refusal("h2", ""), "there is no KV policy \"h2\"; the nearest is h2o");
    EXPECT_EQ(refusal("snap_kv", ""), "there is no KV policy \"snap_kv\"; the nearest is snapkv");
    EXPECT_EQ(refusal("h2o", "sink=3"), "h2o has no option \"sink\"; the nearest is sinks");
    EXPECT_EQ(refusal("full", "sinks=3"), "full has no option \"sinks\"");
    EXPECT_EQ(refusal("knorm", "lag=3").find("knorm has no option \"lag\""), 0u)
        << "another policy's";
    EXPECT_EQ(refusal("h2o", "sinks"), "h2o: \"sinks\" is not NAME=VALUE");
    EXPECT_EQ(
        refusal("h2o", "recent=5,sinks=-1"), "sinks: \"-1\" is not a whole number from 0 to 1048576"
    );
    EXPECT_EQ(refusal("h2o", "decay=1.5"), "decay: \"1.5\" is not a number from 0 to 1");
    EXPECT_EQ(refusal("h2o", "scope=head"), "scope: \"head\" is not one of: kv_head layer");
    EXPECT_EQ(refusal("h2o", "normalise=yes"), "normalise: \"yes\" is neither true nor false");
    for (const char *bad : { "sinks=", "sinks=3.5", "sinks=3x", "sinks=nan", "sinks=1e400",
                             "decay=nan", "decay=inf", "scope=", "scope=kv_head layer" })
        EXPECT_NE(refusal("h2o", bad), "");
    EXPECT_NE(
        refusal("duo", "heads=" + std::string(2000, '1')).find("2000 bytes"), std::string::npos
    );
    EXPECT_NE(refusal("duo", std::string(5000, 'x') + "=1"), "");
}

std::string open_refusal(const Data &data, const char *name, const char *options)
{
    try {
        const Sequence seq(data, name, options);
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    return "";
}

TEST(PolicyOptions, ThatContradictEachOtherAreRefused)
{
    const Data data = random_data(1, 2, 1, 40, 8, 77);
    EXPECT_NE(
        open_refusal(data, "h2o", "split=adaptive").find("split must be uniform or pyramid"),
        std::string::npos
    );
    EXPECT_EQ(open_refusal(data, "h2o", "split=adaptive,scope=kv_head"), "");
    EXPECT_NE(
        open_refusal(data, "sinks", "positions=cache,pin_prompt=true").find("the whole prompt"),
        std::string::npos
    );
    EXPECT_EQ(open_refusal(data, "sinks", "positions=cache,split=pyramid"), "");
    EXPECT_NE(
        open_refusal(data, "tova", "split=heads,heads=0:0").find("split must be uniform"),
        std::string::npos
    );
    EXPECT_NE(open_refusal(data, "duo", "").find("needs a list in heads"), std::string::npos);
    EXPECT_NE(
        open_refusal(data, "duo", "heads=0:1").find("1 layers with 1 KV heads"), std::string::npos
    );
    EXPECT_NE(open_refusal(data, "snapkv", "kernel=4").find("must be odd"), std::string::npos);
    EXPECT_NE(open_refusal(data, "triattention", "").find("set calibration"), std::string::npos);
}

TEST(PolicyOptions, ABudgetThatLeavesNoChoiceIsRefused)
{
    const Data data = random_data(1, 2, 1, 40, 8, 78);
    const Sequence h2o(data, "h2o", "sinks=4,recent=8"), snapkv(data, "snapkv", "window=32"),
        full(data, "full", "");
    weir_error error = {};
    EXPECT_EQ(weir_policy_check_budget(h2o.policy(), 13, &error), WEIR_OK);
    EXPECT_EQ(weir_policy_check_budget(h2o.policy(), 12, &error), WEIR_ECONFIG);
    EXPECT_NE(std::string(error.text).find("4 sinks and the last 8 rows"), std::string::npos)
        << error.text;
    EXPECT_NE(std::string(error.text).find("at least 13"), std::string::npos) << error.text;
    EXPECT_EQ(weir_policy_check_budget(snapkv.policy(), 32, &error), WEIR_ECONFIG)
        << "a window past the budget";
    EXPECT_EQ(weir_policy_check_budget(snapkv.policy(), 33, &error), WEIR_OK);
    EXPECT_EQ(weir_policy_check_budget(full.policy(), 0, &error), WEIR_OK);
}

TEST(PolicyOpen, ShapesThatDoNotFitAreRefused)
{
    const Data data = random_data(1, 2, 1, 40, 8, 79);
    const auto frequencies = data.frequencies();
    const weir_policy_shape good = policy_test::shape_of(data, frequencies, 0);
    weir_policy_options options;
    weir_error error = {};
    ASSERT_EQ(weir_policy_options_default(&options, "h2o", &error), WEIR_OK);
    const auto refused = [&](const std::function<void(weir_policy_shape *)> &change) {
        weir_policy_shape bad = good;
        weir_policy *policy = nullptr;
        change(&bad);
        EXPECT_EQ(weir_policy_open(&policy, &options, &bad, nullptr, &error), WEIR_EINVAL);
        EXPECT_EQ(policy, nullptr);
    };
    refused([](weir_policy_shape *s) { s->n_layers = 0; });
    refused([](weir_policy_shape *s) { s->n_heads = 3, s->n_kv_heads = 2; });
    refused([](weir_policy_shape *s) { s->rotary_dim = 7; });
    refused([](weir_policy_shape *s) { s->rotary_dim = 10; });
    refused([](weir_policy_shape *s) { s->max_rows = 0; });
    refused([](weir_policy_shape *s) { s->scale = NAN; });
    refused([](weir_policy_shape *s) { s->frequencies = nullptr; });
}

TEST(PolicyOpen, WhatCannotBeSeenIsRefusedToThoseWhoNeedIt)
{
    const Data data = random_data(1, 2, 1, 40, 8, 80);
    const auto frequencies = data.frequencies();
    weir_policy_shape shape = policy_test::shape_of(data, frequencies, 0);
    shape.hides_mass = true;
    for (const auto &[name, want] : { std::pair{ "h2o", WEIR_EUNSUPPORTED },
                                      { "scissorhands", WEIR_EUNSUPPORTED },
                                      { "sinks", WEIR_OK },
                                      { "snapkv", WEIR_OK },
                                      { "keydiff", WEIR_OK } }) {
        weir_policy_options options;
        weir_error error = {};
        weir_policy *policy = nullptr;
        ASSERT_EQ(weir_policy_options_default(&options, name, &error), WEIR_OK);
        EXPECT_EQ(weir_policy_open(&policy, &options, &shape, nullptr, &error), want)
            << name << ": " << error.text;
        EXPECT_NE(want == WEIR_OK, !!strstr(error.text, "one of f32 f16, or use one of: sinks, s"))
            << error.text;
        weir_policy_close(policy);
    }
}

TEST(PolicyOpen, WhatItTakesIsWhatItSays)
{
    const Data data = random_data(2, 4, 2, 40, 8, 80);
    const Sequence full(data, "full", ""), h2o(data, "h2o", ""),
        per_head(data, "h2o", "scope=kv_head"), snapkv(data, "snapkv", "window=5");
    EXPECT_EQ(
        weir_policy_state_bytes(h2o.policy()) - weir_policy_state_bytes(full.policy()),
        2u * 40 * 4 - 2 * 8
    );
    EXPECT_EQ(
        weir_policy_state_bytes(per_head.policy()) - weir_policy_state_bytes(full.policy()),
        4u * 40 * 4
    );
    EXPECT_EQ(
        weir_policy_state_bytes(snapkv.policy()) - weir_policy_state_bytes(full.policy()),
        2u * 5 * 4 * 8 * 4
    );
    EXPECT_EQ(weir_policy_window(snapkv.policy()), 5);
    EXPECT_GT(weir_policy_scratch_bytes(snapkv.policy()), weir_policy_scratch_bytes(h2o.policy()));
    EXPECT_GT(weir_policy_bytes(full.policy()), 0u);
}

/* What opening over fewer rows gives, for every method and for options that size its memory. */
TEST(PolicyOpen, TighteningIsOpeningOverFewerRows)
{
    const Data data = random_data(2, 4, 2, 40, 8, 81);
    const auto frequencies = data.frequencies();
    const char *name, *summary;
    size_t n_smaller = 0;
    for (size_t i = 0; (name = weir_policy_at(i, &summary)) != nullptr; i++) {
        weir_policy_options options;
        weir_error error = {};
        ASSERT_EQ(weir_policy_options_default(&options, name, &error), WEIR_OK) << error.text;
        weir_policy *policies[2] = {};
        const weir_policy_shape wide = policy_test::shape_of(data, frequencies, 40),
                                narrow = policy_test::shape_of(data, frequencies, 12);
        if (weir_policy_open(&policies[0], &options, &wide, nullptr, &error) != WEIR_OK)
            continue; // wants a file, or a list of heads
        ASSERT_EQ(weir_policy_open(&policies[1], &options, &narrow, nullptr, &error), WEIR_OK)
            << name << ": " << error.text;
        n_smaller +=
            weir_policy_scratch_bytes(policies[1]) < weir_policy_scratch_bytes(policies[0]);
        weir_policy_tighten(policies[0], 12);
        uint64_t digests[2][2];
        for (int k = 0; k < 2; k++) weir_policy_digest(policies[k], digests[k]);
        EXPECT_EQ(weir_policy_state_bytes(policies[0]), weir_policy_state_bytes(policies[1]))
            << name;
        EXPECT_EQ(weir_policy_scratch_bytes(policies[0]), weir_policy_scratch_bytes(policies[1]))
            << name;
        EXPECT_EQ(weir_policy_bytes(policies[0]), weir_policy_bytes(policies[1])) << name;
        EXPECT_EQ(
            weir_policy_peak_rows(policies[0], 9, 0, 1), weir_policy_peak_rows(policies[1], 9, 0, 1)
        ) << name;
        EXPECT_EQ(memcmp(digests[0], digests[1], sizeof digests[0]), 0) << name;
        for (weir_policy *const policy : policies) weir_policy_close(policy);
    }
    EXPECT_GT(n_smaller, 8u) << "there was something to tighten";
}

} // namespace
