
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * TAP for the unit tests, and inputs that end where the memory ends.
 */


#ifndef _TAP_H_INCLUDED_
#define _TAP_H_INCLUDED_


#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>


#define TAP_EDGE_MAX  (4 * 1024 * 1024)


static unsigned  tap_run;
static unsigned  tap_failed;


static inline int
ok(int good, const char *name)
{
    tap_run++;
    tap_failed += !good;

    printf("%sok %u - %s\n", good ? "" : "not ", tap_run, name);

    return good;
}


static inline int
is_int(long long got, long long want, const char *name)
{
    if (!ok(got == want, name)) {
        printf("# got %lld, want %lld\n", got, want);
        return 0;
    }

    return 1;
}


static inline int
is_str(const char *got, const char *want, const char *name)
{
    if (!ok(got != NULL && strcmp(got, want) == 0, name)) {
        printf("# got  \"%s\"\n# want \"%s\"\n", got ? got : "(null)", want);
        return 0;
    }

    return 1;
}


static inline int
tap_done(void)
{
    printf("1..%u\n", tap_run);

    return tap_failed != 0;
}


/*
 * A copy of the data whose last byte is the last one of a mapped page: reading
 * one byte more ends the test.  Good until the next call.
 */

static inline unsigned char *
tap_edge(const void *data, size_t len)
{
    size_t                 page;
    static unsigned char  *map;

    if (map == NULL) {
        page = sysconf(_SC_PAGESIZE);

        map = mmap(NULL, TAP_EDGE_MAX + page, PROT_READ|PROT_WRITE,
                   MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);

        if (map == MAP_FAILED
            || mprotect(map + TAP_EDGE_MAX, page, PROT_NONE) == -1)
        {
            printf("Bail out! no memory with an edge\n");
            exit(1);
        }
    }

    if (len != 0) {
        memcpy(map + TAP_EDGE_MAX - len, data, len);
    }

    return map + TAP_EDGE_MAX - len;
}


#endif /* _TAP_H_INCLUDED_ */
