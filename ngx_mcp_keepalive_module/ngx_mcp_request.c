
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc.h"
#include "ngx_mcp_endpoint.h"
#include "ngx_mcp_request.h"


/* A client's POST keeps its session busy for so many timeouts at most. */
#define NGX_MCP_BUSY_TIMEOUTS   10

/* Leases of requests and streams, in ms, and renewals within one. */
#define NGX_MCP_LEASE_MIN       400
#define NGX_MCP_LEASE_MAX       10000
#define NGX_MCP_RENEWALS        3


static ngx_http_core_loc_conf_t *ngx_mcp_request_location(
    ngx_http_request_t *r);
static ngx_msec_t ngx_mcp_request_hold(ngx_mcp_ctx_t *ctx);
static ngx_msec_t ngx_mcp_request_lease(ngx_mcp_srv_conf_t *conf);
static void ngx_mcp_request_body(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
static void ngx_mcp_request_head(ngx_mcp_ctx_t *ctx, u_char *p, size_t len);
static void ngx_mcp_request_params(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    u_char *p, size_t len);
static void ngx_mcp_request_modern(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
static u_char *ngx_mcp_request_body_copy(ngx_http_request_t *r, size_t len);
static ngx_int_t ngx_mcp_request_headers(ngx_http_request_t *r,
    ngx_mcp_srv_conf_t *conf, ngx_mcp_client_t *client);
static void ngx_mcp_request_end(ngx_mcp_ctx_t *ctx);
static void ngx_mcp_request_cleanup(void *data);


static ngx_queue_t  ngx_mcp_requests;


ngx_mcp_ctx_t *
ngx_mcp_request_ctx(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t  *ctx;

    /* of our own only the main request's survives an internal redirect */

    ctx = ngx_http_get_module_ctx(r->main, ngx_mcp_keepalive_module);

    if (ctx != NULL && ctx->call != NULL) {
        return ctx;
    }

    return ngx_http_get_module_ctx(r, ngx_mcp_keepalive_module);
}


ngx_mcp_ctx_t *
ngx_mcp_request_trace(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t       *ctx;
    ngx_pool_cleanup_t  *cln;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx != NULL || !r->internal) {
        return ctx;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler == ngx_mcp_request_cleanup) {
            ctx = cln->data;

            if (ctx->request == r) {
                return ctx;
            }
        }
    }

    return NULL;
}


ngx_int_t
ngx_mcp_request_start(ngx_http_request_t *r, ngx_mcp_srv_conf_t *conf)
{
    u_char               owner[NGX_MCP_OWNER_LEN];
    ngx_int_t            rc;
    ngx_msec_t           hold;
    ngx_mcp_ctx_t       *ctx;
    ngx_mcp_revive_t    *revive;
    ngx_pool_cleanup_t  *cln;

    hold = 0;

    ctx = ngx_http_get_module_ctx(r, ngx_mcp_keepalive_module);

    if (ctx == NULL) {
        cln = ngx_pool_cleanup_add(r->pool, 0);
        if (cln == NULL) {
            return NGX_ERROR;
        }

        /* in the pool it would make many a stream need another block of it */

        ctx = ngx_calloc(sizeof(ngx_mcp_ctx_t), r->connection->log);
        if (ctx == NULL) {
            return NGX_ERROR;
        }

        cln->data = ctx;
        cln->handler = ngx_mcp_request_cleanup;
        ngx_http_set_ctx(r, ctx, ngx_mcp_keepalive_module);

    } else {
        ngx_mcp_request_end(ctx);

        revive = ctx->revive;
        mcp_start_destroy(ctx->start_reader);

        if (ctx->contact.ear) {
            ngx_free(ctx->contact.ear);
        }

        ngx_memzero(ctx, sizeof(ngx_mcp_ctx_t));

        ctx->revive = revive;
    }

    ctx->request = r;
    ctx->conf = conf;
    ctx->start = ngx_current_msec;
    ctx->renewed = ctx->start;
    ctx->keepalive = r->keepalive;
    ctx->error_page = r->error_page;

    if (r->method == NGX_HTTP_POST && r == r->main) {
        ngx_mcp_request_body(r, ctx);
    }

    ngx_mcp_request_modern(r, ctx);

    if (ctx->modern) {

        /* a session id is left over from other times: nobody looks at it */

        ctx->mcp = 1;
        return NGX_OK;
    }

    rc = ngx_mcp_header_session_id(&r->headers_in.headers, &ctx->id);

    ctx->mcp = (ctx->message || ctx->initialize || ctx->unread
                || rc != NGX_DECLINED);

    if (rc == NGX_ERROR) {

        /* but what starts a session starts one, whatever it carries */

        if (!ctx->initialize && !ctx->unread) {
            ctx->untracked = 1;
            ngx_mcp_session_untracked(&conf->policy);
        }
    }

    if (rc != NGX_OK) {
        return NGX_OK;
    }

    if (r == r->main && (r->method & (NGX_HTTP_POST|NGX_HTTP_DELETE))) {
        hold = ngx_mcp_request_hold(ctx);
    }

    if (ngx_mcp_session_begin(&conf->policy, &ctx->id, hold, &ctx->session)
        != NGX_OK)
    {
        return NGX_OK;
    }

    ctx->known = 1;

    if (ctx->session.alias.len) {
        ctx->alias.len = ctx->session.alias.len;
        ctx->alias.data = ngx_pstrdup(r->pool, &ctx->session.alias);

        if (ctx->alias.data == NULL) {
            return NGX_ERROR;
        }
    }

    if (ctx->session.revival && r == r->main) {

        /* it may go out twice: a file it lies in stays open */
        r->preserve_body = 1;
    }

    /* one that may be an "initialize" is for the server to answer */

    if (ctx->session.state == NGX_MCP_SESSION_LOST
        && !ctx->initialize && !ctx->unread
        && r == r->main && r->method != NGX_HTTP_OPTIONS
        && ngx_mcp_request_owner(r, ctx, owner) == NGX_OK
        && ngx_mcp_session_refuse(&conf->policy, &ctx->session.ref, owner))
    {
        ctx->answer = NGX_MCP_ANSWER_LOST;
    }

    if (hold) {
        ctx->busy = 1;
        ngx_queue_insert_tail(&ngx_mcp_requests, &ctx->queue);
    }

    /* a client that starts over goes where the balancer sends it */

    if (conf->pin && !ctx->initialize && !ctx->session.gone) {
        ctx->pin.data = ctx->session.peer;
        ctx->pin.len = ctx->session.peer_len;
    }

    return NGX_OK;
}


ngx_int_t
ngx_mcp_request_owner(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx, u_char *owner)
{
    ngx_mcp_client_t  client;

    ngx_memzero(&client, sizeof(ngx_mcp_client_t));

    if (ngx_mcp_request_headers(r, ctx->conf, &client) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_memcpy(owner, client.owner, NGX_MCP_OWNER_LEN);

    return NGX_OK;
}


void
ngx_mcp_request_stream(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    if (!ctx->known || ctx->busy || ctx->stream) {
        return;
    }

    ctx->stream = 1;
    ngx_queue_insert_tail(&ngx_mcp_requests, &ctx->queue);

    ngx_mcp_session_stream(&ctx->conf->policy, &ctx->session.ref, ctx->start,
                           ngx_mcp_request_hold(ctx));
}


ngx_int_t
ngx_mcp_request_client(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_client_t *client)
{
    ngx_memzero(client, sizeof(ngx_mcp_client_t));

    client->start = ctx->start;
    client->life = ctx->session.life;
    client->slot = ctx->contact.peer;
    client->epoch = ctx->contact.epoch;
    client->endpoint = ngx_mcp_endpoint_text(r, NGX_MCP_ENDPOINT_MAX);

    if (ctx->version) {
        client->version = ctx->version->value;
    }

    if (r->upstream->state && r->upstream->state->peer) {
        client->peer = *r->upstream->state->peer;
    }

    return ngx_mcp_request_headers(r, ctx->conf, client);
}


ngx_int_t
ngx_mcp_request_no_error_pages(ngx_http_request_t *r)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_mcp_request_location(r);

    if (clcf == NULL) {
        return NGX_ERROR;
    }

    clcf->error_pages = NULL;

    return NGX_OK;
}


ngx_int_t
ngx_mcp_request_quiet(ngx_http_request_t *r)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->error_pages == NULL && !clcf->log_subrequest
        && clcf->post_action.data == NULL)
    {
        return NGX_OK;
    }

    clcf = ngx_mcp_request_location(r);

    if (clcf == NULL) {
        return NGX_ERROR;
    }

    clcf->error_pages = NULL;
    clcf->log_subrequest = 0;
    ngx_str_null(&clcf->post_action);

    return NGX_OK;
}


void
ngx_mcp_request_renew(void)
{
    ngx_msec_t      hold;
    ngx_queue_t    *q, *next;
    ngx_mcp_ctx_t  *ctx;

    for (q = ngx_queue_head(&ngx_mcp_requests);
         q != ngx_queue_sentinel(&ngx_mcp_requests);
         q = next)
    {
        next = ngx_queue_next(q);
        ctx = ngx_queue_data(q, ngx_mcp_ctx_t, queue);
        hold = ngx_mcp_request_hold(ctx);

        if (ngx_current_msec - ctx->renewed
            < ngx_mcp_request_lease(ctx->conf) / NGX_MCP_RENEWALS)
        {
            continue;
        }

        if (hold == 0) {
            ngx_mcp_request_end(ctx);
            continue;
        }

        ctx->renewed = ngx_current_msec;

        ngx_mcp_session_renew(&ctx->conf->policy, &ctx->session,
                              ctx->stream ? NGX_MCP_USE_STREAM
                                          : NGX_MCP_USE_REQUEST,
                              hold);
    }
}


void
ngx_mcp_request_init_process(void)
{
    ngx_queue_init(&ngx_mcp_requests);
}


/* A copy of the core's part of the location, for this request alone. */

static ngx_http_core_loc_conf_t *
ngx_mcp_request_location(ngx_http_request_t *r)
{
    void                      **loc_conf;
    ngx_http_core_loc_conf_t   *clcf;

    clcf = ngx_palloc(r->pool, sizeof(ngx_http_core_loc_conf_t));
    loc_conf = ngx_palloc(r->pool, sizeof(void *) * ngx_http_max_module);

    if (clcf == NULL || loc_conf == NULL) {
        return NULL;
    }

    ngx_memcpy(loc_conf, r->loc_conf, sizeof(void *) * ngx_http_max_module);
    ngx_memcpy(clcf, loc_conf[ngx_http_core_module.ctx_index],
               sizeof(ngx_http_core_loc_conf_t));

    loc_conf[ngx_http_core_module.ctx_index] = clcf;
    r->loc_conf = loc_conf;

    return clcf;
}


/* For how long a lease is taken; 0: a request's time as a busy one is over. */

static ngx_msec_t
ngx_mcp_request_hold(ngx_mcp_ctx_t *ctx)
{
    ngx_msec_t  spent, most, lease;

    lease = ngx_mcp_request_lease(ctx->conf);

    if (ctx->stream) {
        return lease;
    }

    spent = ngx_current_msec - ctx->start;
    most = NGX_MCP_BUSY_TIMEOUTS * ctx->conf->policy.timeout;

    return (spent < most) ? ngx_min(lease, most - spent) : 0;
}


/* So short that a request long over does not keep a session from its next. */

static ngx_msec_t
ngx_mcp_request_lease(ngx_mcp_srv_conf_t *conf)
{
    ngx_msec_t  lease;

    lease = conf->policy.interval ? conf->policy.interval / 2
                                  : NGX_MCP_LEASE_MAX;

    lease = ngx_min(lease, NGX_MCP_LEASE_MAX);

    return ngx_max(lease, NGX_MCP_LEASE_MIN);
}


/* What is in the body of a POST?  One too long, or not read, cannot be told. */

static void
ngx_mcp_request_body(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    size_t                    len;
    u_char                   *p;
    ngx_chain_t              *cl;
    ngx_http_request_body_t  *rb;

    rb = r->request_body;

    if (rb == NULL || rb->bufs == NULL) {
        ctx->unread = r->request_body_no_buffering;
        return;
    }

    len = 0;

    for (cl = rb->bufs; cl; cl = cl->next) {
        len += ngx_buf_size(cl->buf);
    }

    if (rb->bufs->next == NULL && !rb->bufs->buf->in_file) {
        p = rb->bufs->buf->pos;

    } else {
        p = ngx_mcp_request_body_copy(r, ngx_min(len, MCP_RPC_HEAD_MAX));
    }

    if (p == NULL) {
        ctx->unread = 1;
        return;
    }

    if (len > MCP_RPC_HEAD_MAX || r->request_body_no_buffering) {
        ngx_mcp_request_head(ctx, p, ngx_min(len, MCP_RPC_HEAD_MAX));
        return;
    }

    ctx->initialize = mcp_rpc_is_initialize(p, len);

    if (ctx->initialize && ctx->conf->policy.revive) {
        ngx_mcp_request_params(r, ctx, p, len);
    }

    ctx->message = !ctx->initialize && mcp_rpc_is_message(p, len);
    ctx->prompt = ctx->initialize;
}


/* Only the head of a body can be seen: it may yet be an "initialize". */

static void
ngx_mcp_request_head(ngx_mcp_ctx_t *ctx, u_char *p, size_t len)
{
    static ngx_str_t  method = ngx_string("\"method\"");
    static ngx_str_t  name = ngx_string("\"initialize\"");

    ctx->message = mcp_rpc_is_message(p, len);

    ctx->unread = (ngx_strlcasestrn(p, p + len, name.data, name.len - 1)
                   || !ngx_strlcasestrn(p, p + len, method.data,
                                        method.len - 1));
}


/*
 * Is the request of a revision without sessions?  Its header says so; one that
 * starts a session is not, whatever that says, and though its body may not have
 * been read yet.
 */

static void
ngx_mcp_request_modern(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_table_elt_t    *h;
    mcp_modern_kind_t   kind;
    static ngx_str_t    method = ngx_string("Mcp-Method");

    h = ngx_mcp_header_only(&r->headers_in.headers, &ngx_mcp_header_version);

    ctx->version = h;

    if (h == NULL || ctx->initialize
        || !mcp_modern_is((char *) h->value.data, h->value.len))
    {
        return;
    }

    h = ngx_mcp_header_only(&r->headers_in.headers, &method);

    kind = h ? mcp_modern_kind((char *) h->value.data, h->value.len)
             : MCP_MODERN_OTHER;

    if (kind == MCP_MODERN_INITIALIZE) {
        return;
    }

    ctx->modern = 1;

    if (r->method == NGX_HTTP_POST) {
        ctx->prompt = (kind == MCP_MODERN_PROMPT && r == r->main);
        ctx->listen = (kind == MCP_MODERN_LISTEN);
    }
}


/* What it takes to do as its client did. */

static void
ngx_mcp_request_params(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx, u_char *p,
    size_t len)
{
    char  buf[MCP_START_PARAMS_MAX];

    ctx->params.len = mcp_start_params(p, len, buf, MCP_START_PARAMS_MAX);
    ctx->params.data = ngx_pnalloc(r->pool, ctx->params.len + 1);

    if (ctx->params.data == NULL) {
        ctx->params.len = 0;
        return;
    }

    ngx_memcpy(ctx->params.data, buf, ctx->params.len);
}


/* The first "len" bytes of a body in pieces, or in a file; or NULL. */

static u_char *
ngx_mcp_request_body_copy(ngx_http_request_t *r, size_t len)
{
    size_t        done;
    ssize_t       n;
    u_char       *p;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NULL;
    }

    done = 0;

    for (cl = r->request_body->bufs; cl && done < len; cl = cl->next) {

        b = cl->buf;
        n = ngx_min((size_t) ngx_buf_size(b), len - done);

        if (!b->in_file) {
            ngx_memcpy(p + done, b->pos, n);

        } else if (ngx_read_file(b->file, p + done, n, b->file_pos) != n) {
            return NULL;
        }

        done += n;
    }

    return p;
}


/*
 * The headers to remember, and the digest of all that tells the owner.  Both
 * the order of the names and their spelling are the configuration's.
 */

static ngx_int_t
ngx_mcp_request_headers(ngx_http_request_t *r, ngx_mcp_srv_conf_t *conf,
    ngx_mcp_client_t *client)
{
    size_t            len;
    u_char           *p, *start;
    ngx_str_t        *name;
    ngx_uint_t        i, n;
    ngx_table_elt_t  *h, *authorization;

    authorization = r->headers_in.authorization;

    n = conf->pass_headers ? conf->pass_headers->nelts : 0;
    name = n ? conf->pass_headers->elts : NULL;

    len = authorization ? authorization->value.len : 0;

    for (i = 0; i < n; i++) {
        h = ngx_mcp_header_first(&r->headers_in.headers, &name[i]);
        len += h ? name[i].len + h->value.len + 2 : 0;
    }

    if (len == 0) {
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    start = p;

    for (i = 0; i < n; i++) {
        h = ngx_mcp_header_first(&r->headers_in.headers, &name[i]);
        if (h == NULL) {
            continue;
        }

        p = ngx_cpymem(p, name[i].data, name[i].len);
        *p++ = '\0';
        p = ngx_cpymem(p, h->value.data, h->value.len);
        *p++ = '\0';
    }

    client->headers.data = start;
    client->headers.len = p - start;

    if (authorization && !conf->authorization) {
        client->credentials = 1;
        p = ngx_cpymem(p, authorization->value.data, authorization->value.len);
    }

    ngx_mcp_zone_digest(conf->policy.zone, start, p - start, client->owner,
                        NGX_MCP_OWNER_LEN);

    if (client->headers.len > NGX_MCP_HEADERS_MAX) {
        client->headers.len = 0;
        client->credentials = 1;
    }

    return NGX_OK;
}


static void
ngx_mcp_request_end(ngx_mcp_ctx_t *ctx)
{
    if (!ctx->busy && !ctx->stream) {
        return;
    }

    ngx_queue_remove(&ctx->queue);

    if (ctx->busy) {
        ngx_mcp_session_end(&ctx->conf->policy, &ctx->session);
    }

    ctx->busy = 0;
    ctx->stream = 0;
}


static void
ngx_mcp_request_cleanup(void *data)
{
    ngx_mcp_ctx_t *ctx = data;

    ngx_mcp_request_end(ctx);

    if (ctx->contact.ear) {
        ngx_free(ctx->contact.ear);
    }

    ngx_free(ctx);
}
