
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * How fast the pure code is.  Prints, asserts nothing: a machine that is busy
 * is no fault of the code.
 */


#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mcp_classify.h"
#include "mcp_rpc.h"
#include "mcp_sse.h"


#define ID      "mcpka-7f"
#define MB      (1024 * 1024)
#define CHUNK   4096                    /* what nginx hands over at once */
#define ROUNDS  7                       /* the best one counts */


static double
now_ms(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_MONOTONIC, &t);

    return (double) t.tv_sec * 1e3 + (double) t.tv_nsec / 1e6;
}


static unsigned char *
block(size_t len)
{
    unsigned char  *p;

    p = malloc(len);

    if (p == NULL) {
        perror("malloc");
        exit(1);
    }

    return p;
}


/* Fills the block with whole pieces, spaces after the last one. */

static void
repeat(unsigned char *p, size_t len, const char *piece)
{
    size_t  n;

    for (n = strlen(piece); len >= n; len -= n) {
        memcpy(p, piece, n);
        p += n;
    }

    memset(p, ' ', len);
}


static unsigned long
scan(mcp_sse_t *s, const unsigned char *p, size_t len)
{
    size_t                n;
    unsigned long         events;
    const unsigned char  *pos;

    events = 0;

    for ( /* void */ ; len != 0; p += n, len -= n) {

        n = (len < CHUNK) ? len : CHUNK;
        pos = p;

        while (mcp_sse_feed(s, &pos, p + n) != MCP_SSE_AGAIN) {
            events++;
        }
    }

    return events;
}


static void
bench_sse(const char *name, const char *piece)
{
    int              i, k;
    double           start, ms, best[2];
    mcp_sse_t        s;
    unsigned char   *stream, *buf;
    const size_t     len = 64 * MB;

    stream = block(len);
    buf = block(MB);
    repeat(stream, len, piece);

    best[0] = best[1] = 1e9;

    for (i = 0; i < ROUNDS; i++) {
        for (k = 0; k < 2; k++) {
            mcp_sse_init(&s, k ? buf : NULL, MB);

            start = now_ms();
            (void) scan(&s, stream, len);
            ms = now_ms() - start;

            best[k] = (ms < best[k]) ? ms : best[k];
        }
    }

    printf("sse, %-30s %6.0f MB/s, with the data %6.0f MB/s\n", name,
           (double) len / 1e3 / best[0], (double) len / 1e3 / best[1]);

    free(buf);
    free(stream);
}


/* A tools/list answer of just "len" bytes, the tools as servers have them. */

static unsigned char *
answer(size_t len, int stream)
{
    size_t          n;
    unsigned char  *p, *body;

    static const char  head[] = "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\","
                                "\"result\":{\"tools\":[";
    static const char  tail[] = "{}]}}";
    static const char  tool[] =
        "{\"name\":\"search_issues\",\"description\":\"Finds issues by text. "
        "Takes \\\"quoted\\\" words.\",\"inputSchema\":{\"type\":\"object\","
        "\"properties\":{\"query\":{\"type\":\"string\",\"maxLength\":256},"
        "\"page\":{\"type\":\"integer\",\"minimum\":1,\"default\":1}},"
        "\"required\":[\"query\"],\"additionalProperties\":false}},";

    body = block(len);
    p = body;

    if (stream) {
        memcpy(p, "data: ", 6);
        memcpy(body + len - 2, "\n\n", 2);
        p += 6;
        len -= 8;
    }

    n = strlen(head);
    memcpy(p, head, n);
    p += n;
    len -= n + strlen(tail);

    repeat(p, len, tool);
    memcpy(p + len, tail, strlen(tail));

    return body;
}


static void
bench_answer(const char *name, size_t len, int stream, int announced)
{
    int                i;
    char               reason[MCP_REASON_MAX];
    size_t             at, n;
    double             start, ms, best;
    const char        *verdict;
    mcp_facts_t        f;
    unsigned char     *body;
    mcp_rpc_answer_t   a;
    mcp_rpc_reader_t  *r;

    body = answer(len, stream);
    best = 1e9;
    verdict = "";

    for (i = 0; i < ROUNDS; i++) {

        start = now_ms();

        r = mcp_rpc_reader_create(stream ? MCP_MEDIA_SSE : MCP_MEDIA_JSON, ID,
                                  announced ? (long long) len : -1);
        if (r == NULL) {
            perror("reader");
            exit(1);
        }

        for (at = 0; at < len; at += n) {
            n = (len - at < CHUNK) ? len - at : CHUNK;
            (void) mcp_rpc_reader_feed(r, body + at, n);
        }

        mcp_rpc_reader_finish(r, &a);

        memset(&f, 0, sizeof(f));
        f.session = 1;
        f.status = 200;
        f.media = stream ? MCP_MEDIA_SSE : MCP_MEDIA_JSON;
        f.answer = &a;
        f.head_len = MCP_RPC_HEAD_MAX;
        f.head = mcp_rpc_reader_head(r, &f.head_len);

        verdict = mcp_verdict_name(mcp_classify(&f, reason));

        mcp_rpc_reader_destroy(r);

        ms = now_ms() - start;
        best = (ms < best) ? ms : best;
    }

    printf("judge, %-41s %6.2f ms  %s: %s\n", name, best, verdict, reason);

    free(body);
}


int
main(void)
{
    static char  large[32768];

    printf("wanted: boundaries at 500 MB/s, 1 MiB judged in 10 ms\n");

    bench_sse("short events, LF", "data: {\"jsonrpc\":\"2.0\",\"method\":"
              "\"notifications/progress\",\"params\":{\"progress\":17}}\n\n");
    bench_sse("named events, CR LF", "event: message\r\nid: 41_7\r\ndata: "
              "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"content\":[]}}"
              "\r\n\r\n");

    memset(large, 'x', sizeof(large) - 1);
    memcpy(large, "data: ", 6);
    memcpy(large + sizeof(large) - 3, "\n\n", 2);
    bench_sse("events of 32 KiB", large);

    bench_sse("heartbeats", ":\n\n");

    bench_answer("1 MiB, announced", MB, 0, 1);
    bench_answer("1 MiB, chunked", MB, 0, 0);
    bench_answer("1 MiB, one event, announced", MB, 1, 1);
    bench_answer("5 MiB, chunked", 5 * MB, 0, 0);
    bench_answer("5 MiB, one event", 5 * MB, 1, 0);

    return 0;
}
