
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A server's answer to a client, as far as its session is concerned.
 */


#ifndef _NGX_MCP_JUDGE_H_INCLUDED_
#define _NGX_MCP_JUDGE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_classify.h"
#include "ngx_mcp_request.h"


#define NGX_MCP_JUDGE_ERROR_MAX   8192  /* body of a status from 400 on */
#define NGX_MCP_JUDGE_JSON_MAX    4096  /* body of a 200 in JSON */


/*
 * The most bytes of body that may be needed to judge the answer whose header
 * has come; 0: it is none that could tell of a lost session.
 */
size_t ngx_mcp_judge_limit(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/*
 * Starts to watch an answer that is too long to be held, but may tell of a lost
 * session all the same: ctx->reader is set, and freed with the request.
 */
void ngx_mcp_judge_watch(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/* Gives it what goes by. */
void ngx_mcp_judge_feed(ngx_mcp_ctx_t *ctx, ngx_chain_t *in);

/* The judgement at its end, as ngx_mcp_judge_lost(). */
ngx_uint_t ngx_mcp_judge_watched(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/*
 * True if the server says that it does not know the session.  "json" tells
 * whether the body is JSON-RPC that says so, too.
 */
ngx_uint_t ngx_mcp_judge_lost(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    u_char *body, size_t len, ngx_uint_t *json);


#endif /* _NGX_MCP_JUDGE_H_INCLUDED_ */
