// A thread that works for others.
#include "engine/base/worker.h"

#include <gtest/gtest.h>

namespace {

/* Raises `done` to `wanted`. */
struct counter {
    weir_worker worker = {};
    int wanted = 0, done = 0;
    bool has_returned = false;
};

void *count(void *user)
{
    counter *const c = static_cast<counter *>(user);
    weir_worker_lock(&c->worker);
    for (;;) {
        while (c->done == c->wanted && !c->worker.is_closing) weir_worker_wait(&c->worker);
        if (c->worker.is_closing) break;
        c->done++;
        weir_worker_wake(&c->worker);
    }
    c->has_returned = true;
    weir_worker_unlock(&c->worker);
    return nullptr;
}

TEST(Worker, DoesWhatItIsWokenFor)
{
    counter c;
    weir_error error = {};
    ASSERT_EQ(weir_worker_open(&c.worker, count, &c, "counts", &error), WEIR_OK) << error.text;
    for (int i = 1; i <= 3; i++) {
        weir_worker_lock(&c.worker);
        c.wanted = i;
        weir_worker_wake(&c.worker);
        while (c.done < i) weir_worker_wait(&c.worker);
        weir_worker_unlock(&c.worker);
    }
    EXPECT_FALSE(c.has_returned);
    weir_worker_close(&c.worker);
    EXPECT_TRUE(c.has_returned);
    EXPECT_EQ(c.done, 3);
}

TEST(Worker, ClosesWhatWasNotOpenedOrIsClosed)
{
    counter c;
    weir_error error = {};
    weir_worker_close(&c.worker);
    ASSERT_EQ(weir_worker_open(&c.worker, count, &c, "counts", &error), WEIR_OK) << error.text;
    weir_worker_close(&c.worker);
    weir_worker_close(&c.worker);
    EXPECT_FALSE(c.worker.has_thread);
}

} // namespace
