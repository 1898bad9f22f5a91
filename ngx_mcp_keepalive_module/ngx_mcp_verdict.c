
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_verdict.h"
#include "ngx_mcp_view.h"


static mcp_verdict_t ngx_mcp_verdict_unanswered(ngx_http_upstream_t *u,
    ngx_mcp_ctx_t *ctx, mcp_facts_t *facts);


mcp_verdict_t
ngx_mcp_verdict(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    char                  reason[MCP_REASON_MAX];
    mcp_facts_t           facts;
    ngx_http_upstream_t  *u;
    static ngx_str_t      retry_after = ngx_string("Retry-After");

    if (ctx->call != NULL || !ctx->mcp) {
        return MCP_VERDICT_N;
    }

    if (ctx->answer == NGX_MCP_ANSWER_LOST || ctx->lost) {
        return MCP_VERDICT_SESSION_LOST;
    }

    if (ctx->answer == NGX_MCP_ANSWER_UNAVAILABLE) {
        return MCP_VERDICT_PEER_DOWN;
    }

    u = ngx_mcp_verdict_upstream(r, ctx);

    if (u == NULL) {
        return ctx->judged ? ctx->verdict : MCP_VERDICT_N;
    }

    ngx_memzero(&facts, sizeof(mcp_facts_t));

    facts.session = (ctx->id.len != 0);
    facts.ready = (ctx->known && ctx->session.state == NGX_MCP_SESSION_READY);
    facts.status = u->headers_in.status_n;

    if (facts.status == 0) {
        return ngx_mcp_verdict_unanswered(u, ctx, &facts);
    }

    /* what no answer is expected to, and streams that servers need not have */

    if (facts.status < 300
        && (facts.status == NGX_HTTP_ACCEPTED
            || facts.status == NGX_HTTP_NO_CONTENT
            || r->method == NGX_HTTP_DELETE))
    {
        return MCP_VERDICT_OK;
    }

    if (r->method != NGX_HTTP_POST
        && (facts.status == NGX_HTTP_NOT_ALLOWED
            || facts.status == NGX_HTTP_NOT_IMPLEMENTED))
    {
        return MCP_VERDICT_UNSUPPORTED;
    }

    if (ctx->judged) {
        return ctx->verdict;
    }

    facts.media = ngx_mcp_header_media(r->upstream);
    facts.retry_after = ngx_mcp_header_first(&u->headers_in.headers,
                                               &retry_after) != NULL;

    return mcp_classify(&facts, reason);
}


ngx_http_upstream_t *
ngx_mcp_verdict_upstream(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    return (u != NULL && u->upstream == ctx->conf->upstream) ? u : NULL;
}


static mcp_verdict_t
ngx_mcp_verdict_unanswered(ngx_http_upstream_t *u, ngx_mcp_ctx_t *ctx,
    mcp_facts_t *facts)
{
    char                        reason[MCP_REASON_MAX];
    ngx_http_upstream_state_t  *state;

    state = u->state;

    /* still under way, or the client has left */

    if (state == NULL || state->status == 0) {
        return MCP_VERDICT_N;
    }

    facts->timedout = (state->status == NGX_HTTP_GATEWAY_TIME_OUT);
    facts->stage = u->request_sent ? MCP_STAGE_HEADER : MCP_STAGE_CONNECT;

    if (state->peer == NULL
        || ngx_mcp_view_find(ngx_mcp_view(&ctx->conf->policy), state->peer)
           == NULL
        || (ctx->contact.ear
            && ngx_mcp_capture_local(&ctx->contact.ear->capture)))
    {
        facts->stage = MCP_STAGE_LOCAL;
    }

    return mcp_classify(facts, reason);
}
