// SPDX-License-Identifier: Apache-2.0
// Files: reads are bounded, outputs appear complete or not at all, and no write error is lost.

#include "runtime/base/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "test/unit/temp_dir.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;

using Files = TempDirTest;

TEST_F(Files, ReadFileStopsAtTheLimit) {
  Put("a", "12345");
  EXPECT_EQ(*ReadFile(Path("a"), 5), "12345");
  Result<std::string> large = ReadFile(Path("a"), 4);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.status().exit_code(), 6);
  // A device without a size and without an end.
  EXPECT_FALSE(ReadFile("/dev/zero", 100000).ok());
  EXPECT_FALSE(ReadFile("/proc/self/status", 10).ok()) << "its size is given as 0";
}

TEST_F(Files, ReadErrorsNameThePathAndTheReason) {
  const std::string missing = ReadFile(Path("no"), 10).status().ToString();
  EXPECT_NE(missing.find(Path("no")), std::string::npos) << missing;
  EXPECT_NE(missing.find("No such file"), std::string::npos) << missing;
  EXPECT_NE(ReadFile(dir_, 10).status().message().find("directory"), std::string::npos);
  EXPECT_FALSE(MappedFile::Open(dir_).ok());
  EXPECT_FALSE(MappedFile::Open("/dev/null").ok());
  EXPECT_EQ(MappedFile::Open(Path("no")).status().exit_code(), 6);
}

TEST_F(Files, MapsAndMoves) {
  Put("a", "hello");
  Result<MappedFile> opened = MappedFile::Open(Path("a"));
  ASSERT_TRUE(opened.ok());
  MappedFile a = std::move(opened).value();
  MappedFile b = std::move(a);
  EXPECT_EQ(a.size(), 0);
  ASSERT_EQ(b.size(), 5);
  EXPECT_EQ(std::to_integer<char>(b.bytes()[4]), 'o');
  Put("empty", "");
  EXPECT_EQ(MappedFile::Open(Path("empty"))->size(), 0);
}

TEST_F(Files, NothingAppearsBeforeCommit) {
  {
    AtomicFile file = AtomicFile::Create(Path("out")).value();
    ASSERT_TRUE(file.Append("half of it").ok());
    EXPECT_FALSE(fs::exists(Path("out")));
  }
  EXPECT_TRUE(Listing().empty()) << "the temporary is removed";
}

TEST_F(Files, CommitReplacesTheOldFileAndKeepsItsMode) {
  Put("out", "old");
  chmod(Path("out").c_str(), 0640);
  AtomicFile file = AtomicFile::Create(Path("out")).value();
  ASSERT_TRUE(file.Append("header__").ok());
  ASSERT_TRUE(file.PadTo(64).ok());
  EXPECT_EQ(file.size(), 64);
  const std::string large(1 << 20, 'x');
  ASSERT_TRUE(file.Append(large).ok());
  ASSERT_TRUE(file.Append("end").ok());
  ASSERT_TRUE(file.WriteAt(2, std::as_bytes(std::span(std::string_view("AD")))).ok());
  EXPECT_EQ(Get("out"), "old");
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(Get("out"), "heADer__" + std::string(56, '\0') + large + "end");
  struct stat info {};
  stat(Path("out").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  EXPECT_EQ(Listing(), std::vector<std::string>{"out"});
  EXPECT_EQ(file.Append("more").exit_code(), 6);
}

TEST_F(Files, WriteAtStaysInsideWhatWasAppended) {
  AtomicFile file = AtomicFile::Create(Path("out")).value();
  ASSERT_TRUE(file.Append("1234").ok());
  EXPECT_FALSE(file.WriteAt(3, std::as_bytes(std::span(std::string_view("ab")))).ok());
  EXPECT_FALSE(file.WriteAt(-1, std::as_bytes(std::span(std::string_view("a")))).ok());
}

TEST_F(Files, AFullDiskIsReportedAndLeavesTheOldFile) {
  Put("out", "old");
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = {100000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  AtomicFile file = AtomicFile::Create(Path("out")).value();
  const std::string large(1 << 20, 'x');
  const Status status = file.Append(large);
  const Status commit = file.Commit();
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, SIG_DFL);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.exit_code(), 6);
  EXPECT_NE(status.message().find(Path("out")), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("too large"), std::string::npos) << status.message();
  EXPECT_FALSE(commit.ok()) << "an earlier error can not be committed away";
  EXPECT_EQ(Listing(), std::vector<std::string>{"out"});
  EXPECT_EQ(Get("out"), "old");
}

TEST_F(Files, NoSpaceOnADeviceIsReportedAtCommit) {
  AtomicFile file = AtomicFile::Create("/dev/full").value();
  ASSERT_TRUE(file.Append("x").ok()) << "buffered";
  const Status status = file.Commit();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("No space left"), std::string::npos) << status.message();
}

TEST_F(Files, DevicesAreWrittenInPlaceAndLinksFollowed) {
  AtomicFile null = AtomicFile::Create("/dev/null").value();
  ASSERT_TRUE(null.Append("x").ok());
  ASSERT_TRUE(null.Commit().ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));

  Put("real", "old");
  fs::create_symlink("real", Path("link"));
  AtomicFile file = AtomicFile::Create(Path("link")).value();
  ASSERT_TRUE(file.Append("new").ok());
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Get("real"), "new");
}

TEST_F(Files, AnUnwritableFolderIsAnIoError) {
  Result<AtomicFile> file = AtomicFile::Create(Path("no/such/out"));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().exit_code(), 6);
  EXPECT_FALSE(AtomicFile::Create(dir_).ok());
}

TEST_F(Files, SweepsTemporariesOfDeadProcessesOnly) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);  // its pid is free now
  const std::string dead = std::to_string(child), alive = std::to_string(getppid());
  for (const std::string& name : {"out.tmp." + dead, "out.tmp." + alive, std::string("out.tmp.x"),
                                  "other.tmp." + dead, std::string("out")}) {
    Put(name, "");
  }
  ASSERT_TRUE(SweepTemporaries(Path("out")).ok());
  std::vector<std::string> expected = {"other.tmp." + dead, "out", "out.tmp." + alive, "out.tmp.x"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(Listing(), expected);
}

TEST_F(Files, ALinkToAFileThatIsNotThereYetIsFollowed) {
  fs::create_symlink("later/real", Path("link"));
  fs::create_directory(Path("later"));
  EXPECT_EQ(fs::path(FollowLinks(Path("link"))), fs::path(Path("later/real")));
  AtomicFile file = AtomicFile::Create(Path("link")).value();
  ASSERT_TRUE(file.Append("new").ok());
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(Get("later/real"), "new");
  fs::create_symlink("loop", Path("loop"));
  EXPECT_FALSE(AtomicFile::Create(Path("loop")).ok());
}

TEST_F(Files, ATemporaryInUseIsNotSwept) {
  AtomicFile file = AtomicFile::Create(Path("out")).value();
  ASSERT_TRUE(file.Append("new").ok());
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  // As from another container: the name says a process that this one cannot see.
  const std::string foreign = Path("out.tmp." + std::to_string(child));
  fs::rename(Path("out.tmp." + std::to_string(getpid())), foreign);
  ASSERT_TRUE(SweepTemporaries(Path("out")).ok());
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_FALSE(file.Commit().ok()) << "its own name is gone";
  ASSERT_TRUE(SweepTemporaries(Path("out")).ok());
  EXPECT_FALSE(fs::exists(foreign)) << "nobody holds it any more";
}

TEST_F(Files, PiecesOfAFileAreReadToTheByte) {
  Put("a", "0123456789");
  const InputFile file = InputFile::Open(Path("a")).value();
  EXPECT_EQ(file.size(), 10);
  std::string text(4, ' ');
  ASSERT_TRUE(file.ReadAt(6, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(text, "6789");
  const Status beyond = file.ReadAt(7, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(beyond.id(), "E0506");
  EXPECT_EQ(InputFile::Open(Path("none")).status().exit_code(), 6);
  EXPECT_EQ(InputFile::Open(dir_).status().exit_code(), 6);
}

TEST_F(Files, CopiesARangeOfAnotherFile) {
  std::string source;
  for (int i = 0; i < 300000; ++i) source += std::to_string(i);
  Put("source", source);
  AtomicFile file = AtomicFile::Create(Path("out")).value();
  ASSERT_TRUE(file.Append("head").ok());
  ASSERT_EQ(*CopyRange(Path("source"), 1000, 1200000, file), 1200000);
  ASSERT_EQ(*CopyRange(Path("source"), 5, 0, file), 0);
  ASSERT_TRUE(file.Append("tail").ok());
  EXPECT_EQ(file.size(), 1200008);
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(Get("out"), "head" + source.substr(1000, 1200000) + "tail");
}

TEST_F(Files, CopyBetweenUnlikeFileSystemsFallsBackToReads) {
  // /proc files cannot be copied inside the kernel.
  const std::string text = ReadFile("/proc/self/mountinfo", 1 << 20).value();
  const int64_t length = std::min<int64_t>(200, static_cast<int64_t>(text.size()));
  AtomicFile file = AtomicFile::Create(Path("out")).value();
  ASSERT_TRUE(CopyRange("/proc/self/mountinfo", 0, length, file).ok());
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(Get("out"), text.substr(0, static_cast<size_t>(length)));
}

TEST_F(Files, ACopyBeyondTheEndIsAnError) {
  Put("source", "0123456789");
  AtomicFile file = AtomicFile::Create(Path("out")).value();
  Result<int64_t> copied = CopyRange(Path("source"), 4, 100, file);
  ASSERT_FALSE(copied.ok());
  EXPECT_NE(copied.status().message().find("ends at byte 10"), std::string::npos)
      << copied.status().message();
  EXPECT_FALSE(CopyRange(Path("no"), 0, 1, file).ok());
}

TEST_F(Files, PathHelpers) {
  EXPECT_EQ(DirName("a/b/c"), "a/b");
  EXPECT_EQ(DirName("c"), ".");
  EXPECT_EQ(DirName("/c"), "/");
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(RelativePath("a/b", "a/c/d.npz"), "../c/d.npz");
  EXPECT_EQ(RelativePath(".", "d.npz"), "d.npz");
  EXPECT_EQ(RelativePath("a", "a/d.npz"), "d.npz");
  EXPECT_EQ(RelativePath("/x/y", "/x/z"), "../z");
}

TEST_F(Files, RelativePathGoesThroughRealFolders) {
  fs::create_directories(Path("deep/er"));
  fs::create_symlink("deep/er", Path("short"));
  Put("data", "x");
  const std::string relative = RelativePath(Path("short"), Path("data"));
  EXPECT_EQ(relative, "../../data");
  EXPECT_TRUE(fs::exists(Path("short/" + relative)));
}

}  // namespace
}  // namespace ampc
