
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <string.h>

#include "mcp_rpc_head.h"


typedef struct {
    const unsigned char  *start;
    size_t                len;
} mcp_rpc_slice_t;


static const unsigned char *mcp_rpc_head_space(const unsigned char *p,
    const unsigned char *last);
static const unsigned char *mcp_rpc_head_string(const unsigned char *p,
    const unsigned char *last, mcp_rpc_slice_t *s);
static const unsigned char *mcp_rpc_head_value(const unsigned char *p,
    const unsigned char *last);
static void mcp_rpc_head_member(mcp_rpc_head_t *h, const mcp_rpc_slice_t *key,
    const unsigned char *p, const unsigned char *last, const char *id);
static int mcp_rpc_head_is(const mcp_rpc_slice_t *s, const char *text);


void
mcp_rpc_head_scan(mcp_rpc_head_t *h, const unsigned char *data, size_t len,
    const char *id)
{
    int                   array, escaped;
    mcp_rpc_slice_t       key;
    const unsigned char  *p, *last, *value;

    memset(h, 0, sizeof(mcp_rpc_head_t));

    last = data + len;
    escaped = 0;

    if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        data += 3;
    }

    p = mcp_rpc_head_space(data, last);

    array = (p < last && *p == '[');

    if (array) {
        p = mcp_rpc_head_space(p + 1, last);
    }

    if (p == last || *p != '{') {
        return;
    }

    do {
        p = mcp_rpc_head_space(p + 1, last);

        p = mcp_rpc_head_string(p, last, &key);
        if (p == NULL) {
            return;
        }

        p = mcp_rpc_head_space(p, last);
        if (p == last || *p != ':') {
            return;
        }

        p = mcp_rpc_head_space(p + 1, last);

        mcp_rpc_head_member(h, &key, p, last, id);

        /* written in another way it may be any of them */

        escaped |= (memchr(key.start, '\\', key.len) != NULL);

        value = p;

        p = mcp_rpc_head_value(p, last);
        if (p == NULL || p == value) {
            return;
        }

        p = mcp_rpc_head_space(p, last);

    } while (p < last && *p == ',');

    if (p < last && *p == '}' && !array && !escaped) {
        h->whole = (mcp_rpc_head_space(p + 1, last) == last);
    }
}


static const unsigned char *
mcp_rpc_head_space(const unsigned char *p, const unsigned char *last)
{
    while (p < last
           && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
    {
        p++;
    }

    return p;
}


/* Returns the byte after the closing quote, NULL if the string is not whole. */

static const unsigned char *
mcp_rpc_head_string(const unsigned char *p, const unsigned char *last,
    mcp_rpc_slice_t *s)
{
    if (p == last || *p != '"') {
        return NULL;
    }

    s->start = ++p;

    for ( /* void */ ; p < last && *p != '"'; p++) {

        if (*p == '\\' && ++p == last) {
            return NULL;
        }
    }

    if (p == last) {
        return NULL;
    }

    s->len = p - s->start;

    return p + 1;
}


/* Skips one value; NULL if it is cut or broken. */

static const unsigned char *
mcp_rpc_head_value(const unsigned char *p, const unsigned char *last)
{
    size_t           depth;
    mcp_rpc_slice_t  s;

    depth = 0;

    while (p < last) {

        switch (*p) {

        case '"':
            p = mcp_rpc_head_string(p, last, &s);
            if (p == NULL || depth == 0) {
                return p;
            }

            continue;

        case '{':
        case '[':
            depth++;
            break;

        case '}':
        case ']':
            if (depth == 0) {
                return p;
            }

            if (--depth == 0) {
                return p + 1;
            }

            break;

        case ',':
            if (depth == 0) {
                return p;
            }

            break;
        }

        p++;
    }

    return NULL;
}


static void
mcp_rpc_head_member(mcp_rpc_head_t *h, const mcp_rpc_slice_t *key,
    const unsigned char *p, const unsigned char *last, const char *id)
{
    mcp_rpc_slice_t  value;

    if (p == last) {
        return;
    }

    if (mcp_rpc_head_is(key, "jsonrpc")) {
        h->jsonrpc = 1;

    } else if (mcp_rpc_head_is(key, "result")) {
        h->result = 1;

    } else if (mcp_rpc_head_is(key, "error")) {
        h->error = (*p != 'n');

    } else if (mcp_rpc_head_is(key, "method")) {
        h->method = 1;

    } else if (mcp_rpc_head_is(key, "id")) {

        if (*p != '"') {
            h->id = (*p == 'n') ? MCP_RPC_ID_NULL : MCP_RPC_ID_FOREIGN;

        } else if (mcp_rpc_head_string(p, last, &value) != NULL) {
            h->id = mcp_rpc_head_is(&value, id) ? MCP_RPC_ID_OURS
                                                : MCP_RPC_ID_FOREIGN;
        }
    }
}


static int
mcp_rpc_head_is(const mcp_rpc_slice_t *s, const char *text)
{
    return s->len == strlen(text) && memcmp(s->start, text, s->len) == 0;
}
