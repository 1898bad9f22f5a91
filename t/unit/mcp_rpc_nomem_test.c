
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The reader when memory is short.  It is compiled here once more, with an
 * allocator that fails and under other names.
 */


#include "tap.h"

#include <stdint.h>


static void *scarce_calloc(size_t n, size_t size);
static void *scarce_realloc(void *p, size_t size);


#define calloc   scarce_calloc
#define realloc  scarce_realloc

#define mcp_rpc_reader_create   scarce_reader_create
#define mcp_rpc_reader_feed     scarce_reader_feed
#define mcp_rpc_reader_finish   scarce_reader_finish
#define mcp_rpc_reader_head     scarce_reader_head
#define mcp_rpc_reader_destroy  scarce_reader_destroy

#include "mcp_rpc_reader.c"

#undef calloc
#undef realloc


#define ID      "mcpka-7f"
#define RESULT  "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"result\":{}}"


static long    allowed;
static size_t  reader, buffer;          /* bytes held */
static size_t  most;                    /* ever, both buffers of a realloc() */


static void *
scarce_calloc(size_t n, size_t size)
{
    reader = n * size;
    buffer = 0;
    most = reader;

    return (allowed-- > 0) ? calloc(n, size) : NULL;
}


static void *
scarce_realloc(void *p, size_t size)
{
    if (reader + buffer + size > most) {
        most = reader + buffer + size;
    }

    buffer = size;

    return (allowed-- > 0) ? realloc(p, size) : NULL;
}


static mcp_rpc_rc_t
feed(mcp_rpc_reader_t *r, const char *text)
{
    return mcp_rpc_reader_feed(r, (const unsigned char *) text, strlen(text));
}


int
main(void)
{
    size_t             n;
    mcp_rpc_reader_t  *r;
    mcp_rpc_answer_t   a;

    static unsigned char    x[3 * 1024 * 1024];
    static const long long  lengths[] = {
        MCP_RPC_BODY_MAX + 1, 5 * 1024 * 1024, 0x7fffffffffffffff
    };

    memset(x, 'x', sizeof(x));

    allowed = 0;
    ok(mcp_rpc_reader_create(MCP_MEDIA_JSON, ID, -1) == NULL, "no reader");

    allowed = 1;
    r = mcp_rpc_reader_create(MCP_MEDIA_JSON, ID, -1);
    is_int(feed(r, RESULT), MCP_RPC_NOMEM, "no buffer for a body");
    is_int(feed(r, RESULT), MCP_RPC_AGAIN, "the reader goes on without");
    n = 10;
    ok(mcp_rpc_reader_head(r, &n) != NULL && n == 0, "there is no head");
    mcp_rpc_reader_finish(r, &a);
    ok(a.kind == MCP_RPC_NOTHING && a.too_big && !a.empty, "nothing is known");
    mcp_rpc_reader_destroy(r);

    allowed = 2;
    r = mcp_rpc_reader_create(MCP_MEDIA_JSON, ID, -1);
    is_int(feed(r, "{\"id\":\"mcpka-7f\",\"result\":\""), MCP_RPC_AGAIN,
           "a head is in");
    is_int(mcp_rpc_reader_feed(r, x, 10000), MCP_RPC_NOMEM, "then no more");
    is_int(mcp_rpc_reader_feed(r, x, 10000), MCP_RPC_AGAIN, "it goes on");
    mcp_rpc_reader_finish(r, &a);
    ok(a.kind == MCP_RPC_RESULT && a.id == MCP_RPC_ID_OURS && a.too_big,
       "the head tells");
    mcp_rpc_reader_destroy(r);

    allowed = 1;
    r = mcp_rpc_reader_create(MCP_MEDIA_SSE, ID, -1);
    is_int(feed(r, "data: " RESULT "\n\n"), MCP_RPC_NOMEM,
           "no buffer for an event");
    allowed = 100;
    is_int(feed(r, "data: " RESULT "\n\n"), MCP_RPC_DONE,
           "memory is back at the next one");
    mcp_rpc_reader_finish(r, &a);
    is_int(a.id, MCP_RPC_ID_OURS, "it is read");
    mcp_rpc_reader_destroy(r);

    allowed = 2;
    r = mcp_rpc_reader_create(MCP_MEDIA_SSE, ID, -1);
    feed(r, "data: {\"result\":\"");
    is_int(mcp_rpc_reader_feed(r, x, 10000), MCP_RPC_NOMEM,
           "an event loses its end");
    is_int(feed(r, "\"}\n\n"), MCP_RPC_DONE, "and ends all the same");
    mcp_rpc_reader_finish(r, &a);
    ok(a.kind == MCP_RPC_RESULT && a.too_big, "its head tells");
    mcp_rpc_reader_destroy(r);

    /* how much is asked for */

    allowed = 1000;
    r = mcp_rpc_reader_create(MCP_MEDIA_JSON, ID, -1);
    feed(r, RESULT);
    is_int(most, reader + 4096, "a short body takes one page");

    for (n = 0; n < 1000; n++) {
        mcp_rpc_reader_feed(r, x, 5000);
    }

    is_int(most, MCP_RPC_HEAD_MAX, "5 MB of unknown length 64 KiB in all");
    mcp_rpc_reader_destroy(r);

    for (n = 0; n < 3; n++) {
        r = mcp_rpc_reader_create(MCP_MEDIA_JSON, ID, lengths[n]);
        mcp_rpc_reader_feed(r, x, 5000);
        mcp_rpc_reader_feed(r, x, sizeof(x));
        ok(most <= MCP_RPC_HEAD_MAX, "no more if announced as too long");
        mcp_rpc_reader_destroy(r);
    }

    r = mcp_rpc_reader_create(MCP_MEDIA_JSON, ID, MCP_RPC_BODY_MAX);
    mcp_rpc_reader_feed(r, x, 5);
    is_int(most, reader + 4096, "an announced one what it needs");
    mcp_rpc_reader_feed(r, x, sizeof(x));
    is_int(buffer, MCP_RPC_BODY_MAX, "up to its length, and no more");
    mcp_rpc_reader_destroy(r);

    r = mcp_rpc_reader_create(MCP_MEDIA_SSE, ID, -1);

    for (n = 0; n < 1000; n++) {
        feed(r, "data: 0123456789\n\n");
    }

    is_int(most, reader + 4096, "a stream as much as its longest event");
    feed(r, "data:");

    for (n = 0; n < 1000; n++) {
        mcp_rpc_reader_feed(r, x, 5000);
    }

    is_int(most, MCP_RPC_HEAD_MAX, "an event of 5 MB 64 KiB in all");
    mcp_rpc_reader_destroy(r);

    return tap_done();
}
