
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp_rpc_head.h"
#include "ngx_mcp_judge.h"


static ngx_uint_t ngx_mcp_judge_wanted(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static ngx_uint_t ngx_mcp_judge_result(ngx_http_request_t *r, u_char *body,
    size_t len);
static ngx_uint_t ngx_mcp_judge(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    mcp_rpc_reader_t *reader, ngx_uint_t *json);
static void ngx_mcp_judge_cleanup(void *data);


size_t
ngx_mcp_judge_limit(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    off_t   length;
    size_t  max;

    length = r->upstream->headers_in.content_length_n;

    if (!ngx_mcp_judge_wanted(r, ctx)) {
        return 0;
    }

    max = NGX_MCP_JUDGE_ERROR_MAX;

    if (r->upstream->headers_in.status_n == NGX_HTTP_OK) {

        /* a range is cut out by filters on both sides of ours */

        if (length < 0 || r->headers_in.range) {
            return 0;
        }

        max = NGX_MCP_JUDGE_JSON_MAX;
    }

    return (length <= (off_t) max) ? max : 0;
}


ngx_uint_t
ngx_mcp_judge_lost(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx, u_char *body,
    size_t len, ngx_uint_t *json)
{
    ngx_uint_t         lost;
    mcp_rpc_reader_t  *reader;

    if (ngx_mcp_judge_result(r, body, len)) {
        ctx->verdict = MCP_VERDICT_OK;
        ctx->judged = 1;
        *json = 1;

        return 0;
    }

    reader = mcp_rpc_reader_create(ngx_mcp_header_media(r->upstream), "", len);

    if (reader != NULL) {
        (void) mcp_rpc_reader_feed(reader, body, len);
    }

    lost = ngx_mcp_judge(r, ctx, reader, json);

    mcp_rpc_reader_destroy(reader);

    return lost;
}


void
ngx_mcp_judge_watch(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_pool_cleanup_t  *cln;

    if (!ngx_mcp_judge_wanted(r, ctx) || ctx->reader != NULL) {
        return;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return;
    }

    /* of unknown length: only the head of a long one is kept */

    ctx->reader = mcp_rpc_reader_create(ngx_mcp_header_media(r->upstream), "",
                                        -1);
    if (ctx->reader != NULL) {
        cln->handler = ngx_mcp_judge_cleanup;
        cln->data = ctx->reader;
    }
}


void
ngx_mcp_judge_feed(ngx_mcp_ctx_t *ctx, ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {
        if (ngx_buf_in_memory(in->buf)) {
            (void) mcp_rpc_reader_feed(ctx->reader, in->buf->pos,
                                       in->buf->last - in->buf->pos);
        }
    }
}


ngx_uint_t
ngx_mcp_judge_watched(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_uint_t  json;

    return ngx_mcp_judge(r, ctx, ctx->reader, &json);
}


/* Could this answer tell of a lost session at all?  A stream is no answer. */

static ngx_uint_t
ngx_mcp_judge_wanted(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_uint_t            status;
    mcp_media_t           media;
    ngx_http_upstream_t  *u;
    static ngx_str_t      encoding = ngx_string("Content-Encoding");

    u = r->upstream;
    status = u->headers_in.status_n;
    media = ngx_mcp_header_media(u);

    if (ctx->id.len == 0 || ctx->initialize || media == MCP_MEDIA_SSE
        || !(r->method & (NGX_HTTP_POST|NGX_HTTP_GET|NGX_HTTP_DELETE))
        || ngx_mcp_header_first(&u->headers_in.headers, &encoding))
    {
        return 0;
    }

    return status >= 400 || (status == NGX_HTTP_OK && media == MCP_MEDIA_JSON);
}


/* The common case, for which no parser is needed: a result. */

static ngx_uint_t
ngx_mcp_judge_result(ngx_http_request_t *r, u_char *body, size_t len)
{
    mcp_rpc_head_t  h;

    if (r->upstream->headers_in.status_n != NGX_HTTP_OK
        || ngx_mcp_header_media(r->upstream) != MCP_MEDIA_JSON)
    {
        return 0;
    }

    mcp_rpc_head_scan(&h, body, len, "");

    return h.whole && h.jsonrpc && h.result && !h.error && !h.method;
}


static ngx_uint_t
ngx_mcp_judge(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    mcp_rpc_reader_t *reader, ngx_uint_t *json)
{
    char              reason[MCP_REASON_MAX];
    mcp_facts_t       facts;
    mcp_rpc_answer_t  answer;

    ngx_memzero(&facts, sizeof(mcp_facts_t));
    ngx_memzero(&answer, sizeof(mcp_rpc_answer_t));

    facts.stage = MCP_STAGE_DONE;
    facts.session = 1;
    facts.ready = (ctx->known && ctx->session.state == NGX_MCP_SESSION_READY);
    facts.status = r->upstream->headers_in.status_n;
    facts.media = ngx_mcp_header_media(r->upstream);
    facts.answer = &answer;
    facts.phrases = ctx->conf->lost_texts;

    if (reader != NULL) {
        mcp_rpc_reader_finish(reader, &answer);

        facts.head_len = MCP_RPC_HEAD_MAX;
        facts.head = mcp_rpc_reader_head(reader, &facts.head_len);
    }

    /* an error with the call's own id may be that of its tool, which ran */

    ctx->unrun = (facts.status >= 400 && facts.status < 500)
                 || (answer.kind == MCP_RPC_ERROR
                     && (answer.id == MCP_RPC_ID_NULL
                         || answer.id == MCP_RPC_ID_MISSING));

    /* whatever id the client used, an answer to it is one */

    if (answer.id == MCP_RPC_ID_FOREIGN) {
        answer.id = MCP_RPC_ID_OURS;
    }

    *json = (answer.kind != MCP_RPC_NOTHING);

    ctx->verdict = mcp_classify(&facts, reason);
    ctx->judged = 1;

    switch (ctx->verdict) {

    case MCP_VERDICT_SESSION_LOST:
        return 1;

    case MCP_VERDICT_SESSION_SUSPECT:

        /* to the client it makes no odds why its session is not found */
        return facts.status == NGX_HTTP_NOT_FOUND;

    default:
        return 0;
    }
}


static void
ngx_mcp_judge_cleanup(void *data)
{
    mcp_rpc_reader_destroy(data);
}
