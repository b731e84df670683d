// The writer of GGUF: what it writes is what the reader gets, and what GGUF cannot hold is refused.
#include "engine/formats/gguf_writer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {

struct WriterCloser {
    void operator()(weir_gguf_writer *writer) const { weir_gguf_writer_close(writer); }
};
using Writer = std::unique_ptr<weir_gguf_writer, WriterCloser>;
struct DirectoryCloser {
    void operator()(weir_tensor_directory *directory) const
    {
        weir_tensor_directory_close(directory);
    }
};
using Directory = std::unique_ptr<weir_tensor_directory, DirectoryCloser>;

class GgufWriter : public ::testing::Test {
  protected:
    void SetUp() override
    {
        folder_ = ::testing::TempDir() + "/" +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name();
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
        path_ = folder_ + "/file.gguf";
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    void tensor(const char *name, std::vector<int64_t> shape, weir_dtype dtype = WEIR_F32)
    {
        weir_tensor header = {};
        header.name = name;
        header.dtype = dtype;
        header.n_dims = static_cast<int32_t>(shape.size());
        for (size_t i = 0; i < shape.size() && i < WEIR_TENSOR_DIMS; i++)
            header.shape[i] = shape[i];
        weir_gguf_add_tensor(writer.get(), &header);
    }
    weir_status begin() { return weir_gguf_writer_begin(writer.get(), path_.c_str(), &error); }
    weir_status add(const void *bytes, size_t n)
    {
        return weir_gguf_writer_add(writer.get(), bytes, n, &error);
    }
    weir_status finish() { return weir_gguf_writer_finish(writer.get(), &error); }
    Directory read(const std::string &path)
    {
        weir_tensor_directory *out = nullptr;
        EXPECT_EQ(weir_tensor_directory_open(&out, path.c_str(), &error), WEIR_OK) << error.text;
        return Directory(out);
    }
    /* Files of the folder, temporary ones too. */
    size_t files() const
    {
        size_t n = 0;
        for (const auto &entry : std::filesystem::directory_iterator(folder_))
            n += entry.is_regular_file();
        return n;
    }

    std::string folder_, path_;
    Writer writer{ weir_gguf_writer_new() };
    weir_error error = {};
};

int64_t integer(const weir_tensor_directory *directory, const char *key)
{
    weir_meta meta;
    EXPECT_TRUE(weir_tensor_directory_meta(directory, key, &meta)) << key;
    EXPECT_EQ(meta.type, WEIR_META_INT);
    return meta.integer;
}

TEST_F(GgufWriter, AllThatIsWrittenIsRead)
{
    weir_gguf_writer *const w = writer.get();
    weir_gguf_put_text(w, "general.architecture", "toy", 3);
    weir_gguf_put_u32(w, "toy.largest", UINT32_MAX);
    weir_gguf_put_f32(w, "toy.number", -1.5f);
    weir_gguf_put_bool(w, "toy.flag", true);
    weir_gguf_put_text(w, "toy.text", "a\0b", 3);
    weir_gguf_begin_texts(w, "toy.texts", 2);
    weir_gguf_add_text(w, "", 0);
    weir_gguf_add_text(w, "two", 3);
    weir_gguf_begin_i32s(w, "toy.integers", 2);
    weir_gguf_add_i32(w, INT32_MIN);
    weir_gguf_add_i32(w, 7);
    weir_gguf_begin_f32s(w, "toy.floats", 1);
    weir_gguf_add_f32(w, 0.25f);
    weir_gguf_put_u8s(w, "toy.bytes", "\xFF\0\1", 3);
    weir_gguf_put_u8s(w, "toy.none", nullptr, 0);
    weir_gguf_begin_bools(w, "toy.bools", 2);
    weir_gguf_add_bool(w, false);
    weir_gguf_add_bool(w, true);
    tensor("vector", { 3 });
    tensor("cube", { 2, 3, 32 }, WEIR_Q8_0);
    ASSERT_EQ(begin(), WEIR_OK) << error.text;
    const float vector[] = { 1, 2, 3 };
    std::vector<unsigned char> cube(6 * 34);
    for (size_t i = 0; i < cube.size(); i++) cube[i] = static_cast<unsigned char>(i);
    ASSERT_EQ(add(vector, 5), WEIR_OK) << "in parts";
    ASSERT_EQ(add(reinterpret_cast<const char *>(vector) + 5, 7), WEIR_OK);
    ASSERT_EQ(add(cube.data(), cube.size()), WEIR_OK);
    EXPECT_FALSE(std::filesystem::exists(path_)) << "before it is complete";
    const uint64_t bytes = weir_gguf_writer_bytes(w);
    ASSERT_EQ(finish(), WEIR_OK) << error.text;
    EXPECT_EQ(std::filesystem::file_size(path_), bytes);
    EXPECT_EQ(files(), 1u);

    const Directory d = read(path_);
    ASSERT_TRUE(d);
    EXPECT_EQ(integer(d.get(), "toy.largest"), UINT32_MAX);
    weir_meta meta, element;
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.number", &meta));
    EXPECT_EQ(meta.number, -1.5);
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.flag", &meta));
    EXPECT_TRUE(meta.boolean);
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.text", &meta));
    EXPECT_EQ(std::string(meta.string, meta.length), std::string("a\0b", 3));
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.texts", &meta));
    ASSERT_TRUE(weir_meta_at(&meta, 1, &element));
    EXPECT_STREQ(element.string, "two");
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.integers", &meta));
    ASSERT_TRUE(weir_meta_at(&meta, 0, &element));
    EXPECT_EQ(element.integer, INT32_MIN);
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.floats", &meta));
    ASSERT_TRUE(weir_meta_at(&meta, 0, &element));
    EXPECT_EQ(element.number, 0.25);
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.bytes", &meta));
    ASSERT_EQ(meta.length, 3u);
    ASSERT_TRUE(weir_meta_at(&meta, 0, &element));
    EXPECT_EQ(element.integer, 255);
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.none", &meta));
    EXPECT_EQ(meta.length, 0u);
    ASSERT_TRUE(weir_tensor_directory_meta(d.get(), "toy.bools", &meta));
    ASSERT_TRUE(weir_meta_at(&meta, 1, &element));
    EXPECT_TRUE(element.boolean);
    const weir_tensor *const read_cube = weir_tensor_directory_find(d.get(), "cube");
    ASSERT_NE(read_cube, nullptr);
    EXPECT_EQ(read_cube->n_dims, 3);
    EXPECT_EQ(read_cube->shape[2], 32);
    EXPECT_EQ(read_cube->dtype, WEIR_Q8_0);
    ASSERT_EQ(read_cube->bytes, cube.size());
    EXPECT_EQ(memcmp(read_cube->data, cube.data(), cube.size()), 0);
    const weir_tensor *const read_vector = weir_tensor_directory_find(d.get(), "vector");
    ASSERT_NE(read_vector, nullptr);
    EXPECT_EQ(memcmp(read_vector->data, vector, sizeof vector), 0);
}

TEST_F(GgufWriter, ValuesOfAFileKeepTheirTypes)
{
    const std::string from = "tests/golden/models/tq/tq-f32.gguf";
    const Directory source = read(from);
    ASSERT_TRUE(source);
    const char *key;
    weir_meta value;
    for (size_t i = 0; weir_tensor_directory_meta_at(source.get(), i, &key, &value); i++)
        weir_gguf_put_meta(writer.get(), key, &value);
    tensor("x", { 1 });
    const float one = 1;
    ASSERT_EQ(begin(), WEIR_OK) << error.text;
    ASSERT_EQ(add(&one, sizeof one), WEIR_OK);
    ASSERT_EQ(finish(), WEIR_OK) << error.text;
    const Directory copy = read(path_);
    ASSERT_TRUE(copy);
    size_t n = 0;
    for (; weir_tensor_directory_meta_at(source.get(), n, &key, &value); n++) {
        weir_meta other;
        ASSERT_TRUE(weir_tensor_directory_meta(copy.get(), key, &other)) << key;
        EXPECT_EQ(other.type, value.type) << key;
        EXPECT_EQ(other.packed_type, value.packed_type) << key;
        EXPECT_EQ(other.length, value.length) << key;
        for (size_t i = 0; value.type == WEIR_META_ARRAY && i < value.length; i++) {
            weir_meta a, b;
            ASSERT_TRUE(weir_meta_at(&value, i, &a) && weir_meta_at(&other, i, &b));
            EXPECT_EQ(a.packed_type, b.packed_type) << key;
            if (a.type == WEIR_META_STRING)
                EXPECT_STREQ(a.string, b.string);
            else
                EXPECT_EQ(a.integer, b.integer);
        }
    }
    EXPECT_GT(n, 20u);
    EXPECT_FALSE(weir_tensor_directory_meta_at(copy.get(), n, &key, &value));
}

TEST_F(GgufWriter, KeysThatAreTwiceThere)
{
    weir_gguf_put_u32(writer.get(), "a.key", 1);
    weir_gguf_put_u32(writer.get(), "a.key", 2);
    ASSERT_EQ(begin(), WEIR_EINVAL);
    EXPECT_NE(std::string(error.text).find("a.key would be written twice"), std::string::npos)
        << error.text;
    EXPECT_EQ(files(), 0u);
}

TEST_F(GgufWriter, TensorsThatAreTwiceThere)
{
    tensor("x", { 1 });
    tensor("y", { 1 });
    tensor("x", { 2 });
    ASSERT_EQ(begin(), WEIR_EINVAL);
    EXPECT_NE(std::string(error.text).find("tensor x would be written twice"), std::string::npos);
}

TEST_F(GgufWriter, ArraysWithOtherElements)
{
    weir_gguf_begin_i32s(writer.get(), "k", 2);
    weir_gguf_add_i32(writer.get(), 1);
    ASSERT_EQ(begin(), WEIR_EINVAL) << "one is missing";
    writer.reset(weir_gguf_writer_new());
    weir_gguf_begin_i32s(writer.get(), "k", 1);
    weir_gguf_add_f32(writer.get(), 1.0f);
    ASSERT_EQ(begin(), WEIR_EINVAL) << "another type";
    writer.reset(weir_gguf_writer_new());
    weir_gguf_begin_i32s(writer.get(), "k", 1);
    weir_gguf_add_i32(writer.get(), 1);
    weir_gguf_add_i32(writer.get(), 1);
    ASSERT_EQ(begin(), WEIR_EINVAL) << "one too many";
}

TEST_F(GgufWriter, ShapesThatGgufCannotHave)
{
    const struct {
        std::vector<int64_t> shape;
        weir_dtype dtype;
    } bad[] = { { {}, WEIR_F32 },
                { { 0 }, WEIR_F32 },
                { { -1 }, WEIR_F32 },
                { { 1, 1, 1, 1, 1 }, WEIR_F32 },
                { { 4, 33 }, WEIR_Q8_0 },
                { { INT64_MAX, 2 }, WEIR_F32 },
                { { 1ll << 62 }, WEIR_F32 },
                { { 3 }, WEIR_BOOL } };
    for (const auto &b : bad) {
        writer.reset(weir_gguf_writer_new());
        tensor("x", b.shape, b.dtype);
        EXPECT_EQ(begin(), WEIR_EINVAL) << b.shape.size();
        EXPECT_EQ(files(), 0u);
    }
    writer.reset(weir_gguf_writer_new());
    tensor("", { 1 });
    EXPECT_EQ(begin(), WEIR_EINVAL) << "no name";
}

TEST_F(GgufWriter, DataThatIsMissing)
{
    tensor("x", { 4 });
    const float x[4] = {};
    ASSERT_EQ(begin(), WEIR_OK);
    ASSERT_EQ(add(x, 12), WEIR_OK);
    ASSERT_EQ(finish(), WEIR_EINVAL);
    EXPECT_NE(std::string(error.text).find("tensor x is not complete"), std::string::npos);
    writer.reset();
    EXPECT_EQ(files(), 0u) << "a file that was not finished is dropped";
}

TEST_F(GgufWriter, TheOldFileStaysUntilTheNewOneIsComplete)
{
    FILE *const old = fopen(path_.c_str(), "w");
    ASSERT_NE(old, nullptr);
    fputs("old", old);
    fclose(old);
    tensor("x", { 1 });
    const float x = 1;
    ASSERT_EQ(begin(), WEIR_OK);
    EXPECT_EQ(std::filesystem::file_size(path_), 3u);
    ASSERT_EQ(add(&x, sizeof x), WEIR_OK);
    ASSERT_EQ(finish(), WEIR_OK);
    EXPECT_GT(std::filesystem::file_size(path_), 3u);
    struct stat st;
    const mode_t mask = umask(0);
    (void)umask(mask);
    ASSERT_EQ(stat(path_.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0666 & ~mask) << "a model is no private file";
}

TEST_F(GgufWriter, NoSuchFolder)
{
    tensor("x", { 1 });
    path_ = folder_ + "/none/file.gguf";
    EXPECT_EQ(begin(), WEIR_EIO);
    EXPECT_NE(std::string(error.text).find("none/file.gguf"), std::string::npos) << error.text;
}

} // namespace
