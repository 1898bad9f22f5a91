
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"
#include "mcp_classify.h"


#define ID  "mcpka-7f"


/* an error with our id, with a null one and with another's */

#define OURS(code, text)                                                      \
    "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"error\":{\"code\":" #code       \
    ",\"message\":\"" text "\"}}"

#define NULLID(code, text)                                                    \
    "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":" #code                         \
    ",\"message\":\"" text "\"},\"id\":null}"

#define OTHER(code, text)                                                     \
    "{\"jsonrpc\":\"2.0\",\"id\":\"server-error\",\"error\":{\"code\":" #code \
    ",\"message\":\"" text "\"}}"

#define RESULT  "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"result\":{}}"
#define HTML    "<!doctype html><html>Session not found</html>"


#define JSON   MCP_MEDIA_JSON
#define SSE    MCP_MEDIA_SSE
#define PAGE   MCP_MEDIA_HTML
#define TEXT   MCP_MEDIA_TEXT
#define NONE   MCP_MEDIA_NONE


/* flags of a case */

#define SESSION    1
#define READY      2
#define TIMEDOUT   4
#define ENCODED    8
#define RETRY      16
#define BODY       32           /* broke off in the body */
#define UNREAD     64
#define PING       128
#define KEPT       (SESSION|READY)


typedef struct {
    const char     *name;
    unsigned        flags;
    int             status;
    mcp_media_t     media;
    const char     *body;
    mcp_verdict_t   verdict;
    const char     *reason;     /* NULL: only that there is one */
} case_t;


#define V(name)  MCP_VERDICT_ ## name


static const case_t  cases[] = {

    /* ok */

    { "a result", KEPT, 200, JSON, RESULT, V(OK), "HTTP 200, JSON-RPC result" },
    { "a result, no session", 0, 200, JSON, RESULT, V(OK), NULL },
    { "a result in a stream", KEPT, 200, SSE, "data: " RESULT "\n\n", V(OK),
      NULL },
    { "B56: a foreign id on JSON", KEPT, 200, JSON,
      "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}", V(OK),
      "HTTP 200, JSON-RPC result, not with our id" },
    { "B56: a null id on JSON", KEPT, 200, JSON,
      "{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}", V(OK), NULL },
    { "B61: an array", KEPT, 200, JSON, "[" RESULT "]", V(OK), NULL },
    { "B98: a BOM", KEPT, 200, JSON, "\xef\xbb\xbf" RESULT, V(OK), NULL },
    { "an error with our id", KEPT, 200, JSON, OURS(-32603, "Internal error"),
      V(OK), "HTTP 200, JSON-RPC error -32603: Internal error" },
    { "-32602 with our id", KEPT, 200, JSON,
      OURS(-32602, "Invalid request parameters"), V(OK), NULL },
    { "an error with a null id", KEPT, 200, SSE,
      "data: " NULLID(-32603, "Internal error") "\n\n", V(OK), NULL },
    { "-32002 is also: no such resource", KEPT, 200, JSON,
      OURS(-32002, "Resource not found"), V(OK), NULL },
    { "500 with an error with our id", KEPT, 500, JSON,
      OURS(-32603, "Internal error"), V(OK), NULL },
    { "400 with an error with our id", KEPT, 400, JSON,
      OURS(-32602, "Invalid params"), V(OK), NULL },
    { "404 with our id, no session", 0, 404, JSON, OURS(-32001, "x"), V(OK),
      NULL },
    { "422 with our id", KEPT, 422, JSON, OURS(-32602, "x"), V(OK), NULL },
    { "B66: words in a result do not count", KEPT, 200, JSON,
      "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"result\":{\"content\":"
      "[{\"text\":\"Session not found\"}],\"isError\":true}}", V(OK), NULL },
    { "a session of another kind, in a result with an error code", KEPT, 200,
      SSE, "data: {\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"result\":{\"error\":"
      "{\"code\":-32001,\"message\":\"session expired\"}}}\n\n", V(OK), NULL },
    { "session already exists", KEPT, 200, JSON,
      OURS(-32000, "session already exists"), V(OK), NULL },
    { "a client's answer, unread", KEPT|UNREAD, 200, JSON, NULL, V(OK),
      "HTTP 200, of an MCP media type" },
    { "a client's stream, compressed", KEPT|UNREAD|ENCODED, 200, SSE, NULL,
      V(OK), NULL },
    { "complete, then reset", KEPT|BODY, 200, JSON, RESULT, V(OK), NULL },

    /* unsupported */

    { "B41: ping unknown", KEPT|PING, 200, JSON,
      OURS(-32601, "Method not found"), V(UNSUPPORTED),
      "HTTP 200, JSON-RPC error -32601: Method not found" },
    { "B42: in other words", KEPT|PING, 200, JSON,
      OURS(-32603, "Method not supported: ping"), V(UNSUPPORTED), NULL },
    { "B42: unknown method", KEPT|PING, 200, JSON,
      OURS(-32000, "Unknown method: ping"), V(UNSUPPORTED), NULL },
    { "B43: tools/list unknown", KEPT, 200, SSE,
      "data: " OURS(-32601, "Method not found") "\n\n", V(UNSUPPORTED), NULL },
    { "B16: 404 with -32601", KEPT, 404, JSON,
      OURS(-32601, "Method not found"), V(UNSUPPORTED), NULL },
    { "404 with -32601 and a null id", KEPT, 404, JSON,
      NULLID(-32601, "Method not found"), V(UNSUPPORTED), NULL },
    { "400 with -32601", KEPT, 400, JSON, OURS(-32601, ""), V(UNSUPPORTED),
      "HTTP 400, JSON-RPC error -32601" },
    { "judged before words about the session", KEPT, 404, JSON,
      OURS(-32601, "Session not found"), V(UNSUPPORTED), NULL },
    { "not found: ping", KEPT|PING, 200, JSON, OURS(-32000, "not found: ping"),
      V(UNSUPPORTED), NULL },
    { "a web page's words do not count", KEPT, 404, TEXT, "method not found",
      V(SESSION_SUSPECT), NULL },

    /* session_lost */

    { "B01: 404 -32001", KEPT, 404, JSON, NULLID(-32001, "Session not found"),
      V(SESSION_LOST), "HTTP 404, JSON-RPC error -32001: Session not found" },
    { "B02: 400 about the session", KEPT, 400, JSON,
      NULLID(-32000, "Bad Request: No valid session ID provided"),
      V(SESSION_LOST), NULL },
    { "B02: server-everything, no id", KEPT, 400, JSON,
      "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32000,\"message\":"
      "\"Bad Request: No valid session ID provided\"}}", V(SESSION_LOST),
      NULL },
    { "B06: 503 about the session", KEPT, 503, JSON,
      NULLID(-32001, "session is unknown on this instance"), V(SESSION_LOST),
      NULL },
    { "B06: also with Retry-After", KEPT|RETRY, 503, JSON,
      NULLID(-32001, "session is unknown on this instance"), V(SESSION_LOST),
      NULL },
    { "B07: wrapped in a string", KEPT, 500, JSON,
      "{\"error\":\"Error POSTing to endpoint (HTTP 400): {\\\"error\\\":"
      "{\\\"code\\\":-32000,\\\"message\\\":\\\"Bad Request: No valid session "
      "ID provided\\\"}}\"}", V(SESSION_LOST),
      "HTTP 500, the text says the session is lost" },
    { "B09: 200 -32600 about the session", KEPT, 200, JSON,
      NULLID(-32600, "missing or invalid Mcp-Session-Id"), V(SESSION_LOST),
      NULL },
    { "B10: id server-error", KEPT, 404, JSON,
      OTHER(-32600, "Session not found"), V(SESSION_LOST), NULL },
    { "B11: neither result nor error", KEPT, 404, JSON,
      "{\"jsonrpc\":\"2.0\",\"id\":1}", V(SESSION_LOST), NULL },
    { "B12: 404 as text", KEPT, 404, TEXT, "session not found",
      V(SESSION_LOST), NULL },
    { "B13: a private code", KEPT, 404, JSON, OTHER(-32005, "Session expired"),
      V(SESSION_LOST), NULL },
    { "B20: 404 without jsonrpc", KEPT, 404, JSON,
      "{\"error\":{\"code\":-32001,\"message\":\"Session not found\"}}",
      V(SESSION_LOST), NULL },
    { "B20: 200 -32001 by its text", KEPT, 200, JSON,
      OURS(-32001, "Session terminated"), V(SESSION_LOST), NULL },
    { "404 JSON-RPC without a text", KEPT, 404, JSON, NULLID(-32000, ""),
      V(SESSION_LOST), "HTTP 404, JSON-RPC error -32000" },
    { "in an event stream", KEPT, 200, SSE,
      "data: " NULLID(-32001, "SESSION EXPIRED") "\n\n", V(SESSION_LOST),
      NULL },
    { "403 about the session", KEPT, 403, JSON,
      NULLID(-32000, "invalid session"), V(SESSION_LOST), NULL },
    { "502 about the session", KEPT, 502, TEXT, "unknown session",
      V(SESSION_LOST), NULL },
    { "a ready session not initialized", KEPT, 200, JSON,
      OURS(-32002, "Server not initialized"), V(SESSION_LOST), NULL },
    { "the same as 400 -32000", KEPT, 400, JSON,
      NULLID(-32000, "Bad Request: Server not initialized"), V(SESSION_LOST),
      NULL },
    { "reset after a lost session", KEPT|BODY, 404, JSON,
      NULLID(-32001, "Session not found"), V(SESSION_LOST), NULL },
    { "the id is not shown", KEPT, 404, JSON,
      NULLID(-32001, "Session 0e285a32-5e48-4180-991d-b721777c00e1 not found"),
      V(SESSION_LOST), "HTTP 404, JSON-RPC error -32001: Session *** not found"
    },

    /* session_suspect */

    { "B07: 500, Internal error", KEPT, 500, JSON,
      "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"error\":{\"code\":-32000,"
      "\"message\":\"Internal error\"}}", V(SESSION_SUSPECT),
      "HTTP 500, JSON-RPC error -32000: Internal error" },
    { "B09: -32600 with a null id", KEPT, 200, JSON,
      NULLID(-32600, "Invalid Request"), V(SESSION_SUSPECT), NULL },
    { "-32600 with a null id, 400", KEPT, 400, JSON,
      NULLID(-32600, "Invalid Request"), V(SESSION_SUSPECT), NULL },
    { "B12: 404 as a page", KEPT, 404, PAGE, HTML, V(SESSION_SUSPECT),
      "HTTP 404, an HTML page" },
    { "a page without a type", KEPT, 404, NONE, HTML, V(SESSION_SUSPECT),
      NULL },
    { "an empty 404", KEPT, 404, NONE, "", V(SESSION_SUSPECT), NULL },
    { "404 with other JSON", KEPT, 404, JSON, "{\"detail\":\"Not Found\"}",
      V(SESSION_SUSPECT), NULL },
    { "404, compressed", KEPT|ENCODED, 404, JSON, "\x1f\x8b",
      V(SESSION_SUSPECT), NULL },
    { "B13: words we do not know", KEPT, 200, JSON,
      OTHER(-32000, "demo session s-1 is no longer live"), V(SESSION_SUSPECT),
      NULL },
    { "B50: during initialization", SESSION, 200, JSON,
      OURS(0, "method \\\"tools/list\\\" is invalid during session "
      "initialization"), V(SESSION_SUSPECT), NULL },
    { "-32002 before it was ready", SESSION, 200, JSON,
      OURS(-32002, "Server not initialized"), V(SESSION_SUSPECT), NULL },
    { "a bare 400", KEPT, 400, NONE, "", V(SESSION_SUSPECT),
      "HTTP 400, bad request" },
    { "400 as a page", KEPT, 400, PAGE, HTML, V(SESSION_SUSPECT), NULL },
    { "400 -32000 without a session in it", KEPT, 400, JSON,
      NULLID(-32000, "Bad Request"), V(SESSION_SUSPECT), NULL },
    { "a bare 403", KEPT, 403, NONE, "", V(SESSION_SUSPECT), NULL },
    { "403 as a page", KEPT, 403, PAGE, HTML, V(SESSION_SUSPECT), NULL },
    { "403, the session of another user", KEPT, 403, JSON,
      NULLID(-32000, "Session belongs to another user"), V(SESSION_SUSPECT),
      NULL },
    { "a bare 500", KEPT, 500, NONE, "", V(SESSION_SUSPECT),
      "HTTP 500 from the server" },
    { "500 as a page", KEPT, 500, PAGE, HTML, V(SESSION_SUSPECT), NULL },
    { "502 from a gateway that speaks JSON-RPC", KEPT, 502, JSON,
      NULLID(-32000, "backend unavailable"), V(SESSION_SUSPECT), NULL },
    { "410 with JSON-RPC", KEPT, 410, JSON, NULLID(-32000, "gone"),
      V(SESSION_SUSPECT), NULL },

    /* auth */

    { "B04, 4.1: 401", KEPT, 401, NONE, "", V(AUTH),
      "HTTP 401, credentials refused" },
    { "B20: 401 -32001", KEPT, 401, JSON,
      "{\"error\":{\"code\":-32001,\"message\":\"Unauthorized\"}}", V(AUTH),
      NULL },
    { "a login's session is another one", KEPT, 401, TEXT, "Session expired",
      V(AUTH), NULL },
    { "4.1: 401 wins over the reset that follows", KEPT|BODY, 401, NONE, "",
      V(AUTH), NULL },
    { "4.1: 403 with another text", KEPT, 403, JSON,
      NULLID(-32000, "Forbidden"), V(AUTH), NULL },
    { "403 with other JSON", KEPT, 403, JSON, "{\"message\":\"Forbidden\"}",
      V(AUTH), "HTTP 403, forbidden" },
    { "a bare 403, no session", 0, 403, NONE, "", V(AUTH), NULL },

    /* limited */

    { "B67: 429", KEPT|RETRY, 429, TEXT, "slow down", V(LIMITED),
      "HTTP 429, too many requests" },
    { "429 without Retry-After", KEPT, 429, JSON,
      NULLID(-32000, "Rate limit"), V(LIMITED), NULL },
    { "503 with Retry-After", KEPT|RETRY, 503, PAGE, HTML, V(LIMITED),
      "HTTP 503, retry later" },
    { "503, JSON-RPC, not about the session", KEPT, 503, JSON,
      NULLID(-32000, "overloaded"), V(LIMITED), NULL },

    /* misroute */

    { "B69: 307", KEPT, 307, NONE, "", V(MISROUTE), "HTTP 307, a redirect" },
    { "308", KEPT, 308, PAGE, HTML, V(MISROUTE), NULL },
    { "405", KEPT, 405, JSON, NULLID(-32000, "Method not allowed."),
      V(MISROUTE), NULL },
    { "405 in the words of a missing method", KEPT, 405, JSON,
      NULLID(-32000, "Method not supported"), V(MISROUTE), NULL },
    { "B53: 406", KEPT, 406, JSON, NULLID(-32000, "Not Acceptable"),
      V(MISROUTE), NULL },
    { "415", KEPT, 415, NONE, "", V(MISROUTE), NULL },
    { "B70: 421", KEPT, 421, TEXT, "Invalid Host header", V(MISROUTE), NULL },
    { "B70: 403 about the host", KEPT, 403, JSON,
      NULLID(-32000, "Invalid Host: x"), V(MISROUTE), NULL },
    { "403 about the origin", KEPT, 403, TEXT, "Forbidden origin",
      V(MISROUTE), NULL },
    { "B51: 400 about the version", KEPT, 400, JSON,
      NULLID(-32000, "Bad Request: Unsupported protocol version (supported "
      "versions: 2025-06-18)"), V(MISROUTE), NULL },
    { "400 -32022", 0, 400, JSON, OURS(-32022, "Unsupported"), V(MISROUTE),
      NULL },
    { "400 -32020", 0, 400, JSON, OURS(-32020, "disagree"), V(MISROUTE),
      NULL },
    { "modern: 400 -32022 with a null id", 0, 400, JSON,
      NULLID(-32022, "Unsupported protocol version: 2099-01-01"),
      V(MISROUTE), NULL },
    { "modern: 400 -32602, no _meta", 0, 400, JSON,
      OURS(-32602, "Invalid params"), V(MISROUTE), NULL },
    { "modern: a server of sessions alone", 0, 400, JSON,
      NULLID(-32000, "Bad Request: Server not initialized"), V(MISROUTE),
      NULL },
    { "modern: one that knows no such version", 0, 400, JSON,
      NULLID(-32000, "Bad Request: Unsupported protocol version"),
      V(MISROUTE), NULL },
    { "modern: 405", 0, 405, JSON, NULLID(-32000, "Method not allowed."),
      V(MISROUTE), NULL },
    { "B16: modern, 404 -32601", 0, 404, JSON,
      OURS(-32601, "Method not found"), V(UNSUPPORTED), NULL },
    { "modern, 404 -32601 with a null id", 0, 404, JSON,
      NULLID(-32601, "Method not found"), V(UNSUPPORTED), NULL },
    { "modern: 401", 0, 401, JSON, NULLID(-32000, "Unauthorized"), V(AUTH),
      NULL },
    { "modern: 200", 0, 200, JSON, RESULT, V(OK), NULL },
    { "modern: another error with our id", 0, 200, JSON,
      OURS(-32603, "Internal error"), V(OK), NULL },
    { "B20: 400 -32001 about a header", KEPT, 400, JSON,
      OURS(-32001, "Header mismatch"), V(MISROUTE), NULL },
    { "B38: 409", KEPT, 409, JSON,
      NULLID(-32000, "Conflict: Only one SSE stream is allowed per session"),
      V(MISROUTE), NULL },
    { "B47: 409, duplicate id", KEPT, 409, JSON,
      OURS(-32600, "duplicate request id"), V(MISROUTE), NULL },
    { "B47: 400, duplicate id", KEPT, 400, JSON,
      NULLID(-32600, "Duplicate id"), V(MISROUTE), NULL },
    { "B39: session already exists", KEPT, 400, TEXT,
      "session registration failed: session already exists", V(MISROUTE),
      NULL },
    { "403, already exists", KEPT, 403, TEXT, "session already exists",
      V(MISROUTE), NULL },
    { "411", KEPT, 411, NONE, "", V(MISROUTE), "HTTP 411, no JSON-RPC" },
    { "413 as a page", KEPT, 413, PAGE, HTML, V(MISROUTE), NULL },
    { "407", KEPT, 407, NONE, "", V(MISROUTE), NULL },
    { "B02: 400 about the session, none sent", 0, 400, JSON,
      NULLID(-32000, "Bad Request: No valid session ID provided"),
      V(MISROUTE), NULL },
    { "4.1: a 404 of a wrong path, no session", 0, 404, PAGE, HTML,
      V(MISROUTE), NULL },
    { "404 JSON-RPC, no session", 0, 404, JSON,
      NULLID(-32001, "Session not found"), V(MISROUTE), NULL },
    { "B58, 4.1: 200 as a page, no MCP endpoint", KEPT, 200, PAGE, HTML,
      V(MISROUTE), "HTTP 200, an HTML page" },
    { "B58: a page that holds JSON", KEPT, 200, PAGE, RESULT, V(MISROUTE),
      NULL },

    /* broken_reply */

    { "B57: 200, empty", KEPT, 200, JSON, "", V(BROKEN_REPLY),
      "HTTP 200, an empty body" },
    { "B57: null", KEPT, 200, JSON, "null", V(BROKEN_REPLY),
      "HTTP 200, no JSON-RPC response" },
    { "B57: 204", KEPT, 204, NONE, "", V(BROKEN_REPLY), NULL },
    { "202 proves nothing", KEPT, 202, TEXT, "", V(BROKEN_REPLY), NULL },
    { "200 text/plain", KEPT, 200, TEXT, "ok", V(BROKEN_REPLY), NULL },
    { "200 text/plain that holds JSON-RPC", KEPT, 200, TEXT, RESULT,
      V(BROKEN_REPLY), NULL },
    { "200 without a type", KEPT, 200, NONE, RESULT, V(BROKEN_REPLY), NULL },
    { "B82: compressed", KEPT|ENCODED, 200, JSON, "\x1f\x8b\x08",
      V(BROKEN_REPLY), "HTTP 200, an encoded body" },
    { "B95: ended without our answer", KEPT, 200, SSE,
      "id: a-1\ndata:\n\nretry: 5000\n\n", V(BROKEN_REPLY), NULL },
    { "broken JSON", KEPT, 200, JSON, "{\"jsonrpc\":", V(BROKEN_REPLY), NULL },
    { "B98: two BOMs", KEPT, 200, JSON, "\xef\xbb\xbf\xef\xbb\xbf" RESULT,
      V(BROKEN_REPLY), NULL },
    { "200 with other JSON", KEPT, 200, JSON,
      "{\"detail\":\"session expired\"}", V(BROKEN_REPLY), NULL },
    { "200 about a session, in text", KEPT, 200, TEXT, "session not found",
      V(BROKEN_REPLY), NULL },
    { "a bare 500, no session", 0, 500, NONE, "", V(BROKEN_REPLY),
      "HTTP 500 from the server" },
    { "101", KEPT, 101, NONE, "", V(BROKEN_REPLY), NULL },
    { "a status out of range", KEPT, 1000, NONE, "", V(BROKEN_REPLY), NULL },
    { "unread, no media type", KEPT|UNREAD, 200, NONE, NULL, V(BROKEN_REPLY),
      NULL },

    /* timeout */

    { "silent in the body", KEPT|BODY|TIMEDOUT, 200, SSE,
      ": hb\n\n", V(TIMEOUT), "timed out while reading the body" },
    { "half of an answer in time", KEPT|BODY|TIMEDOUT, 200, JSON,
      "{\"jsonrpc\":", V(TIMEOUT), NULL },
    { "no status at all", KEPT|BODY|TIMEDOUT, 0, NONE, "", V(TIMEOUT), NULL },

    /* peer_down */

    { "a bare 502", KEPT, 502, NONE, "", V(PEER_DOWN),
      "HTTP 502 from the server" },
    { "504 as a page", KEPT, 504, PAGE, HTML, V(PEER_DOWN), NULL },
    { "B06: 503 as a page", KEPT, 503, PAGE, HTML, V(PEER_DOWN),
      "HTTP 503 from the server" },
    { "a bare 503", KEPT, 503, NONE, "", V(PEER_DOWN), NULL },
    { "504 with Retry-After", KEPT|RETRY, 504, NONE, "", V(PEER_DOWN), NULL },
    { "B83: reset in the body", KEPT|BODY, 200, JSON, "{\"jsonrpc\":",
      V(PEER_DOWN), "connection closed inside the body" },
    { "reset in a page", KEPT|BODY, 200, PAGE, "<html>", V(PEER_DOWN), NULL },
    { "reset without a status", KEPT|BODY, 0, NONE, "", V(PEER_DOWN), NULL },

    /* local */

    { "no answer, no failure", KEPT, 0, NONE, "", V(LOCAL), NULL },
};


static mcp_verdict_t
judge(const case_t *t, const char *const *phrases, char *reason)
{
    size_t             n;
    mcp_facts_t        f;
    mcp_verdict_t      v;
    mcp_rpc_answer_t   a;
    mcp_rpc_reader_t  *r;

    memset(&f, 0, sizeof(f));

    f.stage = (t->flags & BODY) ? MCP_STAGE_BODY : MCP_STAGE_DONE;
    f.session = (t->flags & SESSION) != 0;
    f.ready = (t->flags & READY) != 0;
    f.timedout = (t->flags & TIMEDOUT) != 0;
    f.encoded = (t->flags & ENCODED) != 0;
    f.retry_after = (t->flags & RETRY) != 0;
    f.ping = (t->flags & PING) != 0;
    f.status = t->status;
    f.media = t->media;
    f.phrases = phrases;

    r = mcp_rpc_reader_create(t->media, ID, -1);

    if (!(t->flags & UNREAD)) {
        n = strlen(t->body);
        mcp_rpc_reader_feed(r, tap_edge(t->body, n), n);
        mcp_rpc_reader_finish(r, &a);

        n = 100000;
        f.answer = &a;
        f.head = mcp_rpc_reader_head(r, &n);
        f.head_len = n;
    }

    memset(reason, 'x', MCP_REASON_MAX);

    v = mcp_classify(&f, reason);

    mcp_rpc_reader_destroy(r);

    return v;
}


/* A reason is there, is short, safe to log and tells more than a number. */

static int
sane(const char *reason)
{
    size_t  i;

    for (i = 0; i < MCP_REASON_MAX && reason[i] != '\0'; i++) {
        if (reason[i] < 0x20 || reason[i] > 0x7e || reason[i] == '"') {
            return 0;
        }
    }

    return i > 8 && i < MCP_REASON_MAX;
}


static void
test_cases(void)
{
    char           reason[MCP_REASON_MAX];
    size_t         i, met[MCP_VERDICT_N];
    mcp_verdict_t  v;
    const case_t  *t;

    memset(met, 0, sizeof(met));

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        t = &cases[i];
        v = judge(t, NULL, reason);
        met[v]++;

        if (!ok(v == t->verdict && sane(reason)
                && (t->reason == NULL || strcmp(reason, t->reason) == 0),
                t->name))
        {
            printf("# got %s \"%s\", want %s\n", mcp_verdict_name(v), reason,
                   mcp_verdict_name(t->verdict));
        }
    }

    for (i = 0; i < MCP_VERDICT_N; i++) {
        ok(met[i] != 0, mcp_verdict_name((mcp_verdict_t) i));
    }
}


static void
test_phrases(void)
{
    char    reason[MCP_REASON_MAX];
    case_t  t;

    static const char *const  phrases[] = { "gone fishing", "no longer live",
                                            NULL };

    memset(&t, 0, sizeof(t));
    t.flags = KEPT;
    t.status = 200;
    t.media = JSON;
    t.body = OTHER(-32000, "demo session s-1 is no longer live");
    is_int(judge(&t, phrases, reason), MCP_VERDICT_SESSION_LOST,
           "B13: a phrase of the operator");

    t.body = OURS(1, "Gone Fishing");
    is_int(judge(&t, phrases, reason), MCP_VERDICT_SESSION_LOST, "in any case");

    t.flags = 0;
    is_int(judge(&t, phrases, reason), MCP_VERDICT_OK, "not without a session");

    t.flags = KEPT;
    t.body = "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"result\":"
             "\"gone fishing\"}";
    is_int(judge(&t, phrases, reason), MCP_VERDICT_OK, "not in a result");

    t.status = 500;
    t.media = TEXT;
    t.body = "gone fishing";
    is_int(judge(&t, phrases, reason), MCP_VERDICT_SESSION_LOST,
           "in the text of an HTTP error");

    t.body = "out to lunch";
    is_int(judge(&t, phrases, reason), MCP_VERDICT_SESSION_SUSPECT,
           "another text");

    t.body = "gone fishing";
    t.status = 401;
    is_int(judge(&t, phrases, reason), MCP_VERDICT_AUTH, "but not of a 401");
}


/* the road: which stage, what nginx logged, and what is made of it */

typedef struct {
    const char     *name;
    mcp_stage_t     stage;
    int             status;
    int             timedout;
    const char     *error;
    mcp_verdict_t   verdict;
    const char     *reason;
} road_t;


static const road_t  roads[] = {
    { "4.1: refused", MCP_STAGE_CONNECT, 502, 0,
      "connect() failed (111: Connection refused) while connecting to "
      "upstream, client: 1.2.3.4, server: x, request: \"POST /mcp?key=s\"",
      V(PEER_DOWN), "connect() failed (111: Connection refused)" },
    { "4.1: reset", MCP_STAGE_HEADER, 502, 0,
      "recv() failed (104: Connection reset by peer) while reading response "
      "header from upstream", V(PEER_DOWN),
      "recv() failed (104: Connection reset by peer)" },
    { "4.1: broken pipe", MCP_STAGE_HEADER, 0, 0,
      "writev() failed (32: Broken pipe), client: 1.2.3.4", V(PEER_DOWN),
      "writev() failed (32: Broken pipe)" },
    { "4.1: EOF", MCP_STAGE_HEADER, 502, 0,
      "upstream prematurely closed connection while reading response header",
      V(PEER_DOWN), "upstream prematurely closed connection" },
    { "4.1: premature close of a body", MCP_STAGE_BODY, 200, 0,
      "upstream prematurely closed connection while reading upstream",
      V(PEER_DOWN), "upstream prematurely closed connection" },
    { "4.1: unreachable", MCP_STAGE_CONNECT, 502, 0,
      "connect() to 10.0.0.1:80 failed (113: No route to host)", V(PEER_DOWN),
      "connect() to 10.0.0.1:80 failed (113: No route to host)" },
    { "4.1: the lowest layer: TLS, not the 502 above it", MCP_STAGE_TLS, 502, 0,
      "upstream SSL certificate verify error: (18:self-signed certificate) "
      "while SSL handshaking to upstream", V(PEER_DOWN),
      "upstream SSL certificate verify error: (18:self-signed certificate)" },
    { "TLS, another name", MCP_STAGE_TLS, 502, 0,
      "upstream SSL certificate does not match \"a.b\", host: \"x\"",
      V(PEER_DOWN), "upstream SSL certificate does not match 'a.b'" },
    { "what the peer sent is not repeated", MCP_STAGE_HEADER, 502, 0,
      "upstream sent invalid header: \"Mcp-Session-Id: s-1\\x0d...\" while x",
      V(PEER_DOWN), "upstream sent invalid header" },
    { "4.1: an unknown error", MCP_STAGE_CONNECT, 0, 0, "a\nb\x80 c",
      V(PEER_DOWN), "a?b? c" },
    { "nothing before the context but a comma", MCP_STAGE_CONNECT, 0, 0,
      "reset , , client: 1.2.3.4", V(PEER_DOWN), "reset" },
    { "4.1: an empty text: connect", MCP_STAGE_CONNECT, 502, 0, "",
      V(PEER_DOWN), "connection failed" },
    { "4.1: only context", MCP_STAGE_CONNECT, 502, 0, ", client: 1.2.3.4",
      V(PEER_DOWN), "connection failed" },
    { "no text: TLS", MCP_STAGE_TLS, 0, 0, NULL, V(PEER_DOWN),
      "TLS handshake failed" },
    { "no text: header", MCP_STAGE_HEADER, 0, 0, NULL, V(PEER_DOWN),
      "connection closed before the response header" },
    { "4.1: timeout: connect", MCP_STAGE_CONNECT, 504, 1,
      "upstream timed out (110: Connection timed out)", V(TIMEOUT),
      "timed out while connecting" },
    { "timeout: TLS", MCP_STAGE_TLS, 504, 1, NULL, V(TIMEOUT),
      "timed out in the TLS handshake" },
    { "timeout: header", MCP_STAGE_HEADER, 504, 1, NULL, V(TIMEOUT),
      "timed out while waiting for the response header" },
    { "timeout: body", MCP_STAGE_BODY, 200, 1, NULL, V(TIMEOUT),
      "timed out while reading the body" },
    { "4.1: 503 is transient", MCP_STAGE_DONE, 503, 0, NULL, V(PEER_DOWN),
      "HTTP 503 from the server" },
    { "4.1: not a generic 502", MCP_STAGE_CONNECT, 502, 0,
      "connect() failed (111: Connection refused)", V(PEER_DOWN),
      "connect() failed (111: Connection refused)" },
    { "4.1: our own abort", MCP_STAGE_LOCAL, 0, 0, "cancelled, exiting",
      V(LOCAL), "cancelled, exiting" },
    { "4.1, 4.2: worker quit", MCP_STAGE_LOCAL, 0, 1, NULL, V(LOCAL),
      "timed out on our side" },
    { "no text: local", MCP_STAGE_LOCAL, 0, 0, NULL, V(LOCAL),
      "not sent: no connection was made on our side" },
    { "local, whatever the status", MCP_STAGE_LOCAL, 502, 0,
      "no live upstreams while connecting to upstream", V(LOCAL),
      "no live upstreams" },
};


static void
test_roads(void)
{
    char           reason[MCP_REASON_MAX];
    size_t         i;
    mcp_facts_t    f;
    mcp_verdict_t  v;
    const road_t  *t;

    for (i = 0; i < sizeof(roads) / sizeof(roads[0]); i++) {
        t = &roads[i];

        memset(&f, 0, sizeof(f));
        f.stage = t->stage;
        f.status = t->status;
        f.timedout = t->timedout;
        f.error = t->error;
        f.session = 1;
        f.ready = 1;

        v = mcp_classify(&f, reason);

        if (!ok(v == t->verdict && strcmp(reason, t->reason) == 0, t->name)) {
            printf("# got %s \"%s\"\n", mcp_verdict_name(v), reason);
        }
    }
}


static void
test_too_big(void)
{
    char              reason[MCP_REASON_MAX], text[1024];
    mcp_facts_t       f;
    mcp_rpc_answer_t  a;

    memset(&f, 0, sizeof(f));
    memset(&a, 0, sizeof(a));

    a.kind = MCP_RPC_RESULT;
    a.id = MCP_RPC_ID_OURS;
    a.too_big = 1;
    f.status = 200;
    f.media = MCP_MEDIA_JSON;
    f.answer = &a;

    is_int(mcp_classify(&f, reason), MCP_VERDICT_OK, "B44: ok by its head");
    is_str(reason, "HTTP 200, JSON-RPC result, seen by its head", "reason");

    f.stage = MCP_STAGE_BODY;
    f.timedout = 1;
    is_int(mcp_classify(&f, reason), MCP_VERDICT_OK,
           "B44: still flowing at the deadline");

    f.timedout = 0;
    is_int(mcp_classify(&f, reason), MCP_VERDICT_PEER_DOWN,
           "B83: a long answer that is reset");

    f.stage = MCP_STAGE_CONNECT;
    memset(text, 'y', sizeof(text));
    text[1023] = '\0';
    f.error = text;
    mcp_classify(&f, reason);
    is_int(strlen(reason), MCP_REASON_MAX - 1, "a long reason is cut");

    f.stage = MCP_STAGE_DONE;
    a.kind = MCP_RPC_ERROR;
    a.code = -9007199254740992LL;
    memset(a.message, 'z', MCP_RPC_MESSAGE_MAX - 1);
    mcp_classify(&f, reason);
    ok(sane(reason), "the longest error fits or is cut");
}


static void
test_effects(void)
{
    size_t  i;

    static const struct {
        const char    *name;
        mcp_effect_t   effect;
    } words[] = {
        { "ok", MCP_EFFECT_PROOF },
        { "unsupported", MCP_EFFECT_PROOF },
        { "session_lost", MCP_EFFECT_REACH },
        { "session_suspect", MCP_EFFECT_REACH },
        { "auth", MCP_EFFECT_REACH },
        { "limited", MCP_EFFECT_REACH },
        { "misroute", MCP_EFFECT_REACH },
        { "broken_reply", MCP_EFFECT_REACH },
        { "timeout", MCP_EFFECT_FAILURE },
        { "peer_down", MCP_EFFECT_FAILURE },
        { "local", MCP_EFFECT_NOTHING },
        { "unknown", MCP_EFFECT_NOTHING },
    };

    for (i = 0; i <= MCP_VERDICT_N; i++) {
        is_str(mcp_verdict_name((mcp_verdict_t) i), words[i].name, "a name");
        is_int(mcp_verdict_effect((mcp_verdict_t) i), words[i].effect,
               words[i].name);
    }
}


int
main(void)
{
    test_cases();
    test_phrases();
    test_roads();
    test_too_big();
    test_effects();

    return tap_done();
}
