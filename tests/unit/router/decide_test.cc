// What the router decides: the model of a body, and what is loaded and unloaded.
#include <gtest/gtest.h>

#include <string>

#include "engine/router/body_model.h"
#include "engine/router/models.h"

namespace {

/* "": none. Read in pieces of each size, which must not matter. */
std::string model_of(const std::string &body)
{
    std::string found;
    for (size_t step = 1; step <= body.size(); step++) {
        weir_body_model m = {};
        for (size_t at = 0; at < body.size(); at += step)
            if (weir_body_model_read(&m, body.data() + at, std::min(step, body.size() - at))) break;
        const std::string now = m.state == WEIR_BODY_FOUND ? m.text : "";
        if (step > 1) EXPECT_EQ(found, now) << body << " in pieces of " << step;
        found = now;
    }
    return found;
}

TEST(BodyModel, IsTheTopLevelMember)
{
    EXPECT_EQ("x", model_of("{\"model\":\"x\"}"));
    EXPECT_EQ("x", model_of(" \r\n{ \"a\" : [1,{\"model\":\"no\"}], \"model\" : \"x\" "));
    EXPECT_EQ("x", model_of("{\"a\":\"\\\"model\\\":\\\\\",\"b\":{},\"model\":\"x\"}"));
    EXPECT_EQ("x", model_of("{\"models\":\"y\",\"mode\":\"z\",\"m\\u006fdel\":\"x\"}"));
    EXPECT_EQ("a/b\"", model_of("{\"model\":\"a\\/b\\u0022\"}"));
    EXPECT_EQ("x", model_of("{\"model\":\"x\",\"model\":\"y\"}"));
    EXPECT_EQ("", model_of("{\"a\":{\"model\":\"x\"}}"));
    EXPECT_EQ("", model_of("{\"model\":null,\"b\":1}"));
    EXPECT_EQ("", model_of("{\"model\":[\"x\"]}"));
    EXPECT_EQ("", model_of("[{\"model\":\"x\"}]"));
    EXPECT_EQ("", model_of("\"model\":\"x\""));
    EXPECT_EQ("", model_of("{}{\"model\":\"x\"}"));
    EXPECT_EQ("", model_of("{\"a\":1}]{\"model\":\"x\"}"));
    EXPECT_EQ("", model_of("{\"model\":\"x"));
}

TEST(BodyModel, NamesThatNoModelHas)
{
    EXPECT_EQ("?", model_of("{\"model\":\"" + std::string(400, 'x') + "\"}"));
    EXPECT_EQ("?", model_of("{\"model\":\"a\\u0000b\"}"));
    EXPECT_EQ("?", model_of("{\"model\":\"\xc3\xa4\"}"));
    EXPECT_EQ("", model_of("{\"model\":\"a\\u00zz\"}"));
    /* A key that is cut is not the key. */
    EXPECT_EQ("", model_of("{\"model" + std::string(400, 'x') + "\":\"x\"}"));
}

struct Loads {
    weir_loads all = {};
    explicit Loads(int64_t bytes) { all.bytes = bytes; }
    weir_load &add(int64_t bytes, weir_load_state state, int64_t used = 0, int64_t running = 0)
    {
        weir_load &load = all.of[all.n++];
        load.bytes = bytes;
        load.state = state;
        load.used_ns = used;
        load.n_running = running;
        return load;
    }
    void wants(weir_load &load, int64_t since)
    {
        load.n_waiting = 1;
        load.waits_since_ns = since;
    }
    /* For each model: + started, - stopped, < leaves, . nothing. */
    std::string plan()
    {
        std::string text;
        weir_loads_plan(&all);
        for (size_t i = 0; i < all.n; i++)
            text += all.of[i].start ? '+' : all.of[i].stop ? '-' : all.of[i].leaves ? '<' : '.';
        return text;
    }
};

TEST(Loads, WhatFitsIsStarted)
{
    Loads l(10);
    l.wants(l.add(4, WEIR_LOAD_NONE), 2);
    l.wants(l.add(6, WEIR_LOAD_NONE), 1);
    EXPECT_EQ("++", l.plan());
    EXPECT_EQ(10, weir_loads_used(&l.all));
}

TEST(Loads, TheFirstThatWaitsGoesFirst)
{
    Loads l(10);
    l.wants(l.add(2, WEIR_LOAD_NONE), 2);
    l.wants(l.add(8, WEIR_LOAD_NONE), 1);
    l.add(4, WEIR_LOAD_DONE, 5, 1);
    EXPECT_EQ("..<", l.plan()) << "the small one, which fits, does not overtake it";
    l.all.of[2].n_running = 0;
    EXPECT_EQ("..-", l.plan());
    l.all.of[2].state = WEIR_LOAD_ENDING;
    EXPECT_EQ("...", l.plan()) << "its memory is on its way";
    l.all.of[2].state = WEIR_LOAD_NONE;
    EXPECT_EQ("++.", l.plan());
}

TEST(Loads, ALateLoadGivesItsMemoryToOthers)
{
    Loads l(10);
    l.wants(l.add(6, WEIR_LOAD_BEGUN), 1);
    l.wants(l.add(6, WEIR_LOAD_NONE), 2);
    EXPECT_EQ("..", l.plan());
    l.all.of[0].is_late = true;
    EXPECT_EQ("-.", l.plan());
    l.all.of[1].n_waiting = 0;
    EXPECT_EQ("..", l.plan()) << "while no request waits for another it goes on";
}

TEST(Loads, IdleOnesGoBeforeBusyOnes)
{
    Loads l(10);
    l.add(3, WEIR_LOAD_DONE, 1, 1);
    l.add(3, WEIR_LOAD_DONE, 3);
    l.add(3, WEIR_LOAD_DONE, 2);
    weir_load &next = l.add(4, WEIR_LOAD_NONE);
    l.wants(next, 1);
    EXPECT_EQ("..-.", l.plan());
    next.bytes = 7;
    EXPECT_EQ(".--.", l.plan());
    next.bytes = 8;
    EXPECT_EQ("<--.", l.plan());
}

TEST(Loads, OneThatLoadsIsStoppedIfNoRequestWaitsForIt)
{
    Loads l(10);
    weir_load &loads = l.add(8, WEIR_LOAD_BEGUN);
    l.wants(loads, 1);
    l.wants(l.add(4, WEIR_LOAD_NONE), 2);
    EXPECT_EQ("..", l.plan());
    loads.n_waiting = 0;
    EXPECT_EQ("-.", l.plan());
}

TEST(Loads, BackOffDoublesUpToALimit)
{
    weir_load load = {};
    weir_load_fail(&load, 3, 100, 10);
    EXPECT_EQ(110, load.retry_ns);
    weir_load_fail(&load, 3, 100, 10);
    EXPECT_EQ(120, load.retry_ns);
    for (int i = 0; i < 100; i++) weir_load_fail(&load, 3, 100, 10);
    EXPECT_EQ(740, load.retry_ns);
    EXPECT_TRUE(load.failed);
}

/* What was read before a start, also after the end of the process, says nothing of the next. */
TEST(Loads, AnAnswerCountsUntilTheNextStart)
{
    weir_load load = {};
    weir_load_begin(&load, 0);
    weir_load_fail(&load, 3, 100, 10);
    EXPECT_EQ(110, load.retry_ns);
    load.answered = true;
    weir_load_begin(&load, 110);
    weir_load_outlive(&load);
    weir_load_fail(&load, 3, 200, 10);
    EXPECT_EQ(220, load.retry_ns);
    weir_load_begin(&load, 220);
    load.answered = true;
    weir_load_outlive(&load);
    weir_load_fail(&load, 3, 300, 10);
    EXPECT_EQ(310, load.retry_ns) << "a request after an answer";
}

} // namespace
