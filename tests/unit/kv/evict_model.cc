#include "tests/unit/kv/evict_model.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "kernels/abi/ops.h"
#include "kernels/ref/kv_codec.h"
#include "tests/normal.h"

namespace evict {

/* ---- the arithmetic of one row, from the reference codecs ------------------------------------ */
static weir_kv_part part_of(
    weir_kv_format format, weir_kv_side side, std::vector<char> *coded, std::vector<char> *unsealed
)
{
    const int64_t dim = side == WEIR_KV_K ? key_dim : value_dim;
    coded->resize((size_t)weir_kv_part_bytes(format, side, dim));
    unsealed->resize((size_t)weir_kv_part_bytes(WEIR_KV_F16, side, dim));
    return { format, side, dim, coded->data(), unsealed->data() };
}

/* The bytes of one row of a part, K's columns gathered. */
static void add_bytes(
    std::vector<char> *out, const char *part, weir_kv_format format, weir_kv_side side,
    int64_t token
)
{
    const int64_t dim = side == WEIR_KV_K ? key_dim : value_dim, tile = token / WEIR_TILE_TOKENS,
                  lane = token % WEIR_TILE_TOKENS;
    const weir_kv_layout at = weir_kv_layout_of(format, side, dim);
    const auto add = [&](int64_t from, int64_t n) {
        out->insert(out->end(), part + from, part + from + n);
    };
    if (side == WEIR_KV_V) {
        add(at.codes + token * at.codes_step, at.codes_step);
        add(at.scales + token * at.scales_step, at.scales_step);
        return;
    }
    const weir_kv_scheme scheme = weir_kv_scheme_of(format);
    const bool plain = scheme == WEIR_KV_PLAIN;
    const int64_t n_codes = plain ? dim : weir_kv_words(weir_kv_bits(format), dim),
                  code = plain ? weir_kv_bits(format) / 8 : 4;
    const int64_t n_scales = plain                     ? 0
                             : scheme == WEIR_KV_BLOCK ? dim / 32
                                                       : 1,
                  scale = scheme == WEIR_KV_FLOAT8 ? 4 : 2;
    for (int64_t i = 0; i < n_codes; i++)
        add(at.codes + tile * at.codes_step + (i * WEIR_TILE_TOKENS + lane) * code, code);
    for (int64_t i = 0; i < n_scales; i++)
        add(at.scales + tile * at.scales_step + (i * WEIR_TILE_TOKENS + lane) * scale, scale);
}

static void add_row_bytes(
    std::vector<char> *out, const char *page, weir_kv_pair pair, int64_t token
)
{
    if (!weir_kv_seals_pages(pair.k)) add_bytes(out, page, pair.k, WEIR_KV_K, token);
    if (!weir_kv_seals_pages(pair.v))
        add_bytes(out, page + weir_kv_v_part(pair.k, key_dim), pair.v, WEIR_KV_V, token);
}

/* What is read of a value as long as its page is not full. */
static void code_side(
    std::vector<float> *x, std::vector<char> *bytes, weir_kv_format format, weir_kv_side side
)
{
    static std::vector<char> coded, unsealed;
    const bool seals = weir_kv_seals_pages(format);
    const weir_kv_part part = part_of(seals ? WEIR_KV_F16 : format, side, &coded, &unsealed);
    weir_kv_encode_rows(&part, 0, 1, x->data(), 0);
    weir_kv_decode_rows(&part, 0, 1, x->data(), 0, false);
    if (!seals) add_bytes(bytes, coded.data(), format, side, 0);
}

static void close_side(Rows *rows, weir_kv_format format, weir_kv_side side)
{
    if (!weir_kv_seals_pages(format)) return;
    std::vector<char> coded, unsealed;
    const weir_kv_part part = part_of(format, side, &coded, &unsealed);
    const size_t first = rows->size() - WEIR_PAGE_TOKENS;
    const auto value = [&](size_t i) {
        return (side == WEIR_KV_K ? (*rows)[first + i].k : (*rows)[first + i].v).data();
    };
    for (size_t i = 0; i < WEIR_PAGE_TOKENS; i++)
        weir_kv_encode_rows(&part, (int64_t)i, 1, value(i), 0);
    for (size_t i = 0; i < WEIR_PAGE_TOKENS; i++)
        weir_kv_decode_rows(&part, (int64_t)i, 1, value(i), 0, false);
}

static Row coded(Row row, weir_kv_pair pair)
{
    row.bytes.clear();
    code_side(&row.k, &row.bytes, pair.k, WEIR_KV_K);
    code_side(&row.v, &row.bytes, pair.v, WEIR_KV_V);
    return row;
}

void Evict::push(Rows *rows, int64_t head, const Row &row) const
{
    const weir_kv_pair pair = pair_at(head, (int64_t)rows->size() / WEIR_PAGE_TOKENS);
    rows->push_back(coded(row, pair));
    if (rows->size() % WEIR_PAGE_TOKENS != 0) return;
    close_side(rows, pair.k, WEIR_KV_K);
    close_side(rows, pair.v, WEIR_KV_V);
}

/* ---- opening --------------------------------------------------------------------------------- */
void Evict::open(const Options &options)
{
    const size_t caps[WEIR_TIER_COUNT] = {};
    formats_ = options.formats;
    const int64_t n_layers = (int64_t)formats_.size(), heads = n_layers * kv_heads;
    folder_ = ::testing::TempDir() + "/evict." + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    spec_.n_layers = n_layers;
    geometry_.assign(formats_.size(), { kv_heads, key_dim, value_dim, 0, 0, false });
    weir_kv_number_heads(geometry_.data(), n_layers);
    spec_.geometry = geometry_.data();
    spec_.formats = formats_.data();
    spec_.pages.n = (options.n_blocks + options.n_sink_blocks + options.n_disk_blocks) * heads;
    spec_.max_rows = options.max_rows;
    spec_.pages.n_disk = options.n_disk_blocks * heads;
    spec_.disk_folder = folder_.c_str();
    spec_.sinks = options.sinks;
    spec_.pages.n_sinks = options.n_sink_blocks * heads;
    spec_.evicts = true;
    ASSERT_EQ(weir_ledger_open(&ledger_, caps), WEIR_OK);
    ASSERT_EQ(weir_kv_store_open(&store_, &spec_, ledger_, &error_), WEIR_OK) << error_.text;
    weir_stream_options how = {};
    how.n_threads = 1;
    ASSERT_EQ(weir_stream_open(&stream_, &how, &error_), WEIR_OK) << error_.text;
    const size_t before = weir_ledger_total(ledger_, WEIR_TIER_HOST);
    ASSERT_EQ(weir_kv_evictor_open(&evictor_, store_, stream_, ledger_, &error_), WEIR_OK)
        << error_.text;
    EXPECT_EQ(
        weir_ledger_total(ledger_, WEIR_TIER_HOST) - before,
        weir_kv_evictor_bytes(&spec_) + weir_kv_evictor_near_bytes(&spec_)
    );
}

void Evict::TearDown()
{
    weir_kv_evictor_close(evictor_);
    weir_stream_close(stream_);
    if (store_ != nullptr)
        EXPECT_EQ(weir_kv_store_free_pages(store_), spec_.pages.n) << "pages are lost";
    if (store_ != nullptr) EXPECT_FALSE(weir_kv_store_has_pruned(store_));
    weir_kv_store_close(store_);
    EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), 0u);
    weir_ledger_close(ledger_);
    std::filesystem::remove_all(folder_);
}

Sequence Evict::sequence()
{
    Sequence t;
    EXPECT_EQ(weir_kv_table_open(&t.table, store_, &error_), WEIR_OK) << error_.text;
    t.heads.resize((size_t)heads());
    return t;
}

void Evict::close(Sequence *t)
{
    weir_kv_table_close(&t->table, store_);
    t->heads.clear();
}

/* ---- growing --------------------------------------------------------------------------------- */
/* n rows, all in one page. */
void Evict::write(Sequence *t, int64_t head, int64_t n)
{
    weir_test::Normal value;
    Rows *const rows = &t->heads[(size_t)head];
    const int64_t slot = (int64_t)rows->size(), page = slot / WEIR_PAGE_TOKENS;
    std::vector<float> k((size_t)(n * key_dim)), v((size_t)(n * value_dim));
    for (float &x : k) x = value(random_);
    for (float &x : v) x = value(random_);
    const weir_kv_pair pair = pair_at(head, page);
    void *const at = t->table.pages[head * t->table.capacity + page];
    void *const unsealed = t->table.unsealed != nullptr ? t->table.unsealed[head] : nullptr;
    weir_kv_segment segment = {};
    segment.pages = &at;
    segment.page_stride = segment.unsealed_stride = 1;
    segment.n_rows = (int32_t)n;
    segment.n_past = (int32_t)(slot % WEIR_PAGE_TOKENS);
    segment.unsealed_pages = unsealed != nullptr ? &unsealed : nullptr;
    weir_kv_write_args args = {};
    args.k = k.data();
    args.v = v.data();
    args.segments = &segment;
    args.n_segments = args.n_kv_heads = 1;
    args.key_dim = args.k_stride = key_dim;
    args.value_dim = args.v_stride = value_dim;
    args.k_format = pair.k;
    args.v_format = pair.v;
    ASSERT_EQ(weir_kv_write(stream_, &args), WEIR_OK);
    for (int64_t i = 0; i < n; i++)
        push(
            rows, head,
            { { k.begin() + i * key_dim, k.begin() + (i + 1) * key_dim },
              { v.begin() + i * value_dim, v.begin() + (i + 1) * value_dim },
              {} }
        );
}

bool Evict::append(Sequence *t, int64_t n)
{
    if (t->table.n_rows + n > spec_.max_rows || weir_kv_reserve(&t->table, store_, n) != WEIR_OK)
        return false;
    for (int64_t h = 0; h < heads(); h++)
        for (int64_t left = n; left > 0;) {
            const int64_t here = std::min<int64_t>(
                left, WEIR_PAGE_TOKENS - (int64_t)t->heads[(size_t)h].size() % WEIR_PAGE_TOKENS
            );
            write(t, h, here);
            left -= here;
        }
    weir_kv_commit(&t->table, n);
    return true;
}

bool Evict::fill(Sequence *t, int64_t n)
{
    if (t->table.n_rows + n > spec_.max_rows || weir_kv_reserve(&t->table, store_, n) != WEIR_OK)
        return false;
    weir_kv_commit(&t->table, n);
    for (Rows &rows : t->heads) rows.resize(rows.size() + (size_t)n);
    return true;
}

/* ---- evicting -------------------------------------------------------------------------------- */
Lists Evict::random_lists(const Sequence &t, const std::vector<int32_t> &layers)
{
    Lists lists((size_t)heads());
    for (const int32_t layer : layers)
        for (int32_t h = layer * kv_heads; h < (layer + 1) * kv_heads; h++) {
            const int32_t n = (int32_t)t.heads[(size_t)h].size();
            const auto below = [&](int32_t end) {
                return (int32_t)(random_() % (uint32_t)(end > 0 ? end : 1));
            };
            const int32_t held = std::min<int32_t>((int32_t)n_rotated_, n),
                          pinned = std::max(below(2) ? below(n + 1) : 0, held),
                          end = std::max(below(3) ? n : below(n + 1), held);
            const int32_t percent = below(8) == 0 ? 100 : below(8) == 0 ? 0 : 10 + below(90);
            for (int32_t i = 0; i < end; i++)
                if (i < pinned || below(100) < percent) lists[(size_t)h].push_back(i);
        }
    return lists;
}

Keep Evict::keep_of(const std::vector<int32_t> &layers, const Lists &lists) const
{
    Keep all;
    const int64_t stride = spec_.max_rows;
    all.layers = layers;
    all.slots.assign(layers.size() * kv_heads * (size_t)stride, -1);
    for (size_t i = 0; i < layers.size() * kv_heads; i++) {
        const std::vector<int32_t> &list =
            lists[(size_t)layers[i / kv_heads] * kv_heads + i % kv_heads];
        std::copy(list.begin(), list.end(), all.slots.begin() + (int64_t)i * stride);
        all.counts.push_back((int64_t)list.size());
    }
    all.keep = { all.layers.data(),
                 (int64_t)layers.size(),
                 all.slots.data(),
                 stride,
                 all.counts.data(),
                 n_rotated_,
                 rotate,
                 nullptr };
    return all;
}

std::vector<float> Evict::rotated_key(int64_t head, int64_t row, int64_t n_keep)
{
    std::vector<float> key(key_dim);
    for (int64_t d = 0; d < key_dim; d++)
        key[(size_t)d] =
            std::sin((float)((head * 13 + row) * key_dim + d)) * (1 + (float)(n_keep % 7));
    return key;
}

void Evict::rotate(void *, const weir_policy_tile *tile, int64_t n_keep)
{
    for (int64_t i = 0; i < tile->n; i++) {
        const std::vector<float> key =
            rotated_key(tile->layer * kv_heads + tile->head, tile->first + i, n_keep);
        std::copy(key.begin(), key.end(), tile->keys + i * key_dim);
    }
}

/* Its key is coded again, its value is as it was. */
Row Evict::rotated(const Row &row, int64_t head, int64_t i, int64_t n_keep) const
{
    Row out = row;
    std::vector<char> bytes;
    out.k = rotated_key(head, i, n_keep);
    if (is_whole(head)) return out; /* and coded with its page */
    code_side(&out.k, &bytes, pair_at(head, i / WEIR_PAGE_TOKENS).k, WEIR_KV_K);
    std::copy(bytes.begin(), bytes.end(), out.bytes.begin());
    return out;
}

void Evict::keep_rows(Sequence *t, const std::vector<int32_t> &layers, const Lists &lists) const
{
    const size_t sinks = (size_t)spec_.sinks.n_pages * WEIR_PAGE_TOKENS;
    for (const int32_t layer : layers)
        for (int64_t h = layer * kv_heads; h < (layer + 1) * kv_heads; h++) {
            const std::vector<int32_t> &list = lists[(size_t)h];
            Rows old = t->heads[(size_t)h];
            Rows &rows = t->heads[(size_t)h];
            size_t first = 0;
            if (list.size() == old.size()) continue;
            while (first < list.size() && list[first] == (int32_t)first) first++;
            for (int64_t i = 0; i < n_rotated_; i++)
                old[(size_t)i] = rotated(old[(size_t)i], h, i, (int64_t)list.size());
            if (is_whole(h)) first -= first % WEIR_PAGE_TOKENS;
            if (n_rotated_ > 0) first = 0;
            rows.resize(first);
            for (size_t i = first; i < list.size(); i++) {
                const Row &row = old[(size_t)list[i]];
                if (is_whole(h))
                    push(&rows, h, row);
                else
                    rows.push_back(
                        i < sinks && (size_t)list[i] >= sinks ? coded(row, spec_.sinks.pair) : row
                    );
            }
        }
}

void Evict::evict(Sequence *t, const std::vector<int32_t> &layers, const Lists &lists)
{
    const Keep keep = keep_of(layers, lists);
    const size_t before = weir_ledger_total(ledger_, WEIR_TIER_HOST);
    int64_t n = 0;
    for (const int32_t layer : layers)
        for (int64_t h = layer * kv_heads; h < (layer + 1) * kv_heads; h++)
            n += (int64_t)t->heads[(size_t)h].size() - (int64_t)lists[(size_t)h].size();
    const bool was_pruned = t->table.is_pruned;
    ASSERT_EQ(weir_kv_evict(evictor_, &t->table, &keep.keep, &error_), WEIR_OK) << error_.text;
    EXPECT_EQ(t->table.is_pruned, was_pruned || n > 0);
    EXPECT_EQ(weir_ledger_total(ledger_, WEIR_TIER_HOST), before) << "something was allocated";
    keep_rows(t, layers, lists);
}

/* ---- looking --------------------------------------------------------------------------------- */
/* Products with the keys as they lie are those with the keys as they are read. */
void Evict::expect_products(const Sequence &t, int64_t head)
{
    const Rows &rows = t.heads[(size_t)head];
    const int64_t n = (int64_t)rows.size(), n_vectors = 3,
                  first = n > 1 ? (int64_t)(random_() % (uint64_t)n) : 0;
    if (n == 0) return;
    const int64_t count = 1 + (int64_t)(random_() % (uint64_t)(n - first)), stride = count + 2;
    std::vector<float> vectors(n_vectors * key_dim), lengths(n_vectors * key_dim / 2),
        out((size_t)(n_vectors * stride));
    for (float &x : vectors) x = (float)(random_() % 2001) / 1000.0f - 1.0f;
    for (float &x : lengths) x = (float)(random_() % 2001) / 1000.0f - 1.0f;
    for (const bool with_lengths : { false, true }) {
        const weir_rope_pairs pairs = { with_lengths ? key_dim / 2 : 0, head % 2 != 0 };
        const weir_policy_products p = { head / kv_heads, head % kv_heads,
                                         first,           count,
                                         n_vectors,       stride,
                                         vectors.data(),  with_lengths ? lengths.data() : nullptr,
                                         out.data() };
        const weir_status status = weir_kv_multiply_rows(evictor_, &t.table, &p, pairs, &error_);
        if (with_lengths && status == WEIR_EUNSUPPORTED) continue; /* turbo */
        ASSERT_EQ(status, WEIR_OK) << error_.text;
        for (int64_t v = 0; v < n_vectors; v++)
            for (int64_t i = 0; i < count; i++) {
                const float *const key = rows[(size_t)(first + i)].k.data();
                double want = 0;
                for (int64_t d = 0; d < key_dim; d++)
                    want += (double)vectors[(size_t)(v * key_dim + d)] * (double)key[d];
                for (int64_t f = 0; f < pairs.n; f++)
                    want += (double)lengths[(size_t)(v * pairs.n + f)] *
                            std::hypot(
                                (double)key[pairs.is_interleaved ? 2 * f : f],
                                (double)key[pairs.is_interleaved ? 2 * f + 1 : f + pairs.n]
                            );
                ASSERT_NEAR(out[(size_t)(v * stride + i)], want, 2e-3)
                    << "row " << first + i << " of " << n << " of head " << head;
            }
    }
}

void Evict::expect_rows(const Sequence &t)
{
    std::vector<float> k(WEIR_POLICY_TILE * key_dim), v(WEIR_POLICY_TILE * value_dim);
    for (int64_t h = 0; h < heads(); h++) {
        const Rows &rows = t.heads[(size_t)h];
        const int64_t n = (int64_t)rows.size();
        ASSERT_EQ(weir_kv_rows_at(&t.table, h), n) << "head " << h;
        expect_products(t, h);
        for (int64_t first = 0; first < n;) { /* tiles of any length from any place */
            const int64_t count =
                std::min<int64_t>(n - first, 1 + (int64_t)(random_() % WEIR_POLICY_TILE));
            const weir_policy_tile tile = { h / kv_heads, h % kv_heads, first,
                                            count,        k.data(),     v.data() };
            ASSERT_EQ(weir_kv_read_rows(evictor_, &t.table, &tile, &error_), WEIR_OK)
                << error_.text;
            for (int64_t i = 0; i < count; i++) {
                const Row &row = rows[(size_t)(first + i)];
                const int64_t page = (first + i) / WEIR_PAGE_TOKENS;
                ASSERT_EQ(memcmp(&k[(size_t)i * key_dim], row.k.data(), key_dim * sizeof(float)), 0)
                    << "key " << first + i << " of " << n << " of head " << h;
                ASSERT_EQ(
                    memcmp(&v[(size_t)i * value_dim], row.v.data(), value_dim * sizeof(float)), 0
                ) << "value "
                  << first + i << " of " << n << " of head " << h;
                void *const own = t.table.pages[h * t.table.capacity + page];
                if (weir_kv_is_cold(store_, own)) continue;
                std::vector<char> bytes;
                add_row_bytes(
                    &bytes, (const char *)own, pair_at(h, page), (first + i) % WEIR_PAGE_TOKENS
                );
                ASSERT_EQ(bytes, row.bytes) << "row " << first + i << " of head " << h;
            }
            first += count;
        }
    }
}

void Evict::expect_sound(const std::vector<const Sequence *> &sequences)
{
    std::set<void *> held;
    ASSERT_TRUE(weir_kv_store_is_sound(store_, &error_)) << error_.text;
    for (const Sequence *t : sequences) {
        ASSERT_TRUE(weir_kv_table_is_sound(store_, &t->table, &error_)) << error_.text;
        size_t room = 0;
        for (int64_t h = 0; h < heads(); h++)
            for (int64_t p = 0; p < t->table.capacity; p++) {
                void *const page = t->table.pages[h * t->table.capacity + p];
                const bool has = p * WEIR_PAGE_TOKENS < (int64_t)t->heads[(size_t)h].size();
                ASSERT_EQ(page != nullptr, has) << "head " << h << " page " << p;
                if (!has) continue;
                held.insert(page);
                room += p < spec_.sinks.n_pages ? weir_kv_sink_page_stride(&spec_)
                                                : weir_kv_page_stride(&spec_, h / kv_heads);
            }
        ASSERT_EQ(weir_kv_table_held_bytes(&t->table, store_), room);
    }
    ASSERT_EQ(weir_kv_store_free_pages(store_), spec_.pages.n - (int64_t)held.size());
}

std::string Evict::picture(const Sequence &t)
{
    std::string out;
    const auto add = [&](const void *bytes, size_t n) { out.append((const char *)bytes, n); };
    for (int64_t h = 0; h < heads(); h++) {
        const int64_t rows = weir_kv_rows_at(&t.table, h);
        add(&rows, sizeof rows);
        for (int64_t p = 0; p < t.table.capacity; p++) {
            void *const page = t.table.pages[h * t.table.capacity + p];
            add(&page, sizeof page);
            if (page != nullptr && !weir_kv_is_cold(store_, page))
                add(page, weir_kv_page_bytes_at(&spec_, h / kv_heads, p));
        }
    }
    if (t.table.unsealed_memory != nullptr)
        add(t.table.unsealed_memory, weir_kv_unsealed_rows_bytes(&spec_));
    add(&t.table.n_pages, sizeof t.table.n_pages);
    add(&t.table.n_rows, sizeof t.table.n_rows);
    add(&t.table.is_pruned, sizeof t.table.is_pruned);
    return out;
}

} // namespace evict
