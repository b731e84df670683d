#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/checked.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/log.h"

/* What is brought to the disk while `watched` names a file, and whether that file is there then. */
struct Sync {
    bool is_folder, is_in_place;
    off_t size;
    ino_t inode;
};
static std::string watched;
static std::vector<Sync> synced;

extern "C" int fsync(int fd)
{
    struct stat st = {};
    if (!watched.empty() && fstat(fd, &st) == 0)
        synced.push_back({ S_ISDIR(st.st_mode), access(watched.c_str(), F_OK) == 0, st.st_size,
                           st.st_ino });
    return static_cast<int>(syscall(SYS_fsync, fd));
}

/* A file that is deleted before it is locked, once. */
static std::string taken;

extern "C" int flock(int fd, int how)
{
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (!taken.empty() && readlink(link, path, sizeof path - 1) > 0 &&
        std::string(path).find(taken) == 0) {
        taken.clear();
        (void)unlink(path);
    }
    return static_cast<int>(syscall(SYS_flock, fd, how));
}

TEST(Error, PrefixKeepsTheFacts)
{
    weir_error error = {};
    EXPECT_EQ(weir_error_set(&error, WEIR_EFORMAT, "tensor %s is bad", "a.b"), WEIR_EFORMAT);
    EXPECT_EQ(weir_error_prefix(&error, error.code, "%s", "model.gguf"), WEIR_EFORMAT);
    EXPECT_STREQ(error.text, "model.gguf: tensor a.b is bad");
}

TEST(Error, LongTextIsCut)
{
    weir_error error = {};
    const std::string text(5000, 'x');
    EXPECT_EQ(weir_error_set(&error, WEIR_EIO, "%s", text.c_str()), WEIR_EIO);
    EXPECT_EQ(std::string(error.text).size(), sizeof error.text - 1);
}

TEST(Checked, OverflowIsSeen)
{
    size_t out = 0;
    EXPECT_FALSE(weir_mul_size(&out, SIZE_MAX / 2, 3));
    EXPECT_FALSE(weir_add_size(&out, SIZE_MAX, 1));
    EXPECT_TRUE(weir_align_size(&out, 65, 64));
    EXPECT_EQ(out, 128u);
    EXPECT_FALSE(weir_align_size(&out, SIZE_MAX - 3, 64));
}

TEST(Buffer, GrowsAndStaysTerminated)
{
    weir_buffer buffer = {};
    for (int i = 0; i < 1000; i++) ASSERT_EQ(weir_buffer_format(&buffer, "%d,", i % 10), WEIR_OK);
    EXPECT_EQ(buffer.size, 2000u);
    EXPECT_EQ(buffer.data[buffer.size], '\0');
    weir_buffer_clear(&buffer);
    ASSERT_EQ(weir_buffer_add(&buffer, "a\0b", 3), WEIR_OK);
    EXPECT_EQ(std::string(buffer.data, buffer.size), std::string("a\0b", 3));
    EXPECT_EQ(weir_buffer_reserve(&buffer, SIZE_MAX - 2), WEIR_ENOMEM);
    weir_buffer_free(&buffer);
}

/* A rename over /dev/null would take it from the whole machine. */
TEST(File, DevicesAndPipesAreWrittenToAndStay)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/pipe";
    weir_error error = {};
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const int fd = open(path.c_str(), O_RDWR); /* both ends, so that open does not block */
    ASSERT_GE(fd, 0);
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), "hello", 5, &error), WEIR_OK) << error.text;
    char text[8] = {};
    EXPECT_EQ(read(fd, text, sizeof text), 5);
    EXPECT_STREQ(text, "hello");
    struct stat st;
    ASSERT_EQ(stat(path.c_str(), &st), 0);
    EXPECT_TRUE(S_ISFIFO(st.st_mode));
    close(fd);
    EXPECT_EQ(weir_file_write_atomic(getenv("TEST_TMPDIR"), "x", 1, &error), WEIR_EIO);
}

TEST(File, AtomicWriteAndReadBack)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/f";
    weir_error error = {};
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), "hello", 5, &error), WEIR_OK) << error.text;
    weir_buffer text = {};
    ASSERT_EQ(weir_file_read(&text, path.c_str(), 5, &error), WEIR_OK) << error.text;
    EXPECT_STREQ(text.data, "hello");
    EXPECT_EQ(weir_file_read(&text, path.c_str(), 4, &error), WEIR_EFORMAT);
    weir_buffer_free(&text);
    const std::string absent = std::string(getenv("TEST_TMPDIR")) + "/absent/f";
    EXPECT_EQ(weir_file_write_atomic(absent.c_str(), "x", 1, &error), WEIR_EIO);
    EXPECT_NE(std::string(error.text).find(absent), std::string::npos);
}

/* The bytes are on the disk before the name is, and the name before the call returns. */
TEST(File, AtomicWriteSyncsTheFileAndThenItsFolder)
{
    const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/synced", path = folder + "/f";
    ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
    struct stat st;
    ASSERT_EQ(stat(folder.c_str(), &st), 0);
    weir_error error = {};
    synced = {};
    watched = path;
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), "hello", 5, &error), WEIR_OK) << error.text;
    watched.clear();
    ASSERT_EQ(synced.size(), 2u);
    EXPECT_FALSE(synced[0].is_folder);
    EXPECT_EQ(synced[0].size, 5);
    EXPECT_FALSE(synced[0].is_in_place) << "it was renamed before its bytes were safe";
    EXPECT_TRUE(synced[1].is_folder);
    EXPECT_EQ(synced[1].inode, st.st_ino) << "another folder";
    EXPECT_TRUE(synced[1].is_in_place);
}

void write_to(const weir_new_file &file, const std::string &text)
{
    ASSERT_EQ(write(file.fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string bytes_of(const std::string &path)
{
    weir_error error = {};
    weir_buffer text = {};
    EXPECT_EQ(weir_file_read(&text, path.c_str(), 100, &error), WEIR_OK) << error.text;
    const std::string out(text.data != nullptr ? text.data : "", text.size);
    weir_buffer_free(&text);
    return out;
}

/* Also of processes with one id, as in two containers: each has a temporary file of its own. */
TEST(File, WritersOfOneFileDoNotMix)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/shared";
    weir_error error = {};
    weir_new_file one, other;
    ASSERT_EQ(weir_new_file_open(&one, path.c_str(), 0, &error), WEIR_OK) << error.text;
    write_to(one, "first");
    ASSERT_EQ(weir_new_file_open(&other, path.c_str(), 0, &error), WEIR_OK) << error.text;
    EXPECT_STRNE(one.temporary, other.temporary);
    write_to(other, "the second");
    ASSERT_EQ(weir_new_file_keep(&one, &error), WEIR_OK) << error.text;
    EXPECT_EQ(bytes_of(path), "first");
    ASSERT_EQ(weir_new_file_keep(&other, &error), WEIR_OK) << error.text;
    EXPECT_EQ(bytes_of(path), "the second");
}

TEST(File, ATemporaryFileIsDroppedOnceItsWriterHasEnded)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/torn";
    weir_error error = {};
    weir_new_file file;
    ASSERT_EQ(weir_new_file_open(&file, path.c_str(), 0, &error), WEIR_OK) << error.text;
    const std::string temporary = file.temporary;
    write_to(file, "x");
    EXPECT_FALSE(weir_file_drop_torn(temporary.c_str()));
    EXPECT_EQ(access(temporary.c_str(), F_OK), 0);
    close(file.fd); /* as when its process is killed */
    file.fd = -1;
    EXPECT_TRUE(weir_file_drop_torn(temporary.c_str()));
    EXPECT_NE(access(temporary.c_str(), F_OK), 0);
    EXPECT_FALSE(weir_file_drop_torn(temporary.c_str()));
    weir_new_file_drop(&file);
}

/* A clean-up that comes between creating and locking takes the file: another one is made. */
TEST(File, ACleanUpDoesNotTakeANewFile)
{
    const std::string path = std::string(getenv("TEST_TMPDIR")) + "/cleaned";
    weir_error error = {};
    taken = path;
    ASSERT_EQ(weir_file_write_atomic(path.c_str(), "hello", 5, &error), WEIR_OK) << error.text;
    EXPECT_TRUE(taken.empty());
    EXPECT_EQ(bytes_of(path), "hello");
}

TEST(File, MapRefusesFoldersAndMissingFiles)
{
    weir_map map;
    weir_error error = {};
    EXPECT_EQ(weir_map_open(&map, "/tmp", &error), WEIR_EIO);
    const std::string absent = std::string(getenv("TEST_TMPDIR")) + "/absent";
    EXPECT_EQ(weir_map_open(&map, absent.c_str(), &error), WEIR_ENOTFOUND);
}

void note_line(void *user, const char *level, const char *text)
{
    *static_cast<std::string *>(user) += std::string(level) + "|" + text;
}

TEST(Log, AFunctionGetsTheLines)
{
    std::string lines;
    testing::internal::CaptureStderr();
    weir_log_set_function(note_line, &lines);
    weir_log(WEIR_LOG_WARNING, "%d of %s", 3, "it");
    weir_log(WEIR_LOG_DEBUG, "below the level");
    weir_log_set_function(nullptr, nullptr);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(lines, "warning|3 of it");
    testing::internal::CaptureStderr();
    weir_log(WEIR_LOG_ERROR, "again");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "weir: error: again\n");
}

TEST(Log, LevelsHaveNames)
{
    testing::internal::CaptureStderr();
    EXPECT_FALSE(weir_log_set_level_name("loud"));
    EXPECT_TRUE(weir_log_set_level_name("error"));
    weir_log(WEIR_LOG_WARNING, "below the level");
    EXPECT_TRUE(weir_log_set_level_name("info"));
    weir_log(WEIR_LOG_INFO, "said");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "weir: info: said\n");
}

TEST(Log, ACauseIsNewOnce)
{
    weir_log_causes causes = {};
    EXPECT_TRUE(
        weir_log_is_new(&causes, "a/1.session: cannot write 100 bytes: No space left on device")
    );
    EXPECT_FALSE(
        weir_log_is_new(&causes, "b/2.session: cannot write 7 bytes: No space left on device")
    );
    EXPECT_TRUE(weir_log_is_new(&causes, "no room for 700 tokens"));
    EXPECT_FALSE(weir_log_is_new(&causes, "no room for 20 tokens, or 5"));
    causes = {};
    EXPECT_TRUE(weir_log_is_new(&causes, "no room for 20 tokens")) << "it worked meanwhile";
    for (int i = 0; i < 100; i++)
        EXPECT_TRUE(weir_log_is_new(&causes, std::string(static_cast<size_t>(i), 'x').c_str()))
            << "more than are held";
    EXPECT_FALSE(weir_log_is_new(&causes, std::string(99, 'x').c_str()));
    EXPECT_FALSE(weir_log_is_new(&causes, std::string(92, 'x').c_str()));
}
