// SPDX-License-Identifier: Apache-2.0
//
// A library for LD_PRELOAD that counts the system calls which change files under a folder, and
// makes the Nth of them fail, write short, or kill the process. faults.py drives it.
//
//   FAULT_PREFIX   absolute path; only calls on paths below it count
//   FAULT_TRACE    file that gets a line "N CALL PATH" per counted call, before it is made
//   FAULT_AT       N, from 1; without it nothing fails
//   FAULT_ACTION   a number: errno of the failure · short: half of the bytes are written ·
//                  kill: SIGKILL before the call · tear: half of the bytes are written, then
//                  SIGKILL
//   FAULT_PERSIST  1: from the Nth call on, every call that needs space on the disk fails
//
// A failing close closes the file all the same, as Linux does. Calls of the C library's own
// functions among themselves (opendir, fopen) are not seen.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {

enum class Action { kNone, kFail, kShort, kTear };

std::atomic<long> calls{0};

template <typename F>
F Next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

void Kill() { syscall(SYS_kill, getpid(), SIGKILL); }

bool BelowPrefix(const char* path) {
  const char* prefix = getenv("FAULT_PREFIX");
  return prefix != nullptr && strncmp(path, prefix, strlen(prefix)) == 0;
}

void Trace(long n, const char* call, const char* path) {
  const char* trace = getenv("FAULT_TRACE");
  if (trace == nullptr) return;
  char line[4400];
  const int length = snprintf(line, sizeof line, "%ld %s %s\n", n, call, path);
  const long fd = syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND, 0666);
  syscall(SYS_write, fd, line, static_cast<size_t>(length));
  syscall(SYS_close, fd);
}

/// What becomes of this call. `needs_space`: it fails on a full disk.
Action Decide(const char* call, const char* path, bool needs_space) {
  if (!BelowPrefix(path)) return Action::kNone;
  const long n = ++calls;
  Trace(n, call, path);
  const char *at = getenv("FAULT_AT"), *action = getenv("FAULT_ACTION");
  if (at == nullptr || action == nullptr) return Action::kNone;
  const long hit = atol(at);
  if (n != hit && !(getenv("FAULT_PERSIST") != nullptr && n > hit && needs_space))
    return Action::kNone;
  if (strcmp(action, "kill") == 0) Kill();
  if (strcmp(action, "short") == 0) return Action::kShort;
  if (strcmp(action, "tear") == 0) return Action::kTear;
  errno = atoi(action);
  return Action::kFail;
}

Action DecidePath(const char* call, const char* path, bool needs_space) {
  char whole[4200];
  if (path[0] == '/') return Decide(call, path, needs_space);
  const char* folder = getcwd(whole, 2048);
  if (folder == nullptr) return Action::kNone;
  strcat(whole, "/");
  strncat(whole, path, 2000);
  return Decide(call, whole, needs_space);
}

Action DecideFile(const char* call, int fd, bool needs_space) {
  char link[64], path[4200];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const long length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return Action::kNone;
  path[length] = '\0';
  return Decide(call, path, needs_space);
}

int Open(int folder, const char* path, int flags, mode_t mode) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  if (DecidePath("open", path, makes) == Action::kFail) return -1;
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

mode_t ModeOf(int flags, va_list list) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? static_cast<mode_t>(va_arg(list, int)) : 0;
}

/// Half of `size`, but not nothing.
size_t Half(size_t size) { return size > 1 ? size / 2 : size; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = ModeOf(flags, list);
  va_end(list);
  return Open(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = ModeOf(flags, list);
  va_end(list);
  return Open(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = ModeOf(flags, list);
  va_end(list);
  return Open(folder, path, flags, mode);
}

int mkostemp(char* path, int flags) {
  if (DecidePath("open", path, true) == Action::kFail) return -1;
  return Next<int (*)(char*, int)>("mkostemp")(path, flags);
}

ssize_t write(int fd, const void* data, size_t size) {
  const auto next = Next<ssize_t (*)(int, const void*, size_t)>("write");
  const Action action = DecideFile("write", fd, true);
  if (action == Action::kFail) return -1;
  if (action == Action::kNone) return next(fd, data, size);
  const ssize_t n = next(fd, data, Half(size));
  if (action == Action::kTear) Kill();
  return n;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  const auto next = Next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  const Action action = DecideFile("pwrite", fd, true);
  if (action == Action::kFail) return -1;
  if (action == Action::kNone) return next(fd, data, size, offset);
  const ssize_t n = next(fd, data, Half(size), offset);
  if (action == Action::kTear) Kill();
  return n;
}

ssize_t pwrite64(int fd, const void* data, size_t size, off_t offset) {
  return pwrite(fd, data, size, offset);
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
  const Action action = DecideFile("writev", fd, true);
  if (action == Action::kFail) return -1;
  // Half of the first part is a short write too.
  const auto next = Next<ssize_t (*)(int, const struct iovec*, int)>("writev");
  if (action == Action::kNone || count == 0) return next(fd, parts, count);
  const struct iovec first = {parts[0].iov_base, Half(parts[0].iov_len)};
  const ssize_t n = next(fd, &first, 1);
  if (action == Action::kTear) Kill();
  return n;
}

ssize_t copy_file_range(int in, off_t* in_offset, int out, off_t* out_offset, size_t size,
                        unsigned flags) {
  const Action action = DecideFile("copy_file_range", out, true);
  if (action == Action::kFail) return -1;
  const auto next =
      Next<ssize_t (*)(int, off_t*, int, off_t*, size_t, unsigned)>("copy_file_range");
  if (action == Action::kNone) return next(in, in_offset, out, out_offset, size, flags);
  const ssize_t n = next(in, in_offset, out, out_offset, Half(size), flags);
  if (action == Action::kTear) Kill();
  return n;
}

int fsync(int fd) {
  if (DecideFile("fsync", fd, true) == Action::kFail) return -1;
  return Next<int (*)(int)>("fsync")(fd);
}

int fdatasync(int fd) {
  if (DecideFile("fdatasync", fd, true) == Action::kFail) return -1;
  return Next<int (*)(int)>("fdatasync")(fd);
}

int ftruncate(int fd, off_t size) {
  if (DecideFile("ftruncate", fd, false) == Action::kFail) return -1;
  return Next<int (*)(int, off_t)>("ftruncate")(fd, size);
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int fchmod(int fd, mode_t mode) {
  if (DecideFile("fchmod", fd, false) == Action::kFail) return -1;
  return Next<int (*)(int, mode_t)>("fchmod")(fd, mode);
}

int close(int fd) {
  const bool fails = DecideFile("close", fd, false) == Action::kFail;
  const int error = errno;
  const int result = static_cast<int>(syscall(SYS_close, fd));
  if (!fails) return result;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) {
  if (DecidePath("rename", to, false) == Action::kFail) return -1;
  return Next<int (*)(const char*, const char*)>("rename")(from, to);
}

int mkdir(const char* path, mode_t mode) {
  if (DecidePath("mkdir", path, true) == Action::kFail) return -1;
  return Next<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}

int rmdir(const char* path) {
  if (DecidePath("rmdir", path, false) == Action::kFail) return -1;
  return Next<int (*)(const char*)>("rmdir")(path);
}

int unlink(const char* path) {
  if (DecidePath("unlink", path, false) == Action::kFail) return -1;
  return Next<int (*)(const char*)>("unlink")(path);
}

}  // extern "C"
