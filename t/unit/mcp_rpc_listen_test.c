
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"

#include "mcp_rpc.h"
#include "mcp_rpc_listen.h"


#define HEAD     "{\"jsonrpc\":\"2.0\",\"id\":"
#define LISTEN   ",\"method\":\"subscriptions/listen\",\"params\":{}}"

#define BEGIN    "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":"
#define MIDDLE   ",\"result\":{\"resultType\":\"complete\",\"_meta\":"      \
                 "{\"io.modelcontextprotocol/subscriptionId\":"
#define END      "}}}\n\n"

#define event(id)  BEGIN id MIDDLE id END


typedef struct {
    const char  *name;
    const char  *body;
    const char  *event;             /* NULL: none */
} complete_case_t;


static const complete_case_t  cases[] = {
    { "a number", HEAD "40" LISTEN, event("40") },
    { "a negative number", HEAD "-1" LISTEN, event("-1") },
    { "a large number", HEAD "9007199254740991" LISTEN,
      event("9007199254740991") },
    { "a string", HEAD "\"a-1\"" LISTEN, event("\"a-1\"") },
    { "an empty string", HEAD "\"\"" LISTEN, event("\"\"") },
    { "line ends in a string", HEAD "\"a\\n\\nb\\r\"" LISTEN,
      event("\"a\\n\\nb\\r\"") },
    { "other characters", HEAD "\"\xc3\xbc\\u2028\"" LISTEN,
      event("\"\xc3\xbc\xe2\x80\xa8\"") },
    { "a BOM", "\xef\xbb\xbf" HEAD "7" LISTEN, event("7") },

    { "too large a number", HEAD "9007199254740993" LISTEN, NULL },
    { "a fraction", HEAD "1.5" LISTEN, NULL },
    { "null", HEAD "null" LISTEN, NULL },
    { "an object", HEAD "{}" LISTEN, NULL },
    { "true", HEAD "true" LISTEN, NULL },
    { "no id", "{\"method\":\"subscriptions/listen\"}", NULL },
    { "another method", HEAD "1,\"method\":\"tools/call\"}", NULL },
    { "no method", HEAD "1}", NULL },
    { "a method that is none", HEAD "1,\"method\":1}", NULL },
    { "an array", "[" HEAD "1" LISTEN "]", NULL },
    { "half of it", HEAD "1,\"method\":\"subscriptions/listen\"", NULL },
    { "nothing", "", NULL },
};


static void
test_cases(void)
{
    char            name[128], buf[512];
    size_t          i, n, want;
    unsigned char  *body;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {

        body = tap_edge(cases[i].body, strlen(cases[i].body));
        n = mcp_rpc_complete(buf, sizeof(buf), body, strlen(cases[i].body));
        want = cases[i].event ? strlen(cases[i].event) : 0;

        snprintf(name, sizeof(name), "%s: %s", cases[i].name,
                 want ? "the event" : "none");

        ok(n == want && (n == 0 || memcmp(buf, cases[i].event, n) == 0), name);
    }
}


/* Every size of the buffer: all of the event, or nothing. */

static void
test_sizes(void)
{
    char    buf[512];
    size_t  size, n, want, wrong;

    wrong = 0;
    want = strlen(event("40"));

    for (size = 0; size <= sizeof(buf); size++) {
        memset(buf, '#', sizeof(buf));

        n = mcp_rpc_complete(buf, size, (unsigned char *) HEAD "40" LISTEN,
                             strlen(HEAD "40" LISTEN));

        wrong += (n != (size < want ? 0 : want));
        wrong += (size < sizeof(buf) && buf[size] != '#');
    }

    ok(wrong == 0, "whole or nothing in a buffer of any size");
}


static void
test_limits(void)
{
    char            buf[512];
    unsigned char  *body;

    ok(mcp_rpc_complete(buf, sizeof(buf), NULL, 0) == 0, "no body: none");

    body = malloc(MCP_RPC_HEAD_MAX + 1);
    if (body == NULL) {
        return;
    }

    memset(body, ' ', MCP_RPC_HEAD_MAX + 1);
    memcpy(body, HEAD "40" LISTEN, strlen(HEAD "40" LISTEN));

    ok(mcp_rpc_complete(buf, sizeof(buf), body, MCP_RPC_HEAD_MAX) != 0,
       "64 KiB: the event");
    ok(mcp_rpc_complete(buf, sizeof(buf), body, MCP_RPC_HEAD_MAX + 1) == 0,
       "longer: none");

    free(body);
}


int
main(void)
{
    test_cases();
    test_sizes();
    test_limits();

    return tap_done();
}
