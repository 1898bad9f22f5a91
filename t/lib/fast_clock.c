
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A clock that runs MCP_CLOCK times as fast, for an nginx that is preloaded
 * with it: timers of 100 ms are up after 100/MCP_CLOCK.
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>


typedef int (*clock_gettime_pt)(clockid_t id, struct timespec *ts);
typedef int (*epoll_wait_pt)(int ep, struct epoll_event *ev, int n, int ms);


static long  rate;


static long
fast_clock_rate(void)
{
    const char  *s;

    if (rate == 0) {
        s = getenv("MCP_CLOCK");
        rate = s ? atol(s) : 1;
    }

    return rate;
}


int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int                      rc;
    long long                ns;
    static clock_gettime_pt  next;

    if (next == NULL) {
        next = (clock_gettime_pt) dlsym(RTLD_NEXT, "clock_gettime");
    }

    if (id != CLOCK_MONOTONIC_COARSE && id != CLOCK_MONOTONIC) {
        return next(id, ts);
    }

    rc = next(CLOCK_MONOTONIC, ts);

    ns = (ts->tv_sec * 1000000000LL + ts->tv_nsec) * fast_clock_rate();
    ts->tv_sec = ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;

    return rc;
}


int
epoll_wait(int ep, struct epoll_event *ev, int n, int ms)
{
    long long             ns;
    struct pollfd         fd;
    struct timespec       ts;
    static epoll_wait_pt  next;

    if (next == NULL) {
        next = (epoll_wait_pt) dlsym(RTLD_NEXT, "epoll_wait");
    }

    if (ms > 0) {
        ns = ms * 1000000LL / fast_clock_rate();
        ts.tv_sec = ns / 1000000000;
        ts.tv_nsec = ns % 1000000000;

        fd.fd = ep;
        fd.events = POLLIN;

        (void) ppoll(&fd, 1, &ts, NULL);
        ms = 0;
    }

    return next(ep, ev, n, ms);
}
