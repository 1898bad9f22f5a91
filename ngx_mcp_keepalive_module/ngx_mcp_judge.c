
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_judge.h"


static mcp_media_t ngx_mcp_judge_media(ngx_http_upstream_t *u);
static void ngx_mcp_judge_read(mcp_media_t media, u_char *body, size_t len,
    mcp_rpc_answer_t *answer);


size_t
ngx_mcp_judge_limit(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    off_t                 length;
    size_t                max;
    mcp_media_t           media;
    ngx_uint_t            status;
    ngx_table_elt_t      *h;
    ngx_http_upstream_t  *u;
    static ngx_str_t      encoding = ngx_string("Content-Encoding");

    u = r->upstream;
    status = u->headers_in.status_n;
    length = u->headers_in.content_length_n;
    media = ngx_mcp_judge_media(u);

    if (ctx->id.len == 0 || ctx->initialize
        || !(r->method & (NGX_HTTP_POST|NGX_HTTP_GET|NGX_HTTP_DELETE)))
    {
        return 0;
    }

    if (media == MCP_MEDIA_SSE) {

        /* a stream is never held */
        return 0;
    }

    if (status >= 400) {
        max = NGX_MCP_JUDGE_ERROR_MAX;

    } else if (status == NGX_HTTP_OK && length >= 0
               && media == MCP_MEDIA_JSON)
    {
        max = NGX_MCP_JUDGE_JSON_MAX;

    } else {
        return 0;
    }

    if (length > (off_t) max) {
        return 0;
    }

    h = ngx_mcp_request_header(&u->headers_in.headers, &encoding);

    return (h == NULL) ? max : 0;
}


ngx_uint_t
ngx_mcp_judge_lost(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx, u_char *body,
    size_t len, ngx_uint_t *json)
{
    char              reason[MCP_REASON_MAX];
    mcp_facts_t       facts;
    mcp_rpc_answer_t  answer;

    ngx_memzero(&facts, sizeof(mcp_facts_t));

    facts.stage = MCP_STAGE_DONE;
    facts.session = 1;
    facts.ready = (ctx->known && ctx->session.state == NGX_MCP_SESSION_READY);
    facts.status = r->upstream->headers_in.status_n;
    facts.media = ngx_mcp_judge_media(r->upstream);
    facts.head = (char *) body;
    facts.head_len = len;
    facts.answer = &answer;
    facts.phrases = ctx->conf->lost_texts;

    ngx_mcp_judge_read(facts.media, body, len, &answer);

    *json = (answer.kind != MCP_RPC_NOTHING);

    switch (mcp_classify(&facts, reason)) {

    case MCP_VERDICT_SESSION_LOST:
        return 1;

    case MCP_VERDICT_SESSION_SUSPECT:

        /* to the client it makes no odds why its session is not found */
        return facts.status == NGX_HTTP_NOT_FOUND;

    default:
        return 0;
    }
}


static mcp_media_t
ngx_mcp_judge_media(ngx_http_upstream_t *u)
{
    ngx_table_elt_t  *h;

    h = u->headers_in.content_type;

    return h ? mcp_rpc_media((char *) h->value.data, h->value.len)
             : MCP_MEDIA_NONE;
}


/* Whatever id the client used, an answer to it is one. */

static void
ngx_mcp_judge_read(mcp_media_t media, u_char *body, size_t len,
    mcp_rpc_answer_t *answer)
{
    mcp_rpc_reader_t  *reader;

    ngx_memzero(answer, sizeof(mcp_rpc_answer_t));
    answer->empty = (len == 0);

    reader = mcp_rpc_reader_create(media, "", len);
    if (reader == NULL) {
        return;
    }

    (void) mcp_rpc_reader_feed(reader, body, len);
    mcp_rpc_reader_finish(reader, answer);
    mcp_rpc_reader_destroy(reader);

    if (answer->id == MCP_RPC_ID_FOREIGN) {
        answer->id = MCP_RPC_ID_OURS;
    }
}
