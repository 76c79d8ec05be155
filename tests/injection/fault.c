// Put before the C library (LD_PRELOAD), it makes calls fail as full disks and clocks do.
//
//   FAULT_FULL=PATTERN    nothing can be written to files whose path matches: the disk is full
//   FAULT_CLOCK=AT:JUMP   from AT on, by the monotonic clock, the wall clock is JUMP seconds off
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int matches(int file, const char *variable) {
    const char *pattern = getenv(variable);
    char link[64], path[4096];
    if (pattern == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fnmatch(pattern, path, 0) == 0;
}

static int full(int file) {
    if (!matches(file, "FAULT_FULL")) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t write(int file, const void *bytes, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (real == NULL) real = REAL(write);
    return full(file) ? -1 : real(file, bytes, count);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    static ssize_t (*real)(int, const struct iovec *, int);
    if (real == NULL) real = REAL(writev);
    return full(file) ? -1 : real(file, parts, count);
}

static long jump(void) {
    static int (*real)(clockid_t, struct timespec *);
    const char *told = getenv("FAULT_CLOCK");
    double at;
    long seconds;
    struct timespec now;
    if (told == NULL || sscanf(told, "%lf:%ld", &at, &seconds) != 2) return 0;
    if (real == NULL) real = REAL(clock_gettime);
    real(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9 < at ? 0 : seconds;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = REAL(clock_gettime);
    int code = real(clock, time);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += jump();
    return code;
}

time_t time(time_t *into) {
    time_t found = REAL(time)(NULL) + jump();
    if (into != NULL) *into = found;
    return found;
}

int gettimeofday(struct timeval *restrict into, void *restrict zone) {
    int code = REAL(gettimeofday)(into, zone);
    if (code == 0) into->tv_sec += jump();
    return code;
}
