/* Records what a process does to the files of one directory, so that a test can cut them back to what was synced.
 *
 * Preloaded (LD_PRELOAD) into any dynamically linked program: the program under test is the shipped one. Set
 *   WEIR_RECORD_DIR   absolute path (no symbolic links) of the directory whose files are recorded
 *   WEIR_RECORD_LOG   the log; it must lie elsewhere
 *   WEIR_RECORD_FAIL_SYNC   optional "N SUFFIX": from the Nth sync on, counted from 1, of files whose name ends in
 *                     SUFFIX, exactly that one fails with EIO; later ones succeed, as the kernel's do
 * One lock is held over each call and its record, so the log's order is the files' order: a sync in the log covers
 * every write before it. A record follows its call: a kill in between loses a record of something nobody was told of.
 * Format, little endian: u8 kind, u8 0, u16 path bytes, u32 0, u64 offset or length, u64 data bytes, path, data.
 * Kinds: C created, W written, T cut to length, S synced (file or directory), U unlinked, R renamed (data: new path),
 * F sync failed. WEIR_RECORD_DIR has no trailing slash. Not seen: mmap, io_uring, writev, copy_file_range; SQLite uses none of them with mmap_size = 0 except
 * for -shm, which is rebuilt after a crash. Read by tests/support/cutback.rs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *record_dir;
static size_t record_dir_len;
static int log_fd = -1;
static long fail_at;
static char fail_suffix[64];
static long syncs_seen;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_unlink)(const char *);
static int (*real_rename)(const char *, const char *);
static int (*real_openat)(int, const char *, int, ...);

static void stop(const char *why)
{
    fprintf(stderr, "recorder: %s\n", why);
    abort();
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        stop(name);
    return found;
}

__attribute__((constructor)) static void start(void)
{
    real_write = next("write");
    real_pwrite = next("pwrite64");
    real_fsync = next("fsync");
    real_fdatasync = next("fdatasync");
    real_ftruncate = next("ftruncate64");
    real_unlink = next("unlink");
    real_rename = next("rename");
    real_openat = next("openat64");
    const char *log = getenv("WEIR_RECORD_LOG");
    const char *dir = getenv("WEIR_RECORD_DIR");
    if (!log || !dir)
        return;
    const char *fail = getenv("WEIR_RECORD_FAIL_SYNC");
    if (fail && sscanf(fail, "%ld %63s", &fail_at, fail_suffix) != 2)
        stop("WEIR_RECORD_FAIL_SYNC is \"N SUFFIX\"");
    log_fd = real_openat(AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0)
        stop("cannot open WEIR_RECORD_LOG");
    record_dir = dir;
    record_dir_len = strlen(dir);
}

/* The path of fd below the recorded directory, or NULL. Unlinked files are nobody's after a crash. */
static const char *path_of(int fd, char *path)
{
    if (log_fd < 0)
        return NULL;
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0)
        return NULL;
    path[n] = 0;
    if (strncmp(path, record_dir, record_dir_len) != 0)
        return NULL;
    if (path[record_dir_len] != 0 && path[record_dir_len] != '/')
        return NULL;
    static const char gone[] = " (deleted)";
    if ((size_t)n > sizeof gone && strcmp(path + n - (sizeof gone - 1), gone) == 0)
        return NULL;
    return path;
}

/* The same for a name; a relative one is taken from the working directory. */
static const char *path_named(const char *name, char *path)
{
    if (log_fd < 0)
        return NULL;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char cwd[PATH_MAX];
        if (!getcwd(cwd, sizeof cwd))
            return NULL;
        if (snprintf(path, PATH_MAX, "%s/%s", cwd, name) >= PATH_MAX)
            return NULL;
    }
    if (strncmp(path, record_dir, record_dir_len) != 0 || path[record_dir_len] != '/')
        return NULL;
    return path;
}

static void record(char kind, const char *path, uint64_t at, const void *data, uint64_t data_len)
{
    unsigned char head[24] = {0};
    uint16_t path_len = (uint16_t)strlen(path);
    head[0] = (unsigned char)kind;
    memcpy(head + 2, &path_len, 2);
    memcpy(head + 8, &at, 8);
    memcpy(head + 16, &data_len, 8);
    struct iovec parts[3] = {
        {head, sizeof head}, {(void *)path, path_len}, {(void *)data, (size_t)data_len}};
    ssize_t whole = (ssize_t)(sizeof head + path_len + data_len);
    if (writev(log_fd, parts, 3) != whole)
        stop("the log is full");
}

ssize_t pwrite64(int fd, const void *data, size_t len, off_t at)
{
    char space[PATH_MAX];
    const char *path = path_of(fd, space);
    if (!path)
        return real_pwrite(fd, data, len, at);
    pthread_mutex_lock(&lock);
    ssize_t n = real_pwrite(fd, data, len, at);
    int error = errno;
    if (n > 0)
        record('W', path, (uint64_t)at, data, (uint64_t)n);
    pthread_mutex_unlock(&lock);
    errno = error;
    return n;
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t at)
{
    return pwrite64(fd, data, len, at);
}

ssize_t write(int fd, const void *data, size_t len)
{
    char space[PATH_MAX];
    const char *path = path_of(fd, space);
    if (!path)
        return real_write(fd, data, len);
    pthread_mutex_lock(&lock);
    ssize_t n = real_write(fd, data, len);
    int error = errno;
    /* After the call, because O_APPEND decides where it goes. */
    off_t end = lseek(fd, 0, SEEK_CUR);
    if (n > 0 && end >= n)
        record('W', path, (uint64_t)(end - n), data, (uint64_t)n);
    pthread_mutex_unlock(&lock);
    errno = error;
    return n;
}

static int ends_in(const char *path, const char *suffix)
{
    size_t p = strlen(path), s = strlen(suffix);
    return p >= s && strcmp(path + p - s, suffix) == 0;
}

static int sync_with(int (*real)(int), int fd)
{
    char space[PATH_MAX];
    const char *path = path_of(fd, space);
    if (!path)
        return real(fd);
    pthread_mutex_lock(&lock);
    int result, error = 0;
    if (fail_at > 0 && ends_in(path, fail_suffix) && ++syncs_seen == fail_at) {
        record('F', path, 0, NULL, 0);
        result = -1;
        error = EIO;
    } else {
        result = real(fd);
        error = errno;
        record(result == 0 ? 'S' : 'F', path, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int fsync(int fd)
{
    return sync_with(real_fsync, fd);
}

int fdatasync(int fd)
{
    return sync_with(real_fdatasync, fd);
}

int ftruncate64(int fd, off_t len)
{
    char space[PATH_MAX];
    const char *path = path_of(fd, space);
    if (!path)
        return real_ftruncate(fd, len);
    pthread_mutex_lock(&lock);
    int result = real_ftruncate(fd, len);
    int error = errno;
    if (result == 0)
        record('T', path, (uint64_t)len, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int ftruncate(int fd, off_t len)
{
    return ftruncate64(fd, len);
}

int unlink(const char *name)
{
    char space[PATH_MAX];
    const char *path = path_named(name, space);
    if (!path)
        return real_unlink(name);
    pthread_mutex_lock(&lock);
    int result = real_unlink(name);
    int error = errno;
    if (result == 0)
        record('U', path, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int rename(const char *from, const char *to)
{
    char from_space[PATH_MAX], to_space[PATH_MAX];
    const char *from_path = path_named(from, from_space);
    const char *to_path = path_named(to, to_space);
    if (!from_path || !to_path)
        return real_rename(from, to);
    pthread_mutex_lock(&lock);
    int result = real_rename(from, to);
    int error = errno;
    if (result == 0)
        record('R', from_path, 0, to_path, strlen(to_path));
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

/* Opens with the lock held when the call may make or empty a recorded file. Names relative to an open directory are
 * not recorded: neither SQLite nor Rust's standard library makes files so. */
static int open_with(int dirfd, const char *name, int flags, mode_t mode)
{
    char space[PATH_MAX];
    int by_name = dirfd == AT_FDCWD || name[0] == '/';
    const char *path = by_name && (flags & (O_CREAT | O_TRUNC)) ? path_named(name, space) : NULL;
    if (!path)
        return real_openat(dirfd, name, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat before;
    int existed = stat(path, &before) == 0;
    int fd = real_openat(dirfd, name, flags, mode);
    int error = errno;
    if (fd >= 0 && !existed)
        record('C', path, 0, NULL, 0);
    else if (fd >= 0 && (flags & O_TRUNC))
        record('T', path, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE_OF(flags, last)                     \
    mode_t mode = 0;                             \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {     \
        va_list arguments;                       \
        va_start(arguments, last);               \
        mode = va_arg(arguments, mode_t);        \
        va_end(arguments);                       \
    }

int open64(const char *name, int flags, ...)
{
    MODE_OF(flags, flags)
    return open_with(AT_FDCWD, name, flags, mode);
}

int open(const char *name, int flags, ...)
{
    MODE_OF(flags, flags)
    return open_with(AT_FDCWD, name, flags, mode);
}

int openat64(int dirfd, const char *name, int flags, ...)
{
    MODE_OF(flags, flags)
    return open_with(dirfd, name, flags, mode);
}

int openat(int dirfd, const char *name, int flags, ...)
{
    MODE_OF(flags, flags)
    return open_with(dirfd, name, flags, mode);
}
