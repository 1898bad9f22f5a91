
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <jansson.h>

#include "tap.h"
#include "mcp_start.h"


#define HEAD    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\""
#define PARAMS  "{\"capabilities\":{\"roots\":{\"listChanged\":true}},"       \
                "\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"},"          \
                "\"protocolVersion\":\"2025-06-18\"}"
#define ASKED   HEAD ",\"params\":" PARAMS "}"

#define RESULT(tools)                                                         \
    "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-1\",\"result\":{"                    \
    "\"protocolVersion\":\"2025-06-18\",\"capabilities\":{" tools "},"        \
    "\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"
#define CHANGES  "\"tools\":{\"listChanged\":true}"
#define VERSION(v)                                                            \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":" v "}}"
#define NOTICE                                                                \
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\","        \
    "\"params\":{\"result\":{\"protocolVersion\":\"1999-01-01\"}}}\n\n"


static long  allocations;


static void *
scarce_malloc(size_t size)
{
    return (allocations-- > 0) ? malloc(size) : NULL;
}


/* Memory of exactly "size" bytes to write to. */

static char *
room(size_t size)
{
    static char  blank[MCP_START_BODY_MAX * 2];

    memset(blank, '.', sizeof(blank));

    return (char *) tap_edge(blank, size);
}


/* ---- what a client asks for ---- */

static const struct {
    const char  *name;
    const char  *body;
    const char  *params;                        /* NULL: none */
} asked[] = {

    { "as a client sends it", ASKED, PARAMS },
    { "other order and blanks",
      " {\r\n\t\"params\" : { \"protocolVersion\": \"2025-06-18\", "
      "\"clientInfo\":{\"version\":\"1\",\"name\":\"c\"},"
      "\"capabilities\":{\"roots\":{\"listChanged\":true}} } ,"
      "\"method\":\"initialize\", \"id\":\"x\",\"jsonrpc\":\"2.0\"} ", PARAMS },
    { "empty params", HEAD ",\"params\":{}}", "{}" },
    { "numbers, null, lists", HEAD ",\"params\":{\"b\":[1,-2.5,null,true],"
      "\"a\":{\"z\":[],\"y\":{}}}}",
      "{\"a\":{\"y\":{},\"z\":[]},\"b\":[1,-2.5,null,true]}" },
    { "text of all kinds", HEAD ",\"params\":{\"a\":\"\\\"\\\\ \\u00e4 \xc3\xa4"
      " \\u263a\"}}",
      "{\"a\":\"\\\"\\\\ \xc3\xa4 \xc3\xa4 \xe2\x98\xba\"}" },
    { "another method", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":"
      "\"tools/call\",\"params\":{\"name\":\"initialize\"}}", NULL },
    { "a notification that follows", "{\"jsonrpc\":\"2.0\",\"method\":"
      "\"notifications/initialized\",\"params\":{}}", NULL },
    { "no params", HEAD "}", NULL },
    { "an answer", RESULT(CHANGES), NULL },
    { "nothing", "", NULL },
    { "blanks", "  \n", NULL },
    { "no JSON", "initialize", NULL },
    { "half of it", HEAD ",\"params\":{", NULL },
    { "more than it", ASKED "x", NULL },
    { "a number", "17", NULL },
    { "null", "null", NULL },
    { "broken UTF-8", HEAD ",\"params\":{\"a\":\"\xff\"}}", NULL },
};


static void
test_params(void)
{
    char         *buf;
    size_t        i, len, got;
    const char   *body, *want;

    for (i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        body = asked[i].body;
        want = asked[i].params;
        len = want ? strlen(want) : 0;

        {
            char  out[MCP_START_PARAMS_MAX];

            got = mcp_start_params(tap_edge(body, strlen(body)), strlen(body),
                                   out, sizeof(out));

            if (!ok(got == len && (len == 0 || memcmp(out, want, len) == 0),
                    asked[i].name))
            {
                printf("# %.*s\n", (int) got, out);
            }
        }

        if (len == 0) {
            continue;
        }

        /* all of it, or nothing */

        buf = room(len);

        ok(mcp_start_params((const unsigned char *) body, strlen(body), buf,
                            len) == len
           && memcmp(buf, want, len) == 0, "just fits");

        ok(mcp_start_params((const unsigned char *) body, strlen(body),
                            room(len - 1), len - 1) == 0, "a byte too few");

        ok(mcp_start_params((const unsigned char *) body, strlen(body),
                            room(0), 0) == 0, "no room");
    }
}


/* Around the limit of what is kept. */

static void
test_params_long(void)
{
    int     good;
    char    body[3 * MCP_START_PARAMS_MAX], out[MCP_START_PARAMS_MAX];
    size_t  n, got, len;

    good = 1;

    for (n = MCP_START_PARAMS_MAX - 20; n < MCP_START_PARAMS_MAX + 20; n++) {
        len = snprintf(body, sizeof(body), HEAD ",\"params\":{\"a\":\"%*s\"}}",
                       (int) n - 8, "x");
        got = mcp_start_params((unsigned char *) body, len, out, sizeof(out));

        good &= (got == ((n <= MCP_START_PARAMS_MAX) ? n : 0));
    }

    ok(good, "kept up to the limit, and not beyond");

    /* what is long on the wire may be short */

    len = snprintf(body, sizeof(body), HEAD ",\"params\":%*s{}}", 4000, "");
    got = mcp_start_params((unsigned char *) body, len, out, sizeof(out));

    is_int(got, 2, "blanks are not kept");
}


/* ---- what is sent in its place ---- */

static void
test_build(void)
{
    int          good;
    char        *buf, whole[512];
    size_t       n, len, params, got;
    const char  *then;

    params = strlen(PARAMS);

    len = mcp_start_initialize(whole, sizeof(whole), "mcpka-1",
                               (char *) tap_edge(PARAMS, params), params);

    ok(len > params && len < sizeof(whole), "initialize: built");

    whole[len] = '\0';

    is_str(whole, "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-1\",\"method\":"
                  "\"initialize\",\"params\":" PARAMS "}", "initialize");

    good = 1;

    for (n = 0; n <= len; n++) {
        buf = room(n);
        got = mcp_start_initialize(buf, n, "mcpka-1", PARAMS, params);
        good &= (n < len) ? (got == 0)
                          : (got == len && memcmp(buf, whole, len) == 0);
    }

    ok(good, "initialize: whole or not at all");

    ok(mcp_start_initialize(whole, sizeof(whole), "x", "", 0) == 0,
       "initialize: no params");
    ok(mcp_start_initialize(whole, sizeof(whole), "x", "{\"a\":", 5) == 0,
       "initialize: broken params");

    then = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";

    len = mcp_start_initialized(whole, sizeof(whole));
    whole[len] = '\0';

    is_str(whole, then, "initialized");

    good = 1;

    for (n = 0; n <= len; n++) {
        buf = room(n);
        got = mcp_start_initialized(buf, n);
        good &= (n < len) ? (got == 0)
                          : (got == len && memcmp(buf, then, len) == 0);
    }

    ok(good, "initialized: whole or not at all");
}


/* What was kept is asked for again: the same comes of it. */

static void
test_round(void)
{
    char    body[MCP_START_BODY_MAX], longest[MCP_START_PARAMS_MAX + 1];
    char    out[MCP_START_PARAMS_MAX];
    size_t  i, len, n;

    for (i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        if (asked[i].params == NULL) {
            continue;
        }

        n = strlen(asked[i].params);
        len = mcp_start_initialize(body, sizeof(body), "mcpka-2",
                                   asked[i].params, n);

        ok(len != 0
           && mcp_start_params((unsigned char *) body, len, out, sizeof(out))
              == n
           && memcmp(out, asked[i].params, n) == 0, "there and back");
    }

    snprintf(longest, sizeof(longest), "{\"a\":\"%*s\"}",
             MCP_START_PARAMS_MAX - 8, "x");
    len = mcp_start_initialize(body, sizeof(body),
                               "mcpka-0123456789abcdef0123456789abcdef",
                               longest, MCP_START_PARAMS_MAX);

    ok(len > MCP_START_PARAMS_MAX, "the longest params fit");
}


/* ---- the answer ---- */

typedef struct {
    const char   *name;
    mcp_media_t   media;
    const char   *body;
    int           found;
    int           list_changed;
    const char   *version;
} answer_t;


static const answer_t  answers[] = {

    { "JSON", MCP_MEDIA_JSON, RESULT(CHANGES), 1, 1, "2025-06-18" },
    { "JSON, no tools", MCP_MEDIA_JSON, RESULT(""), 1, 0, "2025-06-18" },
    { "JSON, tools that do not change", MCP_MEDIA_JSON, RESULT("\"tools\":{}"),
      1, 0, "2025-06-18" },
    { "JSON, false", MCP_MEDIA_JSON,
      RESULT("\"tools\":{\"listChanged\":false}"), 1, 0, "2025-06-18" },
    { "JSON, no boolean", MCP_MEDIA_JSON,
      RESULT("\"tools\":{\"listChanged\":\"true\"}"), 1, 0, "2025-06-18" },
    { "JSON, a list", MCP_MEDIA_JSON, RESULT("\"tools\":[true]"), 1, 0,
      "2025-06-18" },
    { "JSON, other lists change", MCP_MEDIA_JSON,
      RESULT("\"prompts\":{\"listChanged\":true},"
             "\"resources\":{\"listChanged\":true}"), 1, 0, "2025-06-18" },
    { "JSON, blanks around", MCP_MEDIA_JSON, " \n" RESULT(CHANGES) "\r\n ",
      1, 1, "2025-06-18" },
    { "JSON, members in another order", MCP_MEDIA_JSON,
      "{\"result\":{\"serverInfo\":{},\"capabilities\":{" CHANGES "},"
      "\"protocolVersion\":\"2025-11-25\"},\"jsonrpc\":\"2.0\",\"id\":3}",
      1, 1, "2025-11-25" },

    { "no version", MCP_MEDIA_JSON,
      "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 1, 0, "" },
    { "a version of 15 bytes", MCP_MEDIA_JSON, VERSION("\"123456789012345\""),
      1, 0, "123456789012345" },
    { "a version of 16 bytes", MCP_MEDIA_JSON, VERSION("\"1234567890123456\""),
      1, 0, "" },
    { "an empty version", MCP_MEDIA_JSON, VERSION("\"\""), 1, 0, "" },
    { "a number for a version", MCP_MEDIA_JSON, VERSION("20250618"), 1, 0, "" },
    { "null for a version", MCP_MEDIA_JSON, VERSION("null"), 1, 0, "" },

    { "an error", MCP_MEDIA_JSON, "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":"
      "{\"code\":-32602,\"message\":\"Unsupported protocol version\"}}",
      0, 0, "" },
    { "a request", MCP_MEDIA_JSON, ASKED, 0, 0, "" },
    { "a notification", MCP_MEDIA_JSON, "{\"jsonrpc\":\"2.0\",\"method\":"
      "\"x\",\"params\":{\"result\":{}}}", 0, 0, "" },
    { "nothing", MCP_MEDIA_JSON, "", 0, 0, "" },
    { "half", MCP_MEDIA_JSON, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{", 0,
      0, "" },
    { "garbage", MCP_MEDIA_JSON, "\x01\x02garbage", 0, 0, "" },
    { "HTML", MCP_MEDIA_HTML, "<html>\"result\"</html>", 0, 0, "" },
    { "a number", MCP_MEDIA_JSON, "5", 0, 0, "" },
    { "null", MCP_MEDIA_JSON, "null", 0, 0, "" },
    { "no object", MCP_MEDIA_JSON, "[]", 0, 0, "" },

    { "SSE", MCP_MEDIA_SSE, "data: " RESULT(CHANGES) "\n\n", 1, 1,
      "2025-06-18" },
    { "SSE, CR LF", MCP_MEDIA_SSE, "event: message\r\ndata: " RESULT("")
      "\r\n\r\n", 1, 0, "2025-06-18" },
    { "SSE, an empty event first", MCP_MEDIA_SSE,
      "id: x_1\nretry: 2000\ndata: \n\nid: x_2\ndata: " RESULT(CHANGES) "\n\n",
      1, 1, "2025-06-18" },
    { "SSE, a notification first", MCP_MEDIA_SSE,
      NOTICE NOTICE "data: " RESULT(CHANGES) "\n\n", 1, 1, "2025-06-18" },
    { "SSE, no JSON first", MCP_MEDIA_SSE,
      "data: hello\n\n: hb\n\ndata: " RESULT(CHANGES) "\n\n", 1, 1,
      "2025-06-18" },
    { "SSE, over two lines", MCP_MEDIA_SSE,
      "data: {\"jsonrpc\":\"2.0\",\"id\":1,\ndata: \"result\":"
      "{\"protocolVersion\":\"2025-03-26\"}}\n\n", 1, 0, "2025-03-26" },
    { "SSE, an error", MCP_MEDIA_SSE, "data: {\"jsonrpc\":\"2.0\",\"id\":1,"
      "\"error\":{\"code\":-32600,\"message\":\"no\"}}\n\n", 0, 0, "" },
    { "SSE, only notifications", MCP_MEDIA_SSE, NOTICE NOTICE, 0, 0, "" },
    { "SSE, only comments", MCP_MEDIA_SSE, ": a\n\n: b\n\n", 0, 0, "" },
    { "SSE, the event does not end", MCP_MEDIA_SSE, "data: " RESULT(CHANGES)
      "\n", 0, 0, "" },
    { "SSE, nothing", MCP_MEDIA_SSE, "", 0, 0, "" },
};


/* In pieces that end at "first" and "second"; returns what feed said last. */

static int
read_in(const answer_t *t, size_t first, size_t second, mcp_start_answer_t *a)
{
    int                  rc;
    size_t               len;
    mcp_start_reader_t  *r;

    memset(a, 0x55, sizeof(mcp_start_answer_t));

    len = strlen(t->body);
    r = mcp_start_create(t->media);

    rc = mcp_start_feed(r, tap_edge(t->body, first), first);
    rc |= mcp_start_feed(r, tap_edge(t->body + first, second - first),
                         second - first);
    rc |= mcp_start_feed(r, tap_edge(t->body + second, len - second),
                         len - second);

    mcp_start_finish(r, a);
    mcp_start_destroy(r);

    return rc;
}


static int
is_right(const answer_t *t, const mcp_start_answer_t *a)
{
    return (int) a->found == t->found
           && (!t->found || ((int) a->list_changed == t->list_changed
                             && strcmp(a->version, t->version) == 0));
}


static void
test_answers(void)
{
    int                  good, rc;
    size_t               i, n, m, len;
    mcp_start_answer_t   a;
    const answer_t      *t;

    for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        t = &answers[i];
        len = strlen(t->body);

        rc = read_in(t, 0, len, &a);

        if (!ok(is_right(t, &a), t->name)) {
            printf("# found %d, list %d, version \"%.15s\"\n", a.found,
                   a.list_changed, a.version);
        }

        if (t->media == MCP_MEDIA_SSE) {
            is_int(rc, t->found, "feed says when it is in");
        }

        good = 1;

        for (n = 0; n <= len; n++) {
            for (m = n; m <= len; m += 1 + len / 20) {
                read_in(t, n, m, &a);
                good &= is_right(t, &a);
            }
        }

        ok(good, "however it is cut");
    }
}


/* More than is looked at. */

static void
test_long(void)
{
    char                *body;
    size_t               len, i;
    mcp_start_answer_t   a;
    mcp_start_reader_t  *r;

    len = 4 * MCP_RPC_HEAD_MAX;
    body = malloc(len + 1);

    /* an event that is too long, then the answer */

    memset(body, 'x', len);
    memcpy(body, "data: ", 6);

    r = mcp_start_create(MCP_MEDIA_SSE);

    is_int(mcp_start_feed(r, (unsigned char *) body, len), 0, "a long event");
    is_int(mcp_start_feed(r, (unsigned char *) "\n\n", 2), 0, "its end");
    is_int(mcp_start_feed(r, (unsigned char *) "data: " RESULT(CHANGES) "\n\n",
                          strlen("data: " RESULT(CHANGES) "\n\n")), 1,
           "an answer after it");
    is_int(mcp_start_feed(r, (unsigned char *) "data: x\n\n", 9), 1,
           "and more after that");

    mcp_start_finish(r, &a);
    ok(a.found && a.list_changed && strcmp(a.version, "2025-06-18") == 0,
       "it is read");
    mcp_start_destroy(r);

    /* bodies that never end, byte by byte */

    for (i = 0; i < 2; i++) {
        r = mcp_start_create(i ? MCP_MEDIA_SSE : MCP_MEDIA_JSON);

        for (len = 0; len < 2 * MCP_RPC_HEAD_MAX; len++) {
            mcp_start_feed(r, (unsigned char *) "{", 1);
        }

        mcp_start_finish(r, &a);
        is_int(a.found, 0, "no end");
        mcp_start_destroy(r);
    }

    /* nothing was fed */

    r = mcp_start_create(MCP_MEDIA_NONE);
    mcp_start_finish(r, &a);
    ok(a.found == 0 && a.list_changed == 0 && a.version[0] == '\0',
       "nothing at all");
    mcp_start_destroy(r);
    mcp_start_destroy(NULL);

    free(body);
}


static void
test_no_memory(void)
{
    int                  good;
    char                 buf[512];
    long                 n, m;
    size_t               len;
    mcp_start_answer_t   a;

    json_set_alloc_funcs(scarce_malloc, free);

    len = strlen(ASKED);
    good = 1;

    for (n = 0; n < 1000; n++) {
        allocations = n;

        if (mcp_start_params((unsigned char *) ASKED, len, buf, sizeof(buf))
            != 0)
        {
            break;
        }
    }

    allocations = 1000;
    good &= (mcp_start_params((unsigned char *) ASKED, len, buf, sizeof(buf))
             == strlen(PARAMS));

    ok(good && n > 5 && n < 1000, "params: whole or not at all");

    for (n = 0; n < 1000; n++) {
        allocations = n;

        if (mcp_start_initialize(buf, sizeof(buf), "x", PARAMS, strlen(PARAMS))
            != 0)
        {
            break;
        }
    }

    ok(n > 5 && n < 1000, "initialize: whole or not at all");

    for (m = 0; m < 1000; m++) {
        allocations = m;
        read_in(&answers[0], 0, 10, &a);

        if (a.found) {
            break;
        }
    }

    ok(m > 5 && m < 1000 && a.list_changed
       && strcmp(a.version, "2025-06-18") == 0,
       "an answer is read whole or not at all");

    json_set_alloc_funcs(malloc, free);
}


int
main(void)
{
    test_params();
    test_params_long();
    test_build();
    test_round();
    test_answers();
    test_long();
    test_no_memory();

    return tap_done();
}
