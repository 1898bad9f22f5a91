
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"
#include "mcp_modern.h"
#include "mcp_rpc.h"


#define ID  "mcpka-7f"


static void
test_is(void)
{
    size_t  i, len;

    static const struct {
        const char  *version;
        int          modern;
    } versions[] = {
        { "2026-07-28", 1 },
        { "2026-07-29", 1 },
        { "2026-10-01", 1 },
        { "2099-01-01", 1 },
        { "9999-99-99", 1 },
        { "2026-07-27", 0 },
        { "2025-11-25", 0 },
        { "2025-06-18", 0 },
        { "1999-01-01", 0 },
        { "0000-00-00", 0 },
        { "2026-7-28", 0 },
        { "2026-07-281", 0 },
        { "2026-07-28 ", 0 },
        { " 2026-07-28", 0 },
        { "2026/07/28", 0 },
        { "2026-07/28", 0 },
        { "latest....", 0 },
        { "2026-07:28", 0 },
        { "2026-07-2x", 0 },
        { "202a-07-28", 0 },
        { "2026-07-28, 2025-06-18", 0 },
        { "DRAFT-2026", 0 },
        { "draft", 0 },
        { "1.0", 0 },
        { "", 0 },
    };

    for (i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        len = strlen(versions[i].version);

        is_int(mcp_modern_is((char *) tap_edge(versions[i].version, len),
                             len),
               versions[i].modern, versions[i].version);
    }
}


static void
test_kind(void)
{
    size_t  i, len;

    static const struct {
        const char        *method;
        mcp_modern_kind_t  kind;
    } methods[] = {
        { "tools/list", MCP_MODERN_PROMPT },
        { "server/discover", MCP_MODERN_PROMPT },
        { "subscriptions/listen", MCP_MODERN_LISTEN },
        { "initialize", MCP_MODERN_INITIALIZE },
        { "tools/lists", MCP_MODERN_OTHER },
        { "tools/lis", MCP_MODERN_OTHER },
        { "tools/call", MCP_MODERN_OTHER },
        { "Tools/list", MCP_MODERN_OTHER },
        { "", MCP_MODERN_OTHER },
    };

    for (i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        len = strlen(methods[i].method);

        is_int(mcp_modern_kind((char *) tap_edge(methods[i].method, len),
                               len),
               methods[i].kind, methods[i].method);
    }

    ok(mcp_modern_speaks("2026-07-28"), "spoken");
    ok(!mcp_modern_speaks("2099-01-01"), "not spoken");
    ok(!mcp_modern_speaks("2025-11-25"), "legacy is another protocol");
}


/* Which version does the server want instead? */

static void
test_version(void)
{
    size_t             i, len;
    const char        *body;
    mcp_rpc_answer_t   answer;
    mcp_rpc_reader_t  *r;

    static const struct {
        const char  *name;
        const char  *error;
        const char  *version;
    } errors[] = {
        { "one, which we speak",
          "{\"code\":-32022,\"message\":\"no\",\"data\":"
          "{\"supported\":[\"2026-07-28\"],\"requested\":\"2099-01-01\"}}",
          "2026-07-28" },
        { "among others",
          "{\"code\":-32022,\"message\":\"no\",\"data\":{\"supported\":"
          "[\"2025-11-25\",\"2099-01-01\",\"2026-07-28\",null,7]}}",
          "2026-07-28" },
        { "none that we speak",
          "{\"code\":-32022,\"message\":\"no\",\"data\":"
          "{\"supported\":[\"2025-11-25\",\"2099-01-01\"]}}", "" },
        { "an empty list",
          "{\"code\":-32022,\"data\":{\"supported\":[]}}", "" },
        { "no list",
          "{\"code\":-32022,\"data\":{\"supported\":\"2026-07-28\"}}", "" },
        { "no data", "{\"code\":-32022,\"message\":\"no\"}", "" },
        { "data of another kind", "{\"code\":-32022,\"data\":3}", "" },
        { "another code",
          "{\"code\":-32020,\"data\":{\"supported\":[\"2026-07-28\"]}}", "" },
    };

    char  text[512];

    for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        len = snprintf(text, sizeof(text),
                       "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"error\":%s}", ID,
                       errors[i].error);
        body = (char *) tap_edge(text, len);

        memset(&answer, 0xff, sizeof(mcp_rpc_answer_t));

        r = mcp_rpc_reader_create(MCP_MEDIA_JSON, ID, len);
        (void) mcp_rpc_reader_feed(r, (unsigned char *) body, len);
        mcp_rpc_reader_finish(r, &answer);

        is_str(answer.version, errors[i].version, errors[i].name);

        mcp_rpc_reader_destroy(r);
    }

    len = snprintf(text, sizeof(text),
                   "[{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":%s},"
                   "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"result\":{}}]",
                   errors[0].error, ID);

    r = mcp_rpc_reader_create(MCP_MEDIA_JSON, ID, len);
    (void) mcp_rpc_reader_feed(r, (unsigned char *) text, len);
    mcp_rpc_reader_finish(r, &answer);

    is_int(answer.kind, MCP_RPC_RESULT, "an answer beside an error");
    is_str(answer.version, "", "and the error is forgotten");

    mcp_rpc_reader_destroy(r);
}


int
main(void)
{
    test_is();
    test_kind();
    test_version();

    return tap_done();
}
