// Pages of KV rows, filled as the ops find them, for the cases of all ops that look along a
// sequence.
#pragma once
#include "tests/kernel/cases_internal.h"

namespace weir_test {

struct Span { // one sequence in the batch
    int32_t n_rows, n_past;
};
using Spans = std::vector<Span>;

std::string text_of(const Spans &spans);
int64_t rows_of(const Spans &spans);

struct Kv {
    int64_t n_kv_heads, key_dim, value_dim;
    weir_kv_format k_format, v_format;
    weir_kv_sinks sinks = {};
};

std::string name_of(const Kv &kv);
Kv at(const Kv &kv, int64_t page); // as page number `page` has it
size_t bytes_of(const Kv &kv);

struct Page {
    void *coded, *open; // open: NULL when no part needs it
};

// A page with its first n_tokens rows filled and the rest zero, as the contract promises.
Page page_of(Builder &b, const Kv &kv, int64_t n_tokens, bool compared);

// What a call does with the rows of its batch: kv_write puts them into pages that are compared;
// kv_read finds full pages closed and not open; attention finds the rows of all pages that they lie
// in open too.
enum class Use { Write, Read, Attend };

// Pages for all heads of each span. Of long sequences only the first pages and the last are made,
// the others are copies.
weir_kv_segment *kv_segments(Builder &b, const Spans &spans, const Kv &kv, Use use);

// Every format on a width that it takes, K and V alike, and some mixed; rows that end within a
// page, at its end, and past it.
std::vector<Kv> coded_formats();
// The first pages in a format of their own: with unsealed pages and without, turbo's on either
// side, on both and on none.
std::vector<Kv> formats_with_sinks();
// Pages without a V part, whose values are the beginnings of their keys: every format of which they
// can be, also in the first pages alone.
std::vector<Kv> key_formats();

} // namespace weir_test
