
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"
#include "mcp_phrases.h"
#include "mcp_text.h"


static void
test_clean(void)
{
    char    buf[64];
    size_t  i, n;

    static const char  text[] = "a\"b\\c\x01\x7f\x80\xff\n~ ";

    n = sizeof(text) - 1;
    n = mcp_text_clean(buf, sizeof(buf), (char *) tap_edge(text, n), n);
    is_str(buf, "a'b?c?????~ ", "what is odd is replaced");
    is_int(n, 12, "the length");

    memset(buf, 'x', sizeof(buf));
    is_int(mcp_text_clean(buf, 4, "abcdef", 6), 3, "cut to fit");
    is_str(buf, "abc", "NUL-ended");
    ok(buf[4] == 'x', "and not beyond");

    is_int(mcp_text_clean(buf, 0, "abc", 3), 0, "no room at all");
    is_int(mcp_text_redact(buf, 0, "abc", 3), 0, "no room at all");
    ok(buf[0] == 'a', "nothing is written");

    is_int(mcp_text_redact(buf, 8, NULL, 0), 0, "no text");
    is_str(buf, "", "is an empty one");

    for (i = 1; i < 20; i++) {
        n = mcp_text_redact((char *) tap_edge(buf, i), i,
                            "id 0123456789abcdef x", 21);
        if (n > i - 1) {
            break;
        }
    }

    is_int(i, 20, "a mask fits, too");
}


static void
test_redact(void)
{
    char    buf[128];
    size_t  i;

    static const char *const  texts[][2] = {
        { "Session not found", "Session not found" },
        { "Session 0e285a32-5e48-4180-991d-b721777c00e1 not found",
          "Session *** not found" },
        { "id eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.Zm9v", "id ***" },
        { "bad token Bearer abc", "bad token Bearer ***" },
        { "BEARER a, b", "BEARER ***, b" },
        { "bearer", "bearer" },
        { "?session_id=0123456789abcdef", "?***" },
        { "no such method tools/list", "no such method tools/list" },
        { "Unsupported protocol version: 2099-01-01",
          "Unsupported protocol version: 2099-01-01" },
        { "io.modelcontextprotocol/protocolVersion",
          "io.modelcontextprotocol/protocolVersion" },
        { "connect to 192.168.100.200:8000",
          "connect to 192.168.100.200:8000" },
    };

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        mcp_text_redact(buf, sizeof(buf), texts[i][0], strlen(texts[i][0]));
        is_str(buf, texts[i][1], texts[i][0]);
    }
}


static void
test_find(void)
{
    int     yes;
    size_t  i, n;

    static const struct {
        const char  *text;
        const char  *phrase;
        int          yes;
    } finds[] = {
        { "Session not found", "session not found", 1 },
        { "the SESSION_NOT_FOUND code", "session not found", 1 },
        { "Session:   not found", "session not found", 1 },
        { "sessionnot found", "session not found", 0 },
        { "session not foun", "session not found", 0 },
        { "session not ", "session not found", 0 },
        { "session not", "session not", 1 },
        { "xsession not", "session not", 1 },
        { "original", " origin ", 0 },
        { "an aborigine", " origin ", 0 },
        { "Origin", " origin ", 1 },
        { "bad origin: x", " origin ", 1 },
        { "conversion", " version", 0 },
        { "versions", " version", 1 },
        { "a: b", "a: b", 1 },
        { "a:b", "a: b", 0 },
        { "a:", "a: b", 0 },
        { "session not found", "session*not found", 1 },
        { "Session ID s-1 not found", "session*not found", 1 },
        { "Session with id 'abc' was not found", "session*not found", 1 },
        { "session_id=0123456789abcdef was not found", "session*not found",
          1 },
        { "sessionId not found", "session*not found", 1 },
        { "session is fine but the tool was not found", "session*not found",
          0 },
        { "session a b c d e not found", "session*not found", 0 },
        { "session", "session*not found", 0 },
        { "session ", "session*", 1 },
        { "session", "*session", 0 },
        { " session", "*session", 1 },
        { "abc", "", 0 },
        { "", "a", 0 },
        { "", " ", 1 },
    };

    for (i = 0; i < sizeof(finds) / sizeof(finds[0]); i++) {
        n = strlen(finds[i].text);
        yes = mcp_text_find((char *) tap_edge(finds[i].text, n), n,
                            finds[i].phrase);

        if (!is_int(yes, finds[i].yes, finds[i].text)) {
            printf("# phrase \"%s\"\n", finds[i].phrase);
        }
    }

    ok(!mcp_text_find_any("abc", 3, NULL), "no phrases");
    ok(!mcp_text_find_any(NULL, 0, (const char *const[]) { "a", NULL }),
       "no text");
    ok(!mcp_text_find_any("abc", 3, (const char *const[]) { NULL }),
       "an empty list");
    ok(mcp_text_find_any("abc", 3, (const char *const[]) { "x", "c", NULL }),
       "the second of a list");
}


static void
test_phrases(void)
{
    size_t  i;

    static const struct {
        const char  *text;
        unsigned     flags;
    } texts[] = {
        { "Session not found", T_LOST|T_SESSION },
        { "SESSION EXPIRED", T_LOST|T_SESSION },
        { "Session has expired", T_LOST|T_SESSION },
        { "session terminated", T_LOST|T_SESSION },
        { "Session was terminated by the server", T_LOST|T_SESSION },
        { "Invalid session ID", T_LOST|T_SESSION },
        { "Invalid or expired session", T_LOST|T_SESSION },
        { "Unknown session: s-1", T_LOST|T_SESSION },
        { "Session ID abc-1 is invalid", T_LOST|T_SESSION },
        { "Session s-1 does not exist", T_LOST|T_SESSION },
        { "Session s-1 doesn't exist", T_LOST|T_SESSION },
        { "session is unknown on this instance", T_LOST|T_SESSION },
        { "Bad Request: No valid session ID provided", T_LOST|T_SESSION },
        { "missing or invalid Mcp-Session-Id", T_LOST|T_SESSION },
        { "Bad Request: Server not initialized", T_NOTINIT },
        { "session registration failed: session already exists",
          T_EXISTS|T_SESSION },
        { "Conflict: Only one SSE stream is allowed per session",
          T_EXISTS|T_SESSION },
        { "demo session s-1 is no longer live", T_SESSION },
        { "method \"tools/list\" is invalid during session initialization",
          T_SESSION },
        { "Invalid Host header", T_ROUTE },
        { "Invalid Origin", T_ROUTE },
        { "Bad Request: Unsupported protocol version (supported versions: x)",
          T_ROUTE },
        { "duplicate request id", T_EXISTS },
        { "Method not found", T_NOMETHOD },
        { "Method not supported: ping", T_NOMETHOD },
        { "Unknown method: ping", T_NOMETHOD },
        { "Invalid request parameters", 0 },
        { "connection refused", 0 },
        { "Unauthorized", 0 },
        { "Internal error", 0 },
        { "tool not found", 0 },
        { "", 0 },
    };

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        is_int(mcp_phrases_find(texts[i].text, strlen(texts[i].text)),
               texts[i].flags, texts[i].text);
    }
}


int
main(void)
{
    test_clean();
    test_redact();
    test_find();
    test_phrases();

    return tap_done();
}
