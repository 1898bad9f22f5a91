
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"
#include "mcp_rpc_subject.h"


#define W32   "abcdefghijklmnopqrstuvwxyz/12345"
#define W128  W32 W32 W32 W32


static const struct {
    const char         *body;
    const char         *method;
    const char         *name;
} whole[] = {

    { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\","
      "\"params\":{\"name\":\"echo\",\"arguments\":{\"name\":\"x\"}}}",
      "tools/call", "echo" },
    { "{\"method\":\"prompts/get\",\"params\":{\"name\":\"p\"},"
      "\"jsonrpc\":\"2.0\"}", "prompts/get", "p" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"resources/read\","
      "\"params\":{\"uri\":\"file:///a\",\"name\":\"x\"}}",
      "resources/read", "file:///a" },
    { "\xef\xbb\xbf {\"jsonrpc\":\"2.0\",\"method\":\"tools\\u002flist\"}\n",
      "tools/list", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\","
      "\"params\":{\"name\":\"y\"}}", "notifications/x", "" },

    /* the last of two counts, as it does for servers */

    { "{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"method\":\"b\"}", "b", "" },

    /* words that are none */

    { "{\"jsonrpc\":\"2.0\",\"method\":\"\"}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"a b\"}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"a\\nb\"}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"a\\u0000b\"}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"\\u007f\"}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"\xc3\xa9\"}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"" W128 "\"}", W128, "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"" W128 "x\"}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":5}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":null,\"params\":[]}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":[\"name\"]}",
      "tools/call", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\","
      "\"params\":{\"name\":\"two words\"}}", "tools/call", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\","
      "\"params\":{\"name\":[]}}", "tools/call", "" },

    /* no request of JSON-RPC */

    { "", "", "" },
    { "null", "", "" },
    { "\"method\"", "", "" },
    { "{}", "", "" },
    { "{\"method\":\"a\"}", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", "", "" },
    { "[{\"jsonrpc\":\"2.0\",\"method\":\"a\"}]", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"a\"", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"a\"} x", "", "" },
    { "method=a", "", "" }
};


static const struct {
    const char         *body;
    const char         *method;
    const char         *name;
} cut[] = {
    { "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":"
      "{\"name\":\"echo\",\"arguments\":{\"a\":\"...", "tools/call", "echo" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":"
      "{\"name\":\"echo\",\"arguments\":{\"a\":[1,{\"b\":2},", "tools/call",
      "echo" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":"
      "{\"name\":\"ech", "tools/call", "" },

    /* a word that is cut is none */

    { "{\"jsonrpc\":\"2.0\",\"method\":\"tools/ca", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\"", "", "" },
    { "{\"jsonrpc\":\"2.0\",\"method\":\"a\",", "a", "" },

    /* "jsonrpc" may come at the end */

    { "{\"method\":\"tools/call\",\"params\":{\"name\":\"e\",\"arguments\":{",
      "tools/call", "e" },

    /* what looks like an end inside strings and arrays */

    { "{\"x\":\"},{\\\"\",\"method\":\"a\",\"y\":[1,2,{\"z\":", "a", "" },
    { "{\"method\":\"a\",\"y\":[[1],2", "a", "" },
    { "{\"method\":\"a\\", "", "" },
    { "[{\"method\":\"a\",\"b\":", "", "" },
    { "[[1,2,", "", "" },
    { "}}},{\"method\":\"a\",", "", "" },
    { ",,,", "", "" },
    { "", "", "" }
};


static void
test_whole(void)
{
    size_t             i, len;
    mcp_rpc_subject_t  s;

    for (i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {

        len = strlen(whole[i].body);

        mcp_rpc_subject(&s, tap_edge(whole[i].body, len), len, 0);

        is_str(s.method, whole[i].method, "method");
        is_str(s.name, whole[i].name, whole[i].body);
    }
}


static void
test_cut(void)
{
    size_t             i, len;
    mcp_rpc_subject_t  s;

    for (i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {

        len = strlen(cut[i].body);

        mcp_rpc_subject(&s, tap_edge(cut[i].body, len), len, 1);

        is_str(s.method, cut[i].method, "method of a body that is cut");
        is_str(s.name, cut[i].name, cut[i].body);
    }
}


/* Wherever it is cut, what is told is the truth or nothing. */

static void
test_everywhere(void)
{
    size_t             i, n, len, wrong;
    mcp_rpc_subject_t  s;

    for (i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {

        len = strlen(whole[i].body);
        wrong = 0;

        for (n = 0; n < len; n++) {
            mcp_rpc_subject(&s, tap_edge(whole[i].body, n), n, 1);

            wrong += (s.method[0] != '\0' && whole[i].method[0] != '\0'
                      && strcmp(s.method, whole[i].method) != 0
                      && strcmp(s.method, "a") != 0);
            wrong += (s.name[0] != '\0' && strcmp(s.name, whole[i].name) != 0);
        }

        is_int(wrong, 0, "cut anywhere");
    }
}


int
main(void)
{
    test_whole();
    test_cut();
    test_everywhere();

    return tap_done();
}
