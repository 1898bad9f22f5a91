
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_call.h"


extern ngx_module_t  ngx_http_proxy_module;


/* How long an answered call may take to end by itself, in ms. */
#define NGX_MCP_CALL_GRACE    100

/* Below this share of all connections, the free ones are the clients'. */
#define NGX_MCP_CALL_SHARE    8


static ngx_int_t ngx_mcp_call_context(ngx_mcp_call_t *call,
    ngx_http_request_t *r);
static ngx_int_t ngx_mcp_call_run(ngx_mcp_call_t *call,
    ngx_http_request_t *r);
static void ngx_mcp_call_cancel(ngx_mcp_call_t *call);
static ngx_int_t ngx_mcp_call_subrequest_done(ngx_http_request_t *r,
    void *data, ngx_int_t rc);
static void ngx_mcp_call_cleanup(void *data);
static void ngx_mcp_call_timer(ngx_event_t *ev);
static void ngx_mcp_call_end(ngx_event_t *ev);
static void ngx_mcp_call_event(ngx_event_t *ev);
static ngx_int_t ngx_mcp_call_precontent(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_call_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_call_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static void ngx_mcp_call_answer(ngx_mcp_call_t *call, ngx_http_upstream_t *u);
static time_t ngx_mcp_call_retry_after(ngx_http_upstream_t *u);


static ngx_http_output_header_filter_pt  ngx_mcp_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_mcp_next_body_filter;

static ngx_queue_t  ngx_mcp_calls;


ngx_int_t
ngx_mcp_call_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    ngx_mcp_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_mcp_call_header_filter;

    ngx_mcp_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_mcp_call_body_filter;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_mcp_call_precontent;

    return NGX_OK;
}


void
ngx_mcp_call_init_process(void)
{
    ngx_queue_init(&ngx_mcp_calls);
}


ngx_uint_t
ngx_mcp_call_short(void)
{
    return ngx_cycle->free_connection_n
           < ngx_max(ngx_cycle->connection_n / NGX_MCP_CALL_SHARE, 2);
}


ngx_int_t
ngx_mcp_call_start(ngx_mcp_call_t *call)
{
    ngx_int_t            rc;
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    call->length = -1;
    call->retry_after = -1;
    call->stub.handler = ngx_mcp_call_event;

    rc = ngx_mcp_stub_create(&call->stub, &r);
    if (rc != NGX_OK) {
        return rc;
    }

    c = r->connection;
    call->connection = c;

    /*
     * The first error nginx would log is the root cause: kept, not written.
     * The log of the server is in place by now.
     */

    ngx_mcp_capture_init(&call->capture, c->log);

    if (ngx_mcp_call_run(call, r) != NGX_OK) {
        ngx_mcp_stub_destroy(r);
        return NGX_ERROR;
    }

    ngx_http_run_posted_requests(c);

    return NGX_OK;
}


void
ngx_mcp_call_cancel_all(void)
{
    ngx_queue_t     *q, *next;
    ngx_mcp_call_t  *call;

    for (q = ngx_queue_head(&ngx_mcp_calls);
         q != ngx_queue_sentinel(&ngx_mcp_calls);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_mcp_call_t, queue);

        if (call->wanted) {
            continue;
        }

        call->cancelled = 1;
        ngx_mcp_call_cancel(call);
    }
}


static ngx_int_t
ngx_mcp_call_context(ngx_mcp_call_t *call, ngx_http_request_t *r)
{
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_mcp_ctx_t));
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&call->outcome, sizeof(ngx_mcp_outcome_t));

    ctx->conf = call->conf;
    ctx->call = call;
    ctx->outcome = &call->outcome;
    ctx->pin = call->peer;
    ctx->start = ngx_current_msec;
    ctx->fresh = call->fresh;
    ctx->mcp = 1;

    call->ctx = ctx;

    ngx_http_set_ctx(r, ctx, ngx_mcp_keepalive_module);

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_call_run(ngx_mcp_call_t *call, ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_request_t          *sr;
    ngx_http_post_subrequest_t  *ps;

    if (ngx_mcp_call_context(call, r) != NGX_OK) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    ps = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));
    if (ps == NULL) {
        return NGX_ERROR;
    }

    ps->handler = ngx_mcp_call_subrequest_done;
    ps->data = call;

    if (ngx_http_subrequest(r, &r->uri, &r->args, &sr, ps,
                            NGX_HTTP_SUBREQUEST_BACKGROUND)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    sr->method = NGX_HTTP_POST;
    sr->method_name = r->method_name;

    sr->error_page = 1;

    /* what a client sent goes on as it was sent, unless a rewrite changes it */

    sr->valid_unparsed_uri = !r->empty_path_in_uri;

    call->request = sr;

    call->timer.handler = ngx_mcp_call_timer;
    call->timer.data = call;
    call->timer.log = ngx_cycle->log;

    call->end.handler = ngx_mcp_call_end;
    call->end.data = call;
    call->end.log = ngx_cycle->log;

    ngx_add_timer(&call->timer, call->timeout);

    ngx_queue_insert_tail(&ngx_mcp_calls, &call->queue);

    /* the one event common to all ways out of the core */

    cln->handler = ngx_mcp_call_cleanup;
    cln->data = call;

    /* the subrequest holds the last reference now */

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_OK;
}


/* Not from inside a filter: the request is gone afterwards. */

static void
ngx_mcp_call_cancel(ngx_mcp_call_t *call)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *sr;

    c = call->connection;
    sr = call->request;

    if (sr->upstream && sr->upstream->cleanup) {
        (*sr->upstream->cleanup)(sr);

    } else {

        /* the error must reach the core as it is, or it may wait for output */

        sr->post_subrequest = NULL;

        (void) ngx_mcp_request_quiet(sr);
        ngx_http_finalize_request(sr, NGX_ERROR);
    }

    ngx_http_run_posted_requests(c);

    if (call->request != NULL) {

        /* held by an operation in a thread: asked again until it lets go */

        ngx_add_timer(&call->timer, NGX_MCP_CALL_GRACE);
    }
}


static ngx_int_t
ngx_mcp_call_subrequest_done(ngx_http_request_t *r, void *data, ngx_int_t rc)
{
    /* no error page of any kind: whatever happened is known already */

    (void) ngx_mcp_request_quiet(r);

    return NGX_OK;
}


static void
ngx_mcp_call_cleanup(void *data)
{
    ngx_mcp_call_t  *call = data;

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    ngx_queue_remove(&call->queue);

    call->request = NULL;
    call->connection = NULL;

    ngx_post_event(&call->end, &ngx_posted_events);
}


static void
ngx_mcp_call_timer(ngx_event_t *ev)
{
    ngx_mcp_call_t  *call = ev->data;

    call->timedout = !call->answered;
    call->outcome.timedout = call->timedout;

    ngx_mcp_call_cancel(call);
}


static void
ngx_mcp_call_end(ngx_event_t *ev)
{
    ngx_mcp_call_t  *call = ev->data;

    call->done_handler(call);
}


static void
ngx_mcp_call_event(ngx_event_t *ev)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;
    ngx_mcp_ctx_t       *ctx;

    c = ev->data;
    r = c->data;

    if (c->close) {

        /* worker_shutdown_timeout */

        c->error = 0;
        c->close = 0;

        ctx = ngx_http_get_module_ctx(r->main, ngx_mcp_keepalive_module);

        ((ngx_mcp_call_t *) ctx->call)->cancelled = 1;
        ngx_mcp_call_cancel(ctx->call);

        return;
    }

    if (ev->delayed && ev->timedout) {
        ev->delayed = 0;
        ev->timedout = 0;
    }

    if (ev->write) {
        r->write_event_handler(r);

    } else {
        r->read_event_handler(r);
    }

    ngx_http_run_posted_requests(c);
}


/* The location is chosen; from here on no cache may know the method. */

static ngx_int_t
ngx_mcp_call_precontent(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t             *ctx;
    ngx_http_upstream_conf_t  *ucf;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->call == NULL) {
        return NGX_DECLINED;
    }

    r->method = NGX_HTTP_UNKNOWN;

    /* first in the configuration of "proxy"; NULL if it has variables */

    ucf = ngx_http_get_module_loc_conf(r, ngx_http_proxy_module);

    if (ucf->upstream && ucf->upstream != ctx->conf->upstream) {

        /* it goes elsewhere now, and so would what is said in its name */
        return NGX_HTTP_NOT_FOUND;
    }

    return NGX_DECLINED;
}


/* Whatever a call's requests put out ends here. */

static ngx_int_t
ngx_mcp_call_header_filter(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t   *ctx;
    ngx_mcp_call_t  *call;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->call == NULL) {
        return ngx_mcp_next_header_filter(r);
    }

    call = ctx->call;

    r->header_sent = 1;
    r->filter_need_in_memory = 1;

    if (r->upstream == NULL) {
        return NGX_OK;
    }

    /* otherwise nothing is seen of the body before its end */

    r->upstream->store = 0;

    if (!r->upstream->cacheable) {
        r->upstream->buffering = 0;
    }

    if (r == call->request && ctx->outcome->done) {

        /* the peer is done with: X-Accel-Redirect, and not its answer */

        call->redirected = 1;
        ngx_add_timer(&call->timer, NGX_MCP_CALL_GRACE);

    } else if (r == call->request && r->upstream->headers_in.status_n) {
        ngx_mcp_call_answer(call, r->upstream);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_call_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t       *b;
    ngx_chain_t     *cl;
    ngx_mcp_ctx_t   *ctx;
    ngx_mcp_call_t  *call;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->call == NULL) {
        return ngx_mcp_next_body_filter(r, in);
    }

    call = ctx->call;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (r == call->request && call->header) {

            if (b->last_buf || b->last_in_chain) {
                call->complete = 1;
            }

            if (!call->answered && ngx_buf_in_memory(b) && b->last > b->pos
                && call->body_handler(call, b->pos, b->last - b->pos)
                   == NGX_DONE)
            {
                call->answered = 1;

                if (!call->timer.timedout) {
                    ngx_add_timer(&call->timer, NGX_MCP_CALL_GRACE);
                }
            }
        }

        if (ngx_buf_in_memory(b)) {
            b->pos = b->last;
        }

        if (b->in_file) {
            b->file_pos = b->file_last;
        }
    }

    return NGX_OK;
}


static void
ngx_mcp_call_answer(ngx_mcp_call_t *call, ngx_http_upstream_t *u)
{
    ngx_table_elt_t   *h;
    static ngx_str_t   encoding = ngx_string("Content-Encoding");

    call->header = 1;
    call->status = u->headers_in.status_n;
    call->length = u->headers_in.content_length_n;
    call->retry_after = ngx_mcp_call_retry_after(u);
    call->media = ngx_mcp_header_media(u);

    h = ngx_mcp_header_first(&u->headers_in.headers, &encoding);

    if (h != NULL && h->value.len
        && ngx_strcasecmp(h->value.data, (u_char *) "identity") != 0)
    {
        call->encoded = 1;
    }

    if (call->header_handler) {
        call->header_handler(call, u);
    }
}


static time_t
ngx_mcp_call_retry_after(ngx_http_upstream_t *u)
{
    time_t             t;
    ngx_table_elt_t   *h;
    static ngx_str_t   name = ngx_string("Retry-After");

    h = ngx_mcp_header_first(&u->headers_in.headers, &name);
    if (h == NULL) {
        return -1;
    }

    t = ngx_atotm(h->value.data, h->value.len);

    if (t == (time_t) NGX_ERROR) {

        /* not seconds: a date */

        t = ngx_parse_http_time(h->value.data, h->value.len);

        if (t != (time_t) NGX_ERROR) {
            t = ngx_max(t - ngx_time(), 0);
        }
    }

    return (t == (time_t) NGX_ERROR) ? -1 : t;
}
