
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "mcp_rpc_json.h"
#include "mcp_sse.h"
#include "mcp_start.h"


#define START_VERSION_CHARS  "0123456789-.ABCDEFGHIJKLMNOPQRSTUVWXYZ" \
                             "abcdefghijklmnopqrstuvwxyz"


struct mcp_start_reader_s {
    mcp_start_answer_t          answer;
    mcp_sse_t                   sse;
    size_t                      len;            /* of a body that is no stream
                                                 * */
    int                         stream;
    unsigned char               buf[MCP_RPC_HEAD_MAX];
};


static void mcp_start_judge(mcp_start_reader_t *r, const unsigned char *data,
    size_t len);


size_t
mcp_start_params(const unsigned char *data, size_t len, char *buf, size_t size)
{
    size_t   n;
    json_t  *msg;

    if (!mcp_rpc_is_initialize(data, len)) {
        return 0;
    }

    if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        data += 3;
        len -= 3;
    }

    /* integers stay what they are; beyond 64 bits they cannot be repeated */

    msg = json_loadb((const char *) data, len, JSON_ALLOW_NUL, NULL);

    n = json_dumpb(json_object_get(msg, "params"), buf, size,
                   JSON_COMPACT|JSON_SORT_KEYS);

    json_decref(msg);

    return (n > size) ? 0 : n;
}


size_t
mcp_start_initialize(char *buf, size_t size, const char *id,
    const char *params, size_t len)
{
    size_t   n;
    json_t  *msg;

    msg = json_pack("{s:s, s:s, s:s, s:o}", "jsonrpc", "2.0", "id", id,
                    "method", "initialize",
                    "params", json_loadb(params, len, JSON_ALLOW_NUL, NULL));
    if (msg == NULL) {
        return 0;
    }

    n = json_dumpb(msg, buf, size, JSON_COMPACT);

    json_decref(msg);

    return (n > size) ? 0 : n;
}


size_t
mcp_start_initialized(char *buf, size_t size)
{
    size_t   n;
    json_t  *msg;

    msg = json_pack("{s:s, s:s}", "jsonrpc", "2.0",
                    "method", "notifications/initialized");
    if (msg == NULL) {
        return 0;
    }

    n = json_dumpb(msg, buf, size, JSON_COMPACT);

    json_decref(msg);

    return (n > size) ? 0 : n;
}


mcp_start_reader_t *
mcp_start_create(mcp_media_t media)
{
    mcp_start_reader_t  *r;

    r = malloc(sizeof(mcp_start_reader_t));
    if (r == NULL) {
        return NULL;
    }

    memset(&r->answer, 0, sizeof(mcp_start_answer_t));

    r->len = 0;
    r->stream = (media == MCP_MEDIA_SSE);

    mcp_sse_init(&r->sse, r->buf, sizeof(r->buf));

    return r;
}


int
mcp_start_feed(mcp_start_reader_t *r, const unsigned char *data, size_t len)
{
    size_t                n;
    mcp_sse_rc_t          rc;
    const unsigned char  *p, *last;

    if (!r->stream) {
        n = sizeof(r->buf) - r->len;
        n = (len < n) ? len : n;

        memcpy(r->buf + r->len, data, n);
        r->len += n;

        return 0;
    }

    p = data;
    last = data + len;

    while (!r->answer.found) {

        rc = mcp_sse_feed(&r->sse, &p, last);

        if (rc == MCP_SSE_AGAIN) {
            return 0;
        }

        if (rc == MCP_SSE_EVENT) {
            mcp_start_judge(r, r->sse.data, r->sse.len);
        }
    }

    return 1;
}


void
mcp_start_finish(mcp_start_reader_t *r, mcp_start_answer_t *answer)
{
    if (!r->stream) {
        mcp_start_judge(r, r->buf, r->len);
    }

    *answer = r->answer;
}


void
mcp_start_destroy(mcp_start_reader_t *r)
{
    free(r);
}


static void
mcp_start_judge(mcp_start_reader_t *r, const unsigned char *data, size_t len)
{
    json_t      *msg, *result, *tools;
    const char  *version;

    msg = mcp_rpc_json_load(data, len);
    result = json_object_get(msg, "result");

    if (json_is_object(result)) {

        version = json_string_value(json_object_get(result,
                                                    "protocolVersion"));
        tools = json_object_get(json_object_get(result, "capabilities"),
                                "tools");

        r->answer.found = 1;
        r->answer.list_changed = json_is_true(json_object_get(tools,
                                                              "listChanged"));

        if (version != NULL
            && strlen(version) < MCP_START_VERSION_MAX
            && strspn(version, START_VERSION_CHARS) == strlen(version))
        {
            strcpy(r->answer.version, version);
        }
    }

    json_decref(msg);
}
