/* Preloaded into a server: its wall clock is the machine's plus the nanoseconds that the file CLOCK_SHIM_OFFSET holds,
 * eight bytes in the machine's order, read at each call. Its monotonic clocks are the machine's.
 *
 * The kernel is asked directly and nothing is allocated: a server whose allocator is linked dynamically reads the
 * clock before it can allocate. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("CLOCK_SHIM_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file >= 0 ? mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    /* Without an offset a test would prove nothing. */
    if (mapped == MAP_FAILED) abort();
    offset = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int outcome = (int)syscall(SYS_clock_gettime, clock, now);
    if (outcome == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)now->tv_sec * SECOND + now->tv_nsec + *offset;
        now->tv_sec = ns / SECOND;
        now->tv_nsec = ns % SECOND;
    }
    return outcome;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int outcome = clock_gettime(CLOCK_REALTIME, &precise);
    if (outcome == 0) {
        now->tv_sec = precise.tv_sec;
        now->tv_usec = precise.tv_nsec / 1000;
    }
    return outcome;
}

time_t time(time_t *where) {
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}

/* Valkey 8.1 and later bind a module to the C library before all that is preloaded, and it would see another clock than
 * the server. */
void *dlopen(const char *path, int mode) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return next ? next(path, mode & ~RTLD_DEEPBIND) : NULL;
}
