
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "mcp_rpc.h"
#include "mcp_rpc_head.h"
#include "mcp_rpc_json.h"
#include "mcp_sse.h"


#define READER_ALLOC_MIN  4096
#define READER_RAW_MAX    1024          /* of a stream, as it came */


struct mcp_rpc_reader_s {
    mcp_rpc_answer_t            answer;
    mcp_sse_t                   sse;
    unsigned char              *buf;        /* the body, or one event's data */
    size_t                      len;        /* of a body that is no stream */
    size_t                      size;
    size_t                      max;        /* of what is kept */
    size_t                      raw_len;
    unsigned                    stream:1;
    unsigned                    done:1;
    unsigned                    any:1;      /* a byte came */
    unsigned                    over:1;     /* the body did not fit */
    unsigned char               raw[READER_RAW_MAX];
    char                        id[MCP_RPC_ID_MAX];
};


/* with the reader itself and a first buffer that is copied: HEAD_MAX in all */

#define READER_KEEP_MAX   (MCP_RPC_HEAD_MAX - READER_ALLOC_MIN \
                           - sizeof(mcp_rpc_reader_t))


static mcp_rpc_rc_t mcp_rpc_reader_body(mcp_rpc_reader_t *r,
    const unsigned char *data, size_t len);
static mcp_rpc_rc_t mcp_rpc_reader_stream(mcp_rpc_reader_t *r,
    const unsigned char *data, size_t len);
static void mcp_rpc_reader_event(mcp_rpc_reader_t *r, int cut);
static mcp_rpc_rc_t mcp_rpc_reader_room(mcp_rpc_reader_t *r, size_t need);
static void mcp_rpc_reader_judge(mcp_rpc_reader_t *r,
    const unsigned char *data, size_t len);
static int mcp_rpc_reader_long_result(mcp_rpc_reader_t *r,
    const unsigned char *data, size_t len);
static void mcp_rpc_reader_judge_head(mcp_rpc_reader_t *r,
    const unsigned char *data, size_t len);


mcp_rpc_reader_t *
mcp_rpc_reader_create(mcp_media_t media, const char *id, long long length)
{
    mcp_rpc_reader_t  *r;

    r = calloc(1, sizeof(mcp_rpc_reader_t));
    if (r == NULL) {
        return NULL;
    }

    r->stream = (media == MCP_MEDIA_SSE);
    r->max = READER_KEEP_MAX;

    if (length > (long long) READER_KEEP_MAX && length <= MCP_RPC_BODY_MAX) {
        r->max = (size_t) length;
    }

    strncpy(r->id, id, MCP_RPC_ID_MAX - 1);

    mcp_sse_init(&r->sse, NULL, 0);

    return r;
}


mcp_rpc_rc_t
mcp_rpc_reader_feed(mcp_rpc_reader_t *r, const unsigned char *data, size_t len)
{
    size_t  n;

    if (r->done) {
        return MCP_RPC_DONE;
    }

    if (len == 0) {
        return MCP_RPC_AGAIN;
    }

    r->any = 1;

    if (!r->stream) {
        return mcp_rpc_reader_body(r, data, len);
    }

    n = READER_RAW_MAX - r->raw_len;
    n = (len < n) ? len : n;

    memcpy(r->raw + r->raw_len, data, n);
    r->raw_len += n;

    return mcp_rpc_reader_stream(r, data, len);
}


static mcp_rpc_rc_t
mcp_rpc_reader_body(mcp_rpc_reader_t *r, const unsigned char *data, size_t len)
{
    size_t        n;
    mcp_rpc_rc_t  rc;

    if (r->over) {
        return MCP_RPC_AGAIN;
    }

    n = r->max - r->len;

    if (len > n) {
        r->over = 1;
        len = n;
    }

    rc = mcp_rpc_reader_room(r, r->len + len);

    if (rc == MCP_RPC_NOMEM) {
        r->over = 1;
        n = r->size - r->len;
        len = (len < n) ? len : n;
    }

    if (len != 0) {
        memcpy(r->buf + r->len, data, len);
        r->len += len;
    }

    return rc;
}


static mcp_rpc_rc_t
mcp_rpc_reader_stream(mcp_rpc_reader_t *r, const unsigned char *data,
    size_t len)
{
    size_t                need;
    mcp_sse_rc_t          rc;
    mcp_rpc_rc_t          room;
    const unsigned char  *p, *last;

    p = data;
    last = data + len;
    room = MCP_RPC_AGAIN;

    for ( ;; ) {

        /* an event's data is never longer than the input it came in */

        need = r->sse.fresh ? 0 : r->sse.len;
        need += last - p;
        need = (need < r->max) ? need : r->max;

        if (room == MCP_RPC_AGAIN) {
            room = mcp_rpc_reader_room(r, need);
            mcp_sse_move(&r->sse, r->buf, r->size);
        }

        rc = mcp_sse_feed(&r->sse, &p, last);

        if (rc == MCP_SSE_AGAIN) {
            return room;
        }

        mcp_rpc_reader_event(r, rc == MCP_SSE_TOO_BIG);

        if (r->done) {
            return MCP_RPC_DONE;
        }
    }
}


static void
mcp_rpc_reader_event(mcp_rpc_reader_t *r, int cut)
{
    if (cut) {
        mcp_rpc_reader_judge_head(r, r->sse.data, r->sse.len);

    } else if (r->sse.len != 0) {
        mcp_rpc_reader_judge(r, r->sse.data, r->sse.len);

    } else {
        r->answer.others++;
    }

    r->done = (r->answer.kind != MCP_RPC_NOTHING);
}


static mcp_rpc_rc_t
mcp_rpc_reader_room(mcp_rpc_reader_t *r, size_t need)
{
    size_t          size;
    unsigned char  *p;

    if (need <= r->size) {
        return MCP_RPC_AGAIN;
    }

    size = (need <= READER_ALLOC_MIN) ? READER_ALLOC_MIN : r->max;

    p = realloc(r->buf, size);
    if (p == NULL) {
        return MCP_RPC_NOMEM;
    }

    r->buf = p;
    r->size = size;

    return MCP_RPC_AGAIN;
}


static void
mcp_rpc_reader_judge(mcp_rpc_reader_t *r, const unsigned char *data,
    size_t len)
{
    json_t  *root;

    if (len > MCP_RPC_HEAD_MAX && mcp_rpc_reader_long_result(r, data, len)) {
        return;
    }

    root = mcp_rpc_json_load(data, len);

    if (root == NULL) {
        r->answer.others += r->stream;
        return;
    }

    (void) mcp_rpc_json_judge(root, r->id, r->stream, &r->answer);

    json_decref(root);
}


/*
 * A parser takes 20 ms and ten times the memory for a result of 1 MiB, in which
 * nothing but its being there is of interest.
 */

static int
mcp_rpc_reader_long_result(mcp_rpc_reader_t *r, const unsigned char *data,
    size_t len)
{
    mcp_rpc_head_t  h;

    mcp_rpc_head_scan(&h, data, len, r->id);

    if (!h.whole || !h.result || h.error || h.method
        || !mcp_rpc_json_counts(MCP_RPC_RESULT, h.id, h.jsonrpc, 0, r->stream))
    {
        return 0;
    }

    r->answer.json = 1;
    r->answer.object |= h.jsonrpc;
    r->answer.kind = MCP_RPC_RESULT;
    r->answer.id = h.id;

    return 1;
}


/*
 * Of a message too long to be kept the id may never be seen, as many servers
 * write it last; the answer to a request of ours is then taken for ours.
 */

static void
mcp_rpc_reader_judge_head(mcp_rpc_reader_t *r, const unsigned char *data,
    size_t len)
{
    mcp_rpc_kind_t    kind;
    mcp_rpc_head_t    h;
    mcp_rpc_answer_t  *a;

    a = &r->answer;

    if (len > MCP_RPC_HEAD_MAX) {
        len = MCP_RPC_HEAD_MAX;
    }

    mcp_rpc_head_scan(&h, data, len, r->id);

    if (h.method || (r->stream && h.id == MCP_RPC_ID_FOREIGN)) {
        kind = MCP_RPC_NOTHING;

    } else if (h.error) {
        kind = MCP_RPC_ERROR;

    } else {
        kind = h.result ? MCP_RPC_RESULT : MCP_RPC_NOTHING;
    }

    a->object |= h.jsonrpc;

    if (kind == MCP_RPC_NOTHING) {
        a->others++;
        return;
    }

    a->kind = kind;
    a->id = h.id;
    a->too_big = 1;
}


void
mcp_rpc_reader_finish(mcp_rpc_reader_t *r, mcp_rpc_answer_t *answer)
{
    if (!r->stream && !r->done) {

        if (r->over) {
            mcp_rpc_reader_judge_head(r, r->len ? r->buf : r->raw, r->len);
            r->answer.too_big = 1;

        } else {
            mcp_rpc_reader_judge(r, r->buf, r->len);
        }

        r->done = 1;
    }

    r->answer.empty = !r->any;

    *answer = r->answer;
}


const char *
mcp_rpc_reader_head(mcp_rpc_reader_t *r, size_t *len)
{
    size_t                n;
    const unsigned char  *p;

    p = (r->stream || r->buf == NULL) ? r->raw : r->buf;
    n = r->stream ? r->raw_len : r->len;

    if (*len > n) {
        *len = n;
    }

    return (const char *) p;
}


void
mcp_rpc_reader_destroy(mcp_rpc_reader_t *r)
{
    if (r == NULL) {
        return;
    }

    free(r->buf);
    free(r);
}
