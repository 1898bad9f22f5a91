
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"

#include <stdint.h>
#include <jansson.h>

#include "mcp_rpc.h"
#include "mcp_rpc_head.h"


#define ID  "mcpka-7f"
#define MB  (1024 * 1024)


#define RESULT  "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"result\":{}}"
#define HEAD    "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"result\":\""
#define BOM     "\xef\xbb\xbf"


typedef struct {
    const char       *name;
    mcp_media_t       media;
    const char       *body;
    mcp_rpc_kind_t    kind;
    mcp_rpc_id_t      id;
    long long         code;
    const char       *message;
    unsigned          others;
    unsigned          json;
    unsigned          object;
} answer_t;


#define J  MCP_MEDIA_JSON
#define S  MCP_MEDIA_SSE
#define NOTHING  MCP_RPC_NOTHING, MCP_RPC_ID_MISSING, 0, ""
#define FINE     MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0, ""


static const answer_t  answers[] = {

    /* JSON bodies */

    { "a result", J, RESULT, FINE, 0, 1, 1 },
    { "members in another order", J,
      "{\"result\":{\"tools\":[]},\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\"}",
      FINE, 0, 1, 1 },
    { "our id needs no jsonrpc", J, "{\"id\":\"mcpka-7f\",\"result\":1}",
      FINE, 0, 1, 0 },
    { "a null result is a result", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"result\":null}",
      FINE, 0, 1, 1 },
    { "a null error is none", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"result\":1,\"error\":null}",
      FINE, 0, 1, 1 },
    { "B56: id 0", J, "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}",
      MCP_RPC_RESULT, MCP_RPC_ID_FOREIGN, 0, "", 0, 1, 1 },
    { "B56: id null", J, "{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}",
      MCP_RPC_RESULT, MCP_RPC_ID_NULL, 0, "", 0, 1, 1 },
    { "no id", J, "{\"jsonrpc\":\"2.0\",\"result\":{}}",
      MCP_RPC_RESULT, MCP_RPC_ID_MISSING, 0, "", 0, 1, 1 },
    { "another string id", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7\",\"result\":{}}",
      MCP_RPC_RESULT, MCP_RPC_ID_FOREIGN, 0, "", 0, 1, 1 },
    { "our id and a NUL", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\\u0000\",\"result\":{}}",
      MCP_RPC_RESULT, MCP_RPC_ID_FOREIGN, 0, "", 0, 1, 1 },
    { "B10: id server-error", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"server-error\",\"error\":"
      "{\"code\":-32600,\"message\":\"Session not found\"}}",
      MCP_RPC_ERROR, MCP_RPC_ID_FOREIGN, -32600, "Session not found",
      0, 1, 1 },
    { "B01: id null", J,
      "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32001,"
      "\"message\":\"Session not found\"},\"id\":null}",
      MCP_RPC_ERROR, MCP_RPC_ID_NULL, -32001, "Session not found", 0, 1, 1 },
    { "B20: no jsonrpc, a reserved code", J,
      "{\"error\":{\"code\":-32001,\"message\":\"Unauthorized\"}}",
      MCP_RPC_ERROR, MCP_RPC_ID_MISSING, -32001, "Unauthorized", 0, 1, 0 },
    { "another API's error", J,
      "{\"error\":{\"code\":404,\"message\":\"Not found\"}}", NOTHING,
      1, 1, 0 },
    { "another API's result", J, "{\"result\":\"success\"}", NOTHING,
      1, 1, 0 },
    { "B07: a string in error", J, "{\"error\":\"Error POSTing\"}", NOTHING,
      1, 1, 0 },
    { "a string in a JSON-RPC error", J,
      "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":\"oops\"}",
      MCP_RPC_ERROR, MCP_RPC_ID_FOREIGN, 0, "oops", 0, 1, 1 },
    { "B50: error code 0", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"error\":{\"code\":0,"
      "\"message\":\"method \\\"tools/list\\\" is invalid\"}}",
      MCP_RPC_ERROR, MCP_RPC_ID_OURS, 0, "method 'tools/list' is invalid",
      0, 1, 1 },
    { "a code below all", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"error\":{\"code\":-1e300}}",
      MCP_RPC_ERROR, MCP_RPC_ID_OURS, 0, "", 0, 1, 1 },
    { "another API's code", J, "{\"error\":{\"code\":-40000}}", NOTHING,
      1, 1, 0 },
    { "no code, no message", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"error\":{}}",
      MCP_RPC_ERROR, MCP_RPC_ID_OURS, 0, "", 0, 1, 1 },
    { "a message that is none, a code beyond all", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"error\":{\"code\":1e300,"
      "\"message\":[]}}",
      MCP_RPC_ERROR, MCP_RPC_ID_OURS, 0, "", 0, 1, 1 },
    { "B11: neither result nor error", J, "{\"jsonrpc\":\"2.0\",\"id\":1}",
      NOTHING, 1, 1, 1 },
    { "a request is no answer", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"method\":\"ping\","
      "\"result\":{}}", NOTHING, 1, 1, 1 },
    { "B57: null", J, "null", NOTHING, 1, 1, 0 },
    { "a string", J, "\"result\"", NOTHING, 1, 1, 0 },
    { "B57: empty", J, "", NOTHING, 0, 0, 0 },
    { "HTML", MCP_MEDIA_HTML, "<html></html>", NOTHING, 0, 0, 0 },
    { "cut", J, "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"result\":{}",
      NOTHING, 0, 0, 0 },
    { "something behind it", J, RESULT "x", NOTHING, 0, 0, 0 },
    { "white space around it", J, " \r\n" RESULT "\n", FINE, 0, 1, 1 },
    { "B98: one BOM", J, BOM RESULT, FINE, 0, 1, 1 },
    { "B98: two BOMs", J, BOM BOM RESULT, NOTHING, 0, 0, 0 },
    { "a BOM alone", J, BOM, NOTHING, 0, 0, 0 },
    { "not UTF-8", J, "{\"jsonrpc\":\"2.0\",\"result\":\"\xff\"}", NOTHING,
      0, 0, 0 },
    { "a number beyond 64 bits in a schema", J,
      "{\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"result\":{\"tools\":["
      "{\"maximum\":18446744073709551615}]}}", FINE, 0, 1, 1 },
    { "text/plain is read as well", MCP_MEDIA_TEXT, RESULT, FINE, 0, 1, 1 },

    /* arrays */

    { "B61: an array that holds our id", J,
      "[{\"jsonrpc\":\"2.0\",\"method\":\"n\"}," RESULT "]", FINE, 1, 1, 1 },
    { "ours is taken before others", J,
      "[{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1}},"
      "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1}," RESULT ","
      "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":1}]", FINE, 3, 1, 1 },
    { "a result is taken before an error", J,
      "[{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1}},"
      "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1}]",
      MCP_RPC_RESULT, MCP_RPC_ID_FOREIGN, 0, "", 1, 1, 1 },
    { "an empty array", J, "[]", NOTHING, 0, 1, 0 },
    { "an array of rubbish", J, "[1,\"a\",null,[" RESULT "]]", NOTHING,
      4, 1, 0 },

    /* event streams */

    { "a result in a stream", S, "data: " RESULT "\n\n", FINE, 0, 1, 1 },
    { "with an event name", S, "event: message\ndata: " RESULT "\n\n",
      FINE, 0, 1, 1 },
    { "B84: CR LF", S, "event: message\r\ndata: " RESULT "\r\n\r\n",
      FINE, 0, 1, 1 },
    { "B84: CR", S, "data: " RESULT "\r\r", FINE, 0, 1, 1 },
    { "B98: a BOM", S, BOM "data: " RESULT "\n\n", FINE, 0, 1, 1 },
    { "B98: two BOMs in a stream", S, BOM BOM "data: " RESULT "\n\n",
      NOTHING, 0, 0, 0 },
    { "B86: several lines", S,
      "data: {\"jsonrpc\":\"2.0\",\ndata:  \"id\":\"mcpka-7f\",\"result\":"
      "{\"tools\":[{\"name\":\"\xe5\x8c\x97\"}]}}\n\n", FINE, 0, 1, 1 },
    { "B87: no line breaks", S,
      "data: {\"id\":\"mcpka-7f\",\"result\":\"\xe2\x80\xa8\xc2\x85\"}\n\n",
      FINE, 0, 1, 0 },
    { "B88: a notification before it", S,
      "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\","
      "\"params\":{}}\n\ndata: " RESULT "\n\n", FINE, 1, 1, 1 },
    { "B89: a priming event before it", S,
      "id: 0\nretry: 3000\ndata:\n\ndata: " RESULT "\n\n", FINE, 1, 1, 1 },
    { "B90: an event that is no JSON", S,
      "event: ping\ndata: ping - 12:00\n\ndata: " RESULT "\n\n",
      FINE, 1, 1, 1 },
    { "B59: the server's own ping", S,
      "data: {\"jsonrpc\":\"2.0\",\"id\":\"mcpka-7f\",\"method\":\"ping\"}"
      "\n\n", NOTHING, 1, 1, 1 },
    { "B95: ended before the answer", S,
      "id: a-1\ndata:\n\nretry: 5000\n\n", NOTHING, 1, 0, 0 },
    { "a foreign result does not end the wait", S,
      "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"
      "data: " RESULT "\n\n", FINE, 1, 1, 1 },
    { "nor does a result with a null id", S,
      "data: {\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}\n\n",
      NOTHING, 1, 1, 1 },
    { "nor a foreign error", S,
      "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001}}\n\n",
      NOTHING, 1, 1, 1 },
    { "an error with a null id does", S,
      "data: {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32001,"
      "\"message\":\"x\"}}\n\ndata: " RESULT "\n\n",
      MCP_RPC_ERROR, MCP_RPC_ID_NULL, -32001, "x", 0, 1, 1 },
    { "an error without an id does", S,
      "data: {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32000}}\n\n",
      MCP_RPC_ERROR, MCP_RPC_ID_MISSING, -32000, "", 0, 1, 1 },
    { "B61: an array in a stream", S,
      "data: [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}," RESULT "]\n\n",
      FINE, 1, 1, 1 },
    { "an event that never ends", S, "data: " RESULT "\n", NOTHING, 0, 0, 0 },
    { "comments only", S, ": hb\n\n: hb\n\n", NOTHING, 0, 0, 0 },
    { "an empty stream", S, "", NOTHING, 0, 0, 0 },
};


static int
same(const answer_t *t, const mcp_rpc_answer_t *a)
{
    return a->kind == t->kind && a->id == t->id && a->code == t->code
           && strcmp(a->message, t->message) == 0 && a->others == t->others
           && a->json == t->json && a->object == t->object && !a->too_big
           && a->empty == (t->body[0] == '\0');
}


static mcp_rpc_rc_t
read_in_two(const answer_t *t, size_t cut, mcp_rpc_answer_t *a)
{
    size_t             len;
    mcp_rpc_rc_t       rc;
    mcp_rpc_reader_t  *r;

    len = strlen(t->body);
    r = mcp_rpc_reader_create(t->media, ID, -1);

    mcp_rpc_reader_feed(r, tap_edge(t->body, cut), cut);

    rc = mcp_rpc_reader_feed(r, tap_edge(t->body + cut, len - cut),
                             len - cut);

    mcp_rpc_reader_finish(r, a);
    mcp_rpc_reader_destroy(r);

    return rc;
}


static void
test_answers(void)
{
    int                good;
    char               name[128];
    size_t             i, k;
    mcp_rpc_rc_t       rc;
    mcp_rpc_answer_t   a;
    const answer_t    *t;

    for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        t = &answers[i];

        rc = read_in_two(t, 0, &a);

        if (!ok(same(t, &a), t->name)) {
            printf("# kind %d id %d code %lld \"%s\" others %u json %d "
                   "object %d\n", a.kind, a.id, a.code, a.message, a.others,
                   a.json, a.object);
        }

        snprintf(name, sizeof(name), "%s: done or not", t->name);
        is_int(rc, (t->media == S && t->kind != MCP_RPC_NOTHING)
                   ? MCP_RPC_DONE : MCP_RPC_AGAIN, name);

        good = 1;

        for (k = 0; k <= strlen(t->body); k++) {
            read_in_two(t, k, &a);
            good &= same(t, &a);
        }

        snprintf(name, sizeof(name), "%s: split anywhere", t->name);
        ok(good, name);
    }
}


static void
test_message(void)
{
    char              body[2048], text[1024];
    answer_t          t;
    mcp_rpc_answer_t  a;

    t.media = J;
    t.body = body;

    snprintf(body, sizeof(body), "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\","
             "\"error\":{\"code\":-1,\"message\":\"%s\"}}",
             "a\\nb\\u0000c\\u007f\\\\d\\\"e\xc3\xa4\\u2028");
    read_in_two(&t, 0, &a);
    is_str(a.message, "a?b?c??d'e?????", "a message is safe to log");

    memset(text, 'x', sizeof(text));
    text[1000] = '\0';
    snprintf(body, sizeof(body), "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\","
             "\"error\":{\"code\":-1,\"message\":\"%s\"}}", text);
    read_in_two(&t, 0, &a);
    is_int(strlen(a.message), MCP_RPC_MESSAGE_MAX - 1, "and is cut");

    snprintf(body, sizeof(body), "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\","
             "\"error\":{\"code\":-1,\"message\":\"%s\"}}",
             "Session 0e285a32-5e48-4180-991d-b721777c00e1 not found, "
             "bearer abc, sessionId=4a8cf1e2b3d4");
    read_in_two(&t, 0, &a);
    is_str(a.message, "Session *** not found, bearer ***, ***",
           "ids and credentials are masked");
}


/* pieces: a head, a filling of x, a tail; returns the reader */

static mcp_rpc_reader_t *
feed_long(mcp_media_t media, long long length, const char *head, size_t fill,
    const char *tail)
{
    size_t             n;
    mcp_rpc_reader_t  *r;

    static unsigned char  x[32768];

    memset(x, 'x', sizeof(x));

    r = mcp_rpc_reader_create(media, ID, length);

    mcp_rpc_reader_feed(r, (const unsigned char *) head, strlen(head));

    while (fill != 0) {
        n = fill < sizeof(x) ? fill : sizeof(x);
        mcp_rpc_reader_feed(r, x, n);
        fill -= n;
    }

    mcp_rpc_reader_feed(r, (const unsigned char *) tail, strlen(tail));

    return r;
}


typedef struct {
    const char       *name;
    mcp_media_t       media;
    long long         length;
    const char       *head;
    size_t            fill;
    const char       *tail;
    mcp_rpc_kind_t    kind;
    mcp_rpc_id_t      id;
    unsigned          too_big;
} long_t;


static const long_t  longs[] = {
    { "1 MiB is read whole if it was announced", J, MB,
      HEAD, MB - sizeof(HEAD "\"}") + 1, "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
    { "one byte more is not", J, MB + 1,
      HEAD, MB - sizeof(HEAD "\"}") + 2, "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 1 },
    { "100 KB are read whole if they were announced", J,
      100000 + sizeof("{\"result\":\"\",\"id\":\"" ID "\"}") - 1,
      "{\"result\":\"", 100000, "\",\"id\":\"" ID "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
    { "58 KB of unknown length are read whole", J, -1,
      "{\"result\":\"", 58000, "\",\"id\":\"" ID "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
    { "64 KiB are judged by their head", J, -1,
      "{\"result\":\"", 65536, "\",\"id\":\"" ID "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_MISSING, 1 },
    { "... with something behind it", J, 200000,
      "{\"result\":\"", 100000, "\",\"id\":\"" ID "\"}x",
      MCP_RPC_NOTHING, MCP_RPC_ID_MISSING, 0 },
    { "... cut", J, 200000,
      "{\"result\":\"", 100000, "\",\"id\":\"" ID "\"",
      MCP_RPC_NOTHING, MCP_RPC_ID_MISSING, 0 },
    { "... in an array", J, 200000,
      "[{\"result\":\"", 100000, "\",\"id\":\"" ID "\"}]",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
    { "... with another id", J, 200000,
      "{\"jsonrpc\":\"2.0\",\"result\":\"", 100000, "\",\"id\":1}",
      MCP_RPC_RESULT, MCP_RPC_ID_FOREIGN, 0 },
    { "... another API's", J, 200000,
      "{\"result\":\"", 100000, "\"}",
      MCP_RPC_NOTHING, MCP_RPC_ID_MISSING, 0 },
    { "... that is an error, too", J, 200000,
      "{\"result\":\"", 100000, "\",\"error\":{},\"id\":\"" ID "\"}",
      MCP_RPC_ERROR, MCP_RPC_ID_OURS, 0 },
    { "... that is a request, too", J, 200000,
      "{\"result\":\"", 100000, "\",\"method\":\"m\",\"id\":\"" ID "\"}",
      MCP_RPC_NOTHING, MCP_RPC_ID_MISSING, 0 },
    { "... an error of 100 KB", J, 200000,
      "{\"error\":{\"message\":\"", 100000, "\"},\"id\":\"" ID "\"}",
      MCP_RPC_ERROR, MCP_RPC_ID_OURS, 0 },
    { "more than was announced, too", J, 100000,
      "{\"result\":\"", 200000, "\",\"id\":\"" ID "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_MISSING, 1 },
    { "B44: 5 MB, judged by its head", J, -1,
      "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"result\":\"", 5 * MB, "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 1 },
    { "... with the id at its end", J, -1,
      "{\"result\":{\"tools\":[\"", 5 * MB, "\"]},\"id\":\"" ID "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_MISSING, 1 },
    { "... with a BOM", J, -1, BOM " {\"result\":\"", 2 * MB, "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_MISSING, 1 },
    { "... known by its Content-Length", J, 2 * MB,
      "{\"jsonrpc\":\"2.0\",\"result\":\"", 2 * MB, "\"}",
      MCP_RPC_RESULT, MCP_RPC_ID_MISSING, 1 },
    { "a long error is no result", J, -1,
      "{\"jsonrpc\":\"2.0\",\"error\":{\"result\":\"", 2 * MB, "\"}}",
      MCP_RPC_ERROR, MCP_RPC_ID_MISSING, 1 },
    { "a long text is no result", J, -1,
      "{\"text\":\"\\\"result\\\":1,", 2 * MB, "\"}",
      MCP_RPC_NOTHING, MCP_RPC_ID_MISSING, 1 },
    { "a long page is no result", J, -1, "<html>\"result\":", 2 * MB, "",
      MCP_RPC_NOTHING, MCP_RPC_ID_MISSING, 1 },
    { "a long request is no result", J, -1,
      "{\"method\":\"m\",\"result\":\"", 2 * MB, "\"}",
      MCP_RPC_NOTHING, MCP_RPC_ID_MISSING, 1 },
    { "an event of 58 KB is read whole", S, -1,
      "data: {\"result\":\"", 58000, "\",\"id\":\"" ID "\"}\n\n",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
    { "one of 64 KiB is judged by its head", S, -1,
      "data: {\"result\":\"", 65536, "\",\"id\":\"" ID "\"}\n\n",
      MCP_RPC_RESULT, MCP_RPC_ID_MISSING, 1 },
    { "one of 900 KB is read whole if a length was announced", S, 900100,
      "data: {\"result\":\"", 900000, "\",\"id\":\"" ID "\"}\n\n",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
    { "an event of 5 MB is judged by its head", S, -1,
      "data: {\"result\":\"", 5 * MB, "\",\"id\":\"" ID "\"}\n\n",
      MCP_RPC_RESULT, MCP_RPC_ID_MISSING, 1 },
    { "a long foreign event is skipped", S, -1,
      "data: {\"id\":1,\"result\":\"", 2 * MB, "\"}\n\ndata: " RESULT "\n\n",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
    { "a long notification is skipped", S, -1,
      "data: {\"method\":\"m\",\"params\":\"", 2 * MB,
      "\"}\n\ndata: " RESULT "\n\n", MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
    { "a stream of a known length", S, 2 * MB,
      "data: {\"id\":\"" ID "\",\"result\":\"", 100000, "\"}\n\n",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 1 },
    { "a length that was a lie", J, 2 * MB, RESULT, 0, "",
      MCP_RPC_RESULT, MCP_RPC_ID_OURS, 0 },
};


static long  parsed;                    /* blocks that jansson asked for */


static void *
counting_malloc(size_t size)
{
    parsed++;
    return malloc(size);
}


static void
test_longs(void)
{
    size_t             i, n;
    const long_t      *t;
    mcp_rpc_reader_t  *r;
    mcp_rpc_answer_t   a;

    for (i = 0; i < sizeof(longs) / sizeof(longs[0]); i++) {
        t = &longs[i];

        parsed = 0;
        json_set_alloc_funcs(counting_malloc, free);

        r = feed_long(t->media, t->length, t->head, t->fill, t->tail);
        mcp_rpc_reader_finish(r, &a);

        json_set_alloc_funcs(malloc, free);

        if (!ok(a.kind == t->kind && a.id == t->id
                && a.too_big == t->too_big, t->name))
        {
            printf("# kind %d id %d too_big %d\n", a.kind, a.id, a.too_big);
        }

        n = SIZE_MAX;
        ok(mcp_rpc_reader_head(r, &n) != NULL && (!a.too_big || parsed == 0),
           "a head is not parsed");

        if (t->length == MB) {
            is_int(parsed, 0, "nor is a long result");
        }

        mcp_rpc_reader_destroy(r);
    }
}


static void
test_depth(void)
{
    char             *body;
    size_t            i;
    answer_t          t;
    mcp_rpc_answer_t  a;

    body = malloc(400001);

    for (i = 0; i < 200000; i++) {
        body[i] = '[';
        body[400000 - 1 - i] = ']';
    }

    body[400000] = '\0';

    t.media = J;
    t.body = body;
    read_in_two(&t, 7, &a);
    ok(a.kind == MCP_RPC_NOTHING && !a.json, "200,000 levels of nesting");

    body[200000] = '\0';
    read_in_two(&t, 7, &a);
    ok(a.kind == MCP_RPC_NOTHING && !a.json, "... and never closed");

    free(body);
}


static void
test_head(void)
{
    size_t             n;
    const char        *p;
    mcp_rpc_answer_t   a;
    mcp_rpc_reader_t  *r;

    r = mcp_rpc_reader_create(MCP_MEDIA_TEXT, ID, 17);

    n = 100;
    ok(mcp_rpc_reader_head(r, &n) != NULL && n == 0, "no head yet");

    is_int(mcp_rpc_reader_feed(r, NULL, 0), MCP_RPC_AGAIN, "nothing comes");
    mcp_rpc_reader_feed(r, (const unsigned char *) "session not found", 17);

    n = 100;
    p = mcp_rpc_reader_head(r, &n);
    ok(n == 17 && memcmp(p, "session not found", 17) == 0, "the head");

    n = 7;
    p = mcp_rpc_reader_head(r, &n);
    ok(n == 7 && memcmp(p, "session", 7) == 0, "as much as was asked for");

    mcp_rpc_reader_finish(r, &a);
    mcp_rpc_reader_finish(r, &a);
    ok(a.kind == MCP_RPC_NOTHING && !a.json && !a.empty && a.others == 0,
       "finished twice");

    mcp_rpc_reader_destroy(r);

    r = mcp_rpc_reader_create(MCP_MEDIA_SSE, ID, -1);
    mcp_rpc_reader_feed(r, (const unsigned char *) "no event", 8);
    n = 100;
    p = mcp_rpc_reader_head(r, &n);
    ok(n == 8 && memcmp(p, "no event", 8) == 0, "the head of a stream");
    mcp_rpc_reader_destroy(r);

    r = feed_long(MCP_MEDIA_SSE, -1, ":", 5000, "\n\ndata: " RESULT "\n\n");
    n = SIZE_MAX;
    mcp_rpc_reader_head(r, &n);
    is_int(n, 1024, "... at most 1024 bytes");
    is_int(mcp_rpc_reader_feed(r, (const unsigned char *) "data:x\n\n", 8),
           MCP_RPC_DONE, "bytes after the answer are ignored");
    mcp_rpc_reader_finish(r, &a);
    is_int(a.others, 0, "... and not counted");
    mcp_rpc_reader_destroy(r);

    mcp_rpc_reader_destroy(NULL);
    ok(1, "no reader to free");
}


static void
test_head_scan(void)
{
    int             good;
    size_t          i, k;
    mcp_rpc_head_t  h;

    static const char  text[] =
        " { \"a'b\" : [1,\"\\\"\",{\"result\":2},\"}\\\\\"] , \"n\":-1.5e3,"
        "\"t\":true,\"error\":null,\"jsonrpc\":\"2.0\",\"id\":\"" ID "\" ,"
        "\"x\":{\"id\":1,\"method\":2},\"result\" : {} }";

    static const struct {
        const char    *name;
        const char    *text;
        mcp_rpc_id_t   id;
        int            result, error, method;
    } heads[] = {
        { "all kinds of values", text, MCP_RPC_ID_OURS, 1, 0, 0 },
        { "an array", "[ {\"id\":null,\"result\":[", MCP_RPC_ID_NULL,
          1, 0, 0 },
        { "a number for an id", "{\"id\":7,\"error\":{", MCP_RPC_ID_FOREIGN,
          0, 1, 0 },
        { "a cut id", "{\"result\":1,\"id\":\"mcpka-", MCP_RPC_ID_MISSING,
          1, 0, 0 },
        { "another id", "{\"id\":\"mcpka-7ff\",\"method\":\"",
          MCP_RPC_ID_FOREIGN, 0, 0, 1 },
        { "a cut key", "{\"result", MCP_RPC_ID_MISSING, 0, 0, 0 },
        { "a cut escape", "{\"result\\", MCP_RPC_ID_MISSING, 0, 0, 0 },
        { "no value", "{\"result\":", MCP_RPC_ID_MISSING, 0, 0, 0 },
        { "no colon", "{\"result\",\"result\":1", MCP_RPC_ID_MISSING,
          0, 0, 0 },
        { "no key", "{1:2,\"result\":1", MCP_RPC_ID_MISSING, 0, 0, 0 },
        { "a string", "\"result\":1", MCP_RPC_ID_MISSING, 0, 0, 0 },
        { "after the end", "{}{\"result\":1}", MCP_RPC_ID_MISSING, 0, 0, 0 },
        { "nested only", "{\"a\":{\"result\":1},\"b\":[\"result\",{",
          MCP_RPC_ID_MISSING, 0, 0, 0 },
        { "a missing value", "{\"a\":}{\"result\":1", MCP_RPC_ID_MISSING,
          0, 0, 0 },
        { "white space", "{\t\"id\"\r\n:\t7,\r\n \"error\":[",
          MCP_RPC_ID_FOREIGN, 0, 1, 0 },
        { "nothing", "", MCP_RPC_ID_MISSING, 0, 0, 0 },
    };

    for (i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        k = strlen(heads[i].text);
        mcp_rpc_head_scan(&h, tap_edge(heads[i].text, k), k, ID);
        ok(h.id == heads[i].id && (int) h.result == heads[i].result
           && (int) h.error == heads[i].error
           && (int) h.method == heads[i].method
           && h.whole == (i == 0), heads[i].name);
    }

    good = 1;

    for (k = 0; k <= strlen(text); k++) {
        mcp_rpc_head_scan(&h, tap_edge(text, k), k, ID);
        good &= h.result == (k >= strlen(text) - 3) && !h.error && !h.method;
        good &= h.whole == (k == strlen(text));
    }

    ok(good, "a head cut anywhere");

    mcp_rpc_head_scan(&h, (unsigned char *) "{\"a\":1} \r\n", 10, ID);
    ok(h.whole, "white space at the end");
    mcp_rpc_head_scan(&h, (unsigned char *) "{\"a\":1}{", 8, ID);
    ok(!h.whole, "something at the end");
    mcp_rpc_head_scan(&h, (unsigned char *) "[{\"a\":1}]", 9, ID);
    ok(!h.whole, "an array is not one object");
    mcp_rpc_head_scan(&h, (unsigned char *) "{\"a\":1]", 7, ID);
    ok(!h.whole, "a wrong bracket");
    mcp_rpc_head_scan(&h, (unsigned char *) "{\"a\":}", 6, ID);
    ok(!h.whole, "no value at all");
    mcp_rpc_head_scan(&h, (unsigned char *) "{\"\\u0065\":1}", 12, ID);
    ok(!h.whole, "a name that may be any");
}


/* random bytes and broken samples: no crash, no byte read too many */

static void
test_noise(void)
{
    size_t             i, k, len;
    uint32_t           x;
    const answer_t    *t;
    unsigned char      buf[512], *p;
    mcp_rpc_answer_t   a;
    mcp_rpc_reader_t  *r;

    x = 88675123;

    for (i = 0; i < 20000; i++) {
        t = &answers[i % (sizeof(answers) / sizeof(answers[0]))];
        len = strlen(t->body);
        memcpy(buf, t->body, len);

        for (k = 0; k < 3 && len != 0; k++) {
            x = x * 1664525 + 1013904223;
            buf[(x >> 8) % len] = "\r\n:{}[]\"\\,0\xef \0ax"[(x >> 20) % 16];
        }

        p = tap_edge(buf, len);
        r = mcp_rpc_reader_create(t->media, ID, -1);
        k = len ? x % len : 0;
        mcp_rpc_reader_feed(r, p, k);
        mcp_rpc_reader_feed(r, p + k, len - k);
        mcp_rpc_reader_finish(r, &a);
        mcp_rpc_reader_destroy(r);
    }

    ok(1, "20,000 broken bodies");
}


static void
test_media(void)
{
    size_t  i, n;

    static const struct {
        const char   *value;
        mcp_media_t   media;
    } types[] = {
        { "application/json", MCP_MEDIA_JSON },
        { "application/json;charset=utf-8", MCP_MEDIA_JSON },
        { "Application/JSON ; charset=utf-8", MCP_MEDIA_JSON },
        { " \tapplication/json\t", MCP_MEDIA_JSON },
        { "Text/Event-Stream; charset=UTF-8", MCP_MEDIA_SSE },
        { "text/event-stream", MCP_MEDIA_SSE },
        { "text/html", MCP_MEDIA_HTML },
        { "application/xhtml+xml;q=1", MCP_MEDIA_HTML },
        { "text/plain", MCP_MEDIA_TEXT },
        { "text/event-streams", MCP_MEDIA_TEXT },
        { "application/jsonl", MCP_MEDIA_OTHER },
        { "application/jso", MCP_MEDIA_OTHER },
        { "application/octet-stream", MCP_MEDIA_OTHER },
        { "text", MCP_MEDIA_OTHER },
        { ";charset=utf-8", MCP_MEDIA_NONE },
        { "", MCP_MEDIA_NONE },
        { "  ", MCP_MEDIA_NONE },
    };

    for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        n = strlen(types[i].value);
        is_int(mcp_rpc_media((char *) tap_edge(types[i].value, n), n),
               types[i].media, types[i].value);
    }

    is_int(mcp_rpc_media(NULL, 0), MCP_MEDIA_NONE, "B81: no Content-Type");
}


static void
test_build(void)
{
    char    buf[512];
    size_t  i, n;

    static const char  legacy[] =
        "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"method\":\"tools/list\"}";

    static const char  modern[] =
        "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"method\":\"tools/list\","
        "\"params\":{\"_meta\":{"
        "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
        "\"io.modelcontextprotocol/clientInfo\":"
        "{\"name\":\"ngx_mcp_keepalive_module\",\"version\":\"0.1.0\"},"
        "\"io.modelcontextprotocol/clientCapabilities\":{}}}}";

    n = mcp_rpc_build(buf, sizeof(buf) - 1, "tools/list", ID, NULL);
    buf[n] = '\0';
    is_str(buf, legacy, "B45, B47: a legacy keepalive");

    n = mcp_rpc_build(buf, sizeof(buf) - 1, "tools/list", ID, "2026-07-28");
    buf[n] = '\0';
    is_str(buf, modern, "a modern keepalive");

    n = mcp_rpc_build(buf, sizeof(buf) - 1, "ping", "a\"b", NULL);
    buf[n] = '\0';
    is_str(buf, "{\"jsonrpc\":\"2.0\",\"id\":\"a\\\"b\",\"method\":\"ping\"}",
           "a quote in the id");

    n = strlen(legacy);
    is_int(mcp_rpc_build((char *) tap_edge(modern, n), n, "tools/list", ID,
                         NULL), n, "it just fits");

    for (i = 0; i < n; i++) {
        if (mcp_rpc_build((char *) tap_edge(modern, i), i, "tools/list", ID,
                          NULL) != 0)
        {
            break;
        }
    }

    is_int(i, n, "it does not fit");

    is_int(mcp_rpc_build(buf, sizeof(buf), "ping", "\xff", NULL), 0,
           "an id that is no UTF-8");
    is_int(mcp_rpc_build(buf, sizeof(buf), "ping", ID, "\xff"), 0,
           "a version that is no UTF-8");
}


static void
test_initialize(void)
{
    int             good;
    size_t          i, n;
    unsigned char  *p;

    static const char  init[] =
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\","
        "\"params\":{\"protocolVersion\":\"2025-06-18\"}}";

    static const struct {
        const char  *name;
        const char  *body;
        int          yes;
    } bodies[] = {
        { "B15: initialize", init, 1 },
        { "with a BOM", BOM " {\"method\":\"initialize\",\"id\":\"a\"}", 1 },
        { "B61: not in an array",
          "[{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\"}]", 0 },
        { "a fraction for an id",
          "{\"method\":\"initialize\",\"id\":1.5}", 1 },
        { "a notification", "{\"method\":\"initialize\"}", 0 },
        { "a null id", "{\"method\":\"initialize\",\"id\":null}", 0 },
        { "another method",
          "{\"method\":\"notifications/initialized\",\"id\":1}", 0 },
        { "the word elsewhere",
          "{\"method\":\"tools/call\",\"id\":1,\"params\":"
          "{\"method\":\"initialize\"}}", 0 },
        { "broken", "{\"id\":0,\"method\":\"initialize\"", 0 },
        { "a string", "\"initialize\"", 0 },
        { "short", "\"init", 0 },
        { "empty", "", 0 },
    };

    for (i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        n = strlen(bodies[i].body);
        is_int(mcp_rpc_is_initialize(tap_edge(bodies[i].body, n), n),
               bodies[i].yes, bodies[i].name);
    }

    n = strlen(init);
    good = 1;

    for (i = 0; i < n; i++) {
        good &= !mcp_rpc_is_initialize(tap_edge(init, i), i);
    }

    ok(good, "cut anywhere");
    is_int(mcp_rpc_is_initialize(NULL, 0), 0, "no body");

    p = malloc(MCP_RPC_HEAD_MAX + 1);
    memset(p, ' ', MCP_RPC_HEAD_MAX + 1);
    memcpy(p, init, n);
    is_int(mcp_rpc_is_initialize(p, MCP_RPC_HEAD_MAX), 1, "as long as allowed");
    is_int(mcp_rpc_is_initialize(p, MCP_RPC_HEAD_MAX + 1), 0, "longer");
    free(p);
}


static void
test_is_message(void)
{
    size_t       i, n;
    static const struct {
        const char  *name;
        const char  *body;
        int          yes;
    } bodies[] = {
        { "a request", "{\"jsonrpc\":\"2.0\",\"id\":1}", 1 },
        { "an array", "[{\"jsonrpc\":\"2.0\"}]", 1 },
        { "space and BOM", "\xef\xbb\xbf \t\r\n{ \"jsonrpc\" : 1 }", 1 },
        { "cut", "{\"id\":1,\"jsonrpc\":\"2.0\",\"par", 1 },
        { "other JSON", "{\"id\":1}", 0 },
        { "a form", "jsonrpc=2.0", 0 },
        { "text that names it", "say \"jsonrpc\"", 0 },
        { "a string", "\"jsonrpc\"", 0 },
        { "a BOM", "\xef\xbb\xbf", 0 },
        { "space", "  ", 0 },
        { "nothing", "", 0 },
    };

    for (i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        n = strlen(bodies[i].body);
        is_int(mcp_rpc_is_message(tap_edge(bodies[i].body, n), n),
               bodies[i].yes, bodies[i].name);
    }

    is_int(mcp_rpc_is_message(NULL, 0), 0, "no body");
}


/* jansson without memory: nothing is built, nothing is read, nothing leaks */

static long  allocations;


static void *
scarce_malloc(size_t size)
{
    return (allocations-- > 0) ? malloc(size) : NULL;
}


static void
test_no_memory(void)
{
    int               good;
    char              buf[512];
    long              n, m;
    mcp_rpc_answer_t  a;

    json_set_alloc_funcs(scarce_malloc, free);

    good = 1;

    for (n = 0; n < 1000; n++) {
        allocations = n;

        if (mcp_rpc_build(buf, sizeof(buf), "ping", ID, "2026-07-28") != 0) {
            break;
        }
    }

    ok(n > 5 && n < 1000, "a request is built whole or not at all");

    for (m = 0; m < 1000; m++) {
        allocations = m;
        read_in_two(&answers[0], 0, &a);

        if (a.kind != MCP_RPC_NOTHING) {
            break;
        }

        good &= (a.json == 0);
    }

    ok(good && m > 5 && m < 1000, "an answer is read whole or not at all");

    json_set_alloc_funcs(malloc, free);
}


int
main(void)
{
    test_media();
    test_build();
    test_initialize();
    test_is_message();
    test_answers();
    test_message();
    test_longs();
    test_depth();
    test_head();
    test_head_scan();
    test_noise();
    test_no_memory();

    return tap_done();
}
