
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_start.h"
#include "ngx_mcp_handshake.h"
#include "ngx_mcp_revive.h"


/* A request that waits for others looks again after this, in ms. */
#define NGX_MCP_REVIVE_POLL    100

/* A lease outlives the handshake by this, in ms. */
#define NGX_MCP_REVIVE_SLACK   1000


struct ngx_mcp_revive_s {
    ngx_http_request_t         *request;
    ngx_mcp_srv_conf_t         *conf;
    ngx_mcp_session_ref_t       ref;
    ngx_mcp_revival_t           rev;
    ngx_msec_t                  end;        /* waits no longer than this */
    ngx_event_t                 event;
    ngx_queue_t                 queue;      /* of those that wait */
    void                      **loc_conf;   /* of the request, before */
    unsigned                    waiting:1;
    unsigned                    first:1;    /* in a phase before the content */
};


static ngx_uint_t ngx_mcp_revive_begin(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static ngx_uint_t ngx_mcp_revive_able(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static void ngx_mcp_revive_poll(ngx_event_t *ev);
static void ngx_mcp_revive_done(ngx_mcp_session_ref_t *ref);
static void ngx_mcp_revive_resume(ngx_mcp_revive_t *w);
static void ngx_mcp_revive_leave(ngx_mcp_revive_t *w);
static void ngx_mcp_revive_cleanup(void *data);
static void ngx_mcp_revive_learned(void *data);


static ngx_queue_t  ngx_mcp_revives;


void
ngx_mcp_revive_init_process(void)
{
    ngx_queue_init(&ngx_mcp_revives);
}


ngx_uint_t
ngx_mcp_revive_wait(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    if (!ngx_mcp_revive_begin(r, ctx)) {
        return 0;
    }

    /* outlives the answer that is swallowed, which is no end to act on */

    r->main->count++;
    ctx->swallow = 1;

    /* not what a client that leaves meanwhile was told */

    r->err_status = 0;
    r->headers_out.status = 0;

    ctx->revive->loc_conf = r->loc_conf;
    (void) ngx_mcp_request_quiet(r);

    return 1;
}


ngx_uint_t
ngx_mcp_revive_first(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    if (!ngx_mcp_revive_begin(r, ctx)) {
        return 0;
    }

    ctx->revive->first = 1;

    return 1;
}


ngx_uint_t
ngx_mcp_revive_waits(ngx_mcp_ctx_t *ctx)
{
    return ctx->revive->waiting;
}


static ngx_uint_t
ngx_mcp_revive_begin(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    u_char               owner[NGX_MCP_OWNER_LEN];
    ngx_mcp_revive_t    *w;
    ngx_http_cleanup_t  *cln;

    if (!ngx_mcp_revive_able(r, ctx)
        || ngx_mcp_request_owner(r, ctx, owner) != NGX_OK)
    {
        return 0;
    }

    cln = ngx_http_cleanup_add(r, sizeof(ngx_mcp_revive_t));
    if (cln == NULL) {
        return 0;
    }

    w = cln->data;
    ngx_memzero(w, sizeof(ngx_mcp_revive_t));

    if (!ngx_mcp_revival_possible(&ctx->conf->policy, &ctx->session, owner,
                                  &w->rev))
    {
        return 0;
    }

    cln->handler = ngx_mcp_revive_cleanup;

    w->request = r;
    w->conf = ctx->conf;
    w->ref = ctx->session.ref;
    w->end = ngx_current_msec + ctx->conf->policy.timeout;

    w->event.handler = ngx_mcp_revive_poll;
    w->event.data = w;
    w->event.log = ngx_cycle->log;

    w->waiting = 1;
    ngx_queue_insert_tail(&ngx_mcp_revives, &w->queue);

    ctx->revive = w;
    ctx->answer = NGX_MCP_ANSWER_NONE;

    ngx_post_event(&w->event, &ngx_posted_events);

    return 1;
}


void
ngx_mcp_revive_watch(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_session_ref_t *ref)
{
    ngx_pool_cleanup_t  *cln;

    if (ctx->conf->policy.revive == 0 || ctx->start_reader != NULL
        || ctx->params.len == 0)
    {
        return;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return;
    }

    ctx->start_reader = mcp_start_create(ngx_mcp_header_media(r->upstream));

    if (ctx->start_reader != NULL) {
        cln->handler = ngx_mcp_revive_learned;
        cln->data = ctx;

        ctx->learned = *ref;
        r->filter_need_in_memory = 1;
    }
}


void
ngx_mcp_revive_feed(ngx_mcp_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_uint_t           last;
    mcp_start_answer_t   answer;

    last = 0;

    for ( /* void */ ; in; in = in->next) {

        if (ngx_buf_in_memory(in->buf)
            && mcp_start_feed(ctx->start_reader, in->buf->pos,
                              in->buf->last - in->buf->pos))
        {
            last = 1;
        }

        last |= in->buf->last_buf;
    }

    if (!last) {
        return;
    }

    mcp_start_finish(ctx->start_reader, &answer);

    if (answer.found) {
        ngx_mcp_revival_keep(&ctx->conf->policy, &ctx->learned, &ctx->params,
                             &answer);
    }

    ngx_mcp_revive_learned(ctx);
}


/* Once, of a client that can be answered later, and with its body at hand. */

static ngx_uint_t
ngx_mcp_revive_able(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
#if (NGX_HTTP_CACHE)
    if (r->cache) {
        return 0;
    }
#endif

    return ctx->conf->policy.revive && r == r->main && ctx->revive == NULL
           && ctx->session.revival && !ctx->initialize && !ctx->unread
           && (r->method & (NGX_HTTP_POST|NGX_HTTP_GET))
           && !r->request_body_no_buffering && r->content_handler
           && !r->header_sent;
}


static void
ngx_mcp_revive_poll(ngx_event_t *ev)
{
    ngx_int_t          rc;
    ngx_msec_int_t     left;
    ngx_mcp_revive_t  *w;
    ngx_mcp_policy_t  *policy;

    w = ev->data;
    policy = &w->conf->policy;

    left = (ngx_msec_int_t) (w->end - ngx_current_msec);

    if (left <= 0) {
        ngx_mcp_revive_resume(w);
        return;
    }

    /* whose answer is being swallowed, its client may leave meanwhile */

    w->request->read_event_handler = ngx_http_test_reading;

    rc = ngx_mcp_revival_lease(policy, &w->ref, &w->rev,
                               ngx_mcp_peer_rate(policy, 0)
                               ? left + NGX_MCP_REVIVE_SLACK : 0);

    if (rc == NGX_DONE || rc == NGX_DECLINED) {
        ngx_mcp_revive_resume(w);
        return;
    }

    if (rc == NGX_OK) {
        (void) ngx_mcp_handshake_start(w->request, w->conf, &w->ref, &w->rev,
                                       left, ngx_mcp_revive_done);
    }

    /* who has started it is woken by its end */

    ngx_add_timer(ev, NGX_MCP_REVIVE_POLL
                      + ngx_random() % NGX_MCP_REVIVE_POLL);
}


/* Those that wait in this worker need not wait for their time. */

static void
ngx_mcp_revive_done(ngx_mcp_session_ref_t *ref)
{
    ngx_queue_t       *q;
    ngx_mcp_revive_t  *w;

    for (q = ngx_queue_head(&ngx_mcp_revives);
         q != ngx_queue_sentinel(&ngx_mcp_revives);
         q = ngx_queue_next(q))
    {
        w = ngx_queue_data(q, ngx_mcp_revive_t, queue);

        if (w->ref.slot == ref->slot && w->ref.serial == ref->serial) {

            if (w->event.timer_set) {
                ngx_del_timer(&w->event);
            }

            ngx_post_event(&w->event, &ngx_posted_events);
        }
    }
}


/*
 * The request begins anew where its content does.  Should it find its session
 * lost again, it is told so.
 */

static void
ngx_mcp_revive_resume(ngx_mcp_revive_t *w)
{
    ngx_int_t            rc;
    ngx_mcp_ctx_t       *ctx;
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = w->request;
    c = r->connection;

    ngx_mcp_revive_leave(w);

    ngx_http_set_log_request(c->log, r);

    r->read_event_handler = ngx_http_block_reading;

    if (w->first) {
        ngx_http_core_run_phases(r);
        ngx_http_run_posted_requests(c);
        return;
    }

    ctx = ngx_mcp_request_ctx(r);

    ctx->swallow = 0;

    /* as in a redirect: what filters made of the answer that nobody got */

    ngx_memzero(r->ctx, sizeof(void *) * ngx_http_max_module);
    ngx_http_set_ctx(r, ctx, ngx_mcp_keepalive_module);

    r->loc_conf = w->loc_conf;

    r->done = 0;
    r->request_complete = 0;
    r->err_status = 0;
    r->header_only = 0;
    r->filter_need_in_memory = 0;
    r->keepalive = ctx->keepalive;
    r->error_page = ctx->error_page;

    ngx_http_clean_header(r);

    rc = r->content_handler(r);

    ngx_http_finalize_request(r, rc);
    ngx_http_run_posted_requests(c);
}


static void
ngx_mcp_revive_leave(ngx_mcp_revive_t *w)
{
    if (!w->waiting) {
        return;
    }

    w->waiting = 0;
    ngx_queue_remove(&w->queue);

    if (w->event.timer_set) {
        ngx_del_timer(&w->event);
    }

    if (w->event.posted) {
        ngx_delete_posted_event(&w->event);
    }
}


static void
ngx_mcp_revive_cleanup(void *data)
{
    ngx_mcp_revive_leave(data);
}


static void
ngx_mcp_revive_learned(void *data)
{
    ngx_mcp_ctx_t  *ctx = data;

    mcp_start_destroy(ctx->start_reader);
    ctx->start_reader = NULL;
}
