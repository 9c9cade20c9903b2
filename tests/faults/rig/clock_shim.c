/* LD_PRELOAD: the wall clock of one process, set by whoever writes milliseconds into the file that CLOCK_SHIM names.
 * Monotonic clocks go on as they are, as they do when an operator sets the time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);

static long long offset_ms(void) {
    static int fd = -2;
    char text[32];
    if (fd == -2) {
        const char *path = getenv("CLOCK_SHIM");
        fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    }
    ssize_t length = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    text[length] = 0;
    return atoll(text);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!real_clock_gettime) real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real_clock_gettime(clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long ms = offset_ms(), ns = at->tv_nsec + ms % 1000 * 1000000;
        at->tv_sec += ms / 1000 + (ns < 0 ? -1 : ns >= 1000000000);
        at->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
