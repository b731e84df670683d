/* A page pool and tables of it; the tests that derive from it open and close the pool. */
#pragma once
#include <gtest/gtest.h>

#include "engine/kv/pool/store.h"
#include "offload/ledger.h"

class StoreFixture : public ::testing::Test {
  protected:
    weir_status reserve_to(weir_kv_table &t, int64_t rows)
    {
        return weir_kv_reserve(&t, store_, rows - t.n_rows);
    }
    static void commit_to(weir_kv_table &t, int64_t rows) { weir_kv_commit(&t, rows - t.n_rows); }
    weir_kv_table table()
    {
        weir_kv_table t = {};
        EXPECT_EQ(weir_kv_table_open(&t, store_, &error_), WEIR_OK);
        return t;
    }

    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_kv_spec spec_ = {};
    weir_error error_ = {};
};
