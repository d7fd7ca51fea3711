#include "dataplane/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tidepool {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "file_test-XXXXXX");
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string Content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t NumFiles() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
};

TEST_F(FileTest, WritesAndReplacesWholeFiles) {
  const fs::path path = folder_ / "ready";
  const std::string large(1 << 20, 'x');
  for (const std::string& content :
       {large, std::string("a\0b\n", 4), std::string()}) {
    ASSERT_TRUE(WriteFileAtomically(path, content).ok());
    EXPECT_EQ(Content(path), content);
    EXPECT_EQ(NumFiles(), 1u);
  }
}

TEST_F(FileTest, TheFormerFileStaysOpenAsItWas) {
  const fs::path path = folder_ / "ready";
  ASSERT_TRUE(WriteFileAtomically(path, "former").ok());
  std::ifstream reader(path);
  ASSERT_TRUE(WriteFileAtomically(path, "new").ok());
  std::string seen;
  reader >> seen;
  EXPECT_EQ(seen, "former");
}

TEST_F(FileTest, NamesThePathAndLeavesNothingBehind) {
  const fs::path missing = folder_ / "no" / "ready";
  const Status status = WriteFileAtomically(missing, "a");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(MessageOf(status)), HasSubstr(missing.string()));

  const fs::path taken = folder_ / "folder";
  fs::create_directory(taken);
  EXPECT_FALSE(WriteFileAtomically(taken, "a").ok());
  EXPECT_EQ(NumFiles(), 1u);  // the folder
}

}  // namespace
}  // namespace tidepool
