
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_farewell.h"
#include "ngx_mcp_flow.h"


/* No timer is shorter, in ms. */
#define NGX_MCP_FLOW_TIMER_MIN   100

/* Heartbeats come up to this share of their interval late: a twentieth. */
#define NGX_MCP_FLOW_JITTER      20

/* A stream to be ended may finish the event it is in, in ms. */
#define NGX_MCP_FLOW_GRACE       500

/* A worker that is to leave may notice it so late, in ms. */
#define NGX_MCP_FLOW_NOTICE      1000


static ngx_msec_t ngx_mcp_flow_drain(ngx_mcp_flow_t *f, ngx_mcp_end_t why);
static void ngx_mcp_flow_drop(ngx_chain_t *in);
static ngx_uint_t ngx_mcp_flow_open(ngx_mcp_flow_t *f);
static void ngx_mcp_flow_hook(ngx_mcp_flow_t *f);
static void ngx_mcp_flow_scan(ngx_mcp_flow_t *f, ngx_chain_t *in);
static void ngx_mcp_flow_read(ngx_http_request_t *r, ngx_http_upstream_t *u);
static void ngx_mcp_flow_write(ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_flow_timedout(ngx_mcp_flow_t *f);
static void ngx_mcp_flow_event(ngx_event_t *ev);
static void ngx_mcp_flow_turn(ngx_mcp_flow_t *f);
static void ngx_mcp_flow_arm(ngx_mcp_flow_t *f);
static ngx_int_t ngx_mcp_flow_beat(ngx_mcp_flow_t *f);
static ngx_uint_t ngx_mcp_flow_may_end(ngx_mcp_flow_t *f);
static void ngx_mcp_flow_finish(ngx_mcp_flow_t *f);
static void ngx_mcp_flow_decide(ngx_mcp_flow_t *f, ngx_mcp_end_t reason);
static void ngx_mcp_flow_cleanup(void *data);


static u_char  ngx_mcp_flow_comment[] = ":\n\n";


ngx_mcp_flow_t *
ngx_mcp_flow_create(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_tally_t *tally, ngx_http_output_body_filter_pt filter)
{
    ngx_mcp_flow_t      *f;
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NULL;
    }

    f = ngx_calloc(sizeof(ngx_mcp_flow_t), r->connection->log);
    if (f == NULL) {
        return NULL;
    }

    cln->data = f;
    cln->handler = ngx_mcp_flow_cleanup;

    f->request = r;
    f->upstream = r->upstream;
    f->conf = ctx->conf;
    f->tally = tally;
    f->filter = filter;
    f->number = r->upstream->peer.connection->number;

    f->start = ngx_current_msec;
    f->heard = f->start;
    f->sent = f->start;

    mcp_sse_init(&f->sse, NULL, 0);

    f->event.handler = ngx_mcp_flow_event;
    f->event.data = r->connection;
    f->event.log = r->connection->log;
    f->event.cancelable = 1;

    ngx_queue_insert_tail(&tally->streams, &f->queue);

    tally->open++;
    tally->opened++;
    tally->changed = 1;

    ctx->events = f;

    /* the first of the body may be long in coming */

    ngx_post_event(&f->event, &ngx_posted_events);

    return f;
}


void
ngx_mcp_flow_pass(ngx_mcp_flow_t *f, ngx_chain_t *in)
{
    if (f->read == NULL && ngx_mcp_relay_open(f->request)) {
        ngx_mcp_flow_hook(f);
    }

    ngx_mcp_flow_scan(f, in);

    if (f->last) {
        ngx_mcp_flow_decide(f, NGX_MCP_END_SERVER);

    } else if (!ngx_mcp_relay_open(f->request)) {

        /* nginx flushes what there is, and closes */

        ngx_mcp_flow_decide(f, NGX_MCP_END_CUT);
    }
}


ngx_int_t
ngx_mcp_flow_passed(ngx_mcp_flow_t *f, ngx_chain_t *in, ngx_int_t rc)
{
    if (rc != NGX_ERROR) {
        return rc;
    }

    if (ngx_mcp_flow_unheard(f, in)) {
        return NGX_OK;
    }

    ngx_mcp_flow_decide(f, NGX_MCP_END_WRITE);

    return rc;
}


/* The client has left; with "proxy_ignore_client_abort" its call goes on. */

ngx_uint_t
ngx_mcp_flow_unheard(ngx_mcp_flow_t *f, ngx_chain_t *in)
{
    ngx_connection_t  *c;

    c = f->request->connection;

    if (f->notify || !f->upstream->conf->ignore_client_abort || !c->error) {
        return 0;
    }

    f->heartbeat = 0;

    /* what waits for the client is in nginx's way, and so is its timer */

    ngx_mcp_flow_drop(in);
    ngx_mcp_flow_drop(f->upstream->busy_bufs);

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }

    return 1;
}


static void
ngx_mcp_flow_drop(ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {
        in->buf->pos = in->buf->last;
    }
}


void
ngx_mcp_flow_end(ngx_mcp_flow_t *f, ngx_mcp_end_t why)
{
    if (!f->notify || f->ending || f->conf->drain == 0
        || !ngx_mcp_flow_open(f))
    {
        return;
    }

    f->ending = 1;
    f->why = why;
    f->end = ngx_current_msec
             + ngx_mcp_farewell_share(ngx_mcp_flow_drain(f, why), &f->retry);

    ngx_mcp_flow_arm(f);
}


/* The time over which streams end; "worker_shutdown_timeout" cuts the rest. */

static ngx_msec_t
ngx_mcp_flow_drain(ngx_mcp_flow_t *f, ngx_mcp_end_t why)
{
    ngx_msec_t        drain, left;
    ngx_core_conf_t  *ccf;

    drain = f->conf->drain;
    ccf = (ngx_core_conf_t *) ngx_get_conf(ngx_cycle->conf_ctx,
                                           ngx_core_module);

    if (why == NGX_MCP_END_EXIT && ccf->shutdown_timeout) {
        left = ccf->shutdown_timeout;
        drain = ngx_min(drain, left - ngx_min(left / 2, NGX_MCP_FLOW_NOTICE));
    }

    /* the last one may need a moment more */

    return drain - ngx_min(drain / 4, NGX_MCP_FLOW_GRACE);
}


/* A post_action has an upstream of its own, and no client. */

static ngx_uint_t
ngx_mcp_flow_open(ngx_mcp_flow_t *f)
{
    return f->request->upstream == f->upstream && !f->last
           && ngx_mcp_relay_open(f->request);
}


/* nginx has just put its own handlers in place. */

static void
ngx_mcp_flow_hook(ngx_mcp_flow_t *f)
{
    ngx_http_request_t   *r;
    ngx_http_upstream_t  *u;

    r = f->request;
    u = r->upstream;

    f->read = u->read_event_handler;
    f->write = r->write_event_handler;

    u->read_event_handler = ngx_mcp_flow_read;
    r->write_event_handler = ngx_mcp_flow_write;

    ngx_post_event(&f->event, &ngx_posted_events);
}


static void
ngx_mcp_flow_scan(ngx_mcp_flow_t *f, ngx_chain_t *in)
{
    ngx_buf_t            *b;
    const unsigned char  *p;

    for ( /* void */ ; in; in = in->next) {
        b = in->buf;

        if (b->last_buf) {
            f->last = 1;
        }

        if (!ngx_buf_in_memory(b) || b->pos == b->last) {
            continue;
        }

        p = b->pos;
        (void) mcp_sse_feed(&f->sse, &p, b->last);

        f->begun = 1;
        f->sent = ngx_current_msec;
    }
}


/* In place of nginx's handler for the upstream side. */

static void
ngx_mcp_flow_read(ngx_http_request_t *r, ngx_http_upstream_t *u)
{
    ngx_event_t     *rev;
    ngx_mcp_ctx_t   *ctx;
    ngx_mcp_flow_t  *f;

    ctx = ngx_mcp_request_ctx(r);
    f = ctx->events;
    rev = u->peer.connection->read;

    if (rev->timedout) {

        if (ngx_mcp_flow_timedout(f)) {
            return;
        }

    } else {
        f->heard = ngx_current_msec;
    }

    if (f->stopped) {

        if ((ngx_event_flags & NGX_USE_LEVEL_EVENT) && rev->active) {
            (void) ngx_del_event(rev, NGX_READ_EVENT, 0);
        }

        return;
    }

    /* gone with the request, if that ends here */

    ngx_post_event(&f->event, &ngx_posted_events);

    f->read(r, u);
}


/* In place of nginx's handler for the client side. */

static void
ngx_mcp_flow_write(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t   *ctx;
    ngx_mcp_flow_t  *f;

    ctx = ngx_mcp_request_ctx(r);
    f = ctx->events;

    if (ngx_mcp_flow_unheard(f, NULL)) {
        r->connection->write->timedout = 0;
    }

    if (r->connection->write->timedout) {
        ngx_mcp_flow_decide(f, NGX_MCP_END_WRITE);

        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "mcp upstream \"%V\" peer \"%*s\": event stream ends, "
                      "the client has read nothing for %M ms",
                      &f->tally->policy->name, f->tally->name_len,
                      f->tally->name, ngx_current_msec - f->sent);
    }

    if (ngx_mcp_relay_open(r)) {

        if (f->stopped) {
            r->upstream->peer.connection->read->ready = 0;
        }

        ngx_post_event(&f->event, &ngx_posted_events);
    }

    f->write(r);
}


/*
 * The server's time is over; true if that has been dealt with.  Only a
 * notification stream has a proper end, a call has failed.
 */

static ngx_uint_t
ngx_mcp_flow_timedout(ngx_mcp_flow_t *f)
{
    ngx_msec_t           silent;
    ngx_event_t         *rev;
    ngx_http_request_t  *r;

    r = f->request;
    rev = r->upstream->peer.connection->read;

    silent = ngx_current_msec - f->heard;

    if (silent + NGX_TIMER_LAZY_DELAY < f->timeout) {

        /* nginx's own timer, set again since we set ours */

        rev->timedout = 0;
        ngx_add_timer(rev, f->timeout - silent);

        return 1;
    }

    ngx_mcp_flow_decide(f, NGX_MCP_END_TIMEOUT);

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "mcp upstream \"%V\" peer \"%*s\": %s stream ends, "
                  "the server was silent for %M ms",
                  &f->tally->policy->name, f->tally->name_len, f->tally->name,
                  f->notify ? "notification" : "answer", silent);

    if (!f->notify) {
        return 0;
    }

    rev->timedout = 0;

    f->retry = NGX_MCP_FAREWELL_RETRY_MIN;
    ngx_mcp_flow_finish(f);

    return 1;
}


static void
ngx_mcp_flow_event(ngx_event_t *ev)
{
    ngx_mcp_flow_t      *f;
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    f = (ngx_mcp_flow_t *) ((u_char *) ev - offsetof(ngx_mcp_flow_t, event));
    r = f->request;
    c = r->connection;

    ev->timedout = 0;

    if (!ngx_mcp_flow_open(f) || c->error) {
        return;
    }

    ngx_http_set_log_request(c->log, r);

    if (f->read == NULL) {
        ngx_mcp_flow_hook(f);
    }

    ngx_mcp_flow_turn(f);

    ngx_http_run_posted_requests(c);
}


/* What is due now; the request may be gone afterwards. */

static void
ngx_mcp_flow_turn(ngx_mcp_flow_t *f)
{
    ngx_msec_t     now, silent;
    ngx_event_t   *rev;

    now = ngx_current_msec;

    if (f->ending && (ngx_msec_int_t) (now - f->end) >= 0) {

        if (ngx_mcp_flow_may_end(f)) {
            ngx_mcp_flow_finish(f);
            return;
        }

    } else if (f->heartbeat
               && (now - f->sent >= f->heartbeat || (f->notify && !f->begun))
               && ngx_mcp_flow_beat(f) != NGX_OK)
    {
        return;
    }

    /* nginx has set its read timer, we set ours */

    rev = f->request->upstream->peer.connection->read;

    if (rev->timer_set) {
        silent = now - f->heard;
        ngx_add_timer(rev, (silent < f->timeout) ? f->timeout - silent : 1);
    }

    ngx_mcp_flow_arm(f);
}


static void
ngx_mcp_flow_arm(ngx_mcp_flow_t *f)
{
    ngx_msec_t      now;
    ngx_msec_int_t  wait, end;

    if (!f->ending && (f->heartbeat == 0 || f->event.timer_set)) {
        return;
    }

    now = ngx_current_msec;
    wait = NGX_MAX_INT32_VALUE;

    if (f->heartbeat) {
        wait = f->sent + f->heartbeat - now;

        if (wait <= 0) {

            /* it was due and could not be sent: in a moment, or not at all */
            wait = f->heartbeat;
        }

        wait += ngx_random() % (f->heartbeat / NGX_MCP_FLOW_JITTER + 1);
    }

    if (f->ending) {
        end = f->end - now;

        if (end <= 0) {
            end = NGX_MCP_FLOW_GRACE;
        }

        wait = ngx_min(wait, end);
    }

    wait = ngx_max(wait, NGX_MCP_FLOW_TIMER_MIN);

    if (f->event.timer_set) {
        ngx_del_timer(&f->event);
    }

    ngx_add_timer(&f->event, (ngx_msec_t) wait);
}


/* Sends a comment, if it can be; NGX_ERROR: the request is gone. */

static ngx_int_t
ngx_mcp_flow_beat(ngx_mcp_flow_t *f)
{
    ngx_buf_t           *b;
    ngx_http_request_t  *r;

    r = f->request;

    if (ngx_mcp_relay_busy(r) || !mcp_sse_at_boundary(&f->sse)) {
        return NGX_OK;
    }

    b = &f->buf;

    ngx_memzero(b, sizeof(ngx_buf_t));

    b->pos = ngx_mcp_flow_comment;
    b->last = ngx_mcp_flow_comment + sizeof(ngx_mcp_flow_comment) - 1;
    b->memory = 1;
    b->flush = 1;

    f->begun = 1;
    f->sent = ngx_current_msec;

    f->tally->heartbeats++;
    f->tally->changed = 1;

    if (ngx_mcp_relay_put(r, b, f->filter) == NGX_OK
        || ngx_mcp_flow_unheard(f, NULL))
    {
        return NGX_OK;
    }

    ngx_mcp_flow_decide(f, NGX_MCP_END_WRITE);

    f->stopped = 1;
    ngx_mcp_relay_finish(r, f->read);

    return NGX_ERROR;
}


/* An event that has begun, and what waits for the client, go first. */

static ngx_uint_t
ngx_mcp_flow_may_end(ngx_mcp_flow_t *f)
{
    if (!ngx_mcp_relay_busy(f->request)) {

        if (f->stopped || mcp_sse_at_boundary(&f->sse)) {
            return 1;
        }

    } else if (f->stopped) {
        return 0;
    }

    if (ngx_current_msec - f->end < NGX_MCP_FLOW_GRACE) {
        return 0;
    }

    f->stopped = 1;

    return !ngx_mcp_relay_busy(f->request);
}


/* The request may be gone afterwards. */

static void
ngx_mcp_flow_finish(ngx_mcp_flow_t *f)
{
    ngx_buf_t           *b;
    ngx_http_request_t  *r;

    r = f->request;

    if (!f->opaque && !ngx_mcp_relay_busy(r) && mcp_sse_at_boundary(&f->sse)) {
        b = f->listen ? ngx_mcp_farewell_complete(r)
                      : ngx_mcp_farewell_retry(r, f->retry);

        if (b != NULL && ngx_mcp_relay_put(r, b, f->filter) != NGX_OK) {
            ngx_mcp_flow_decide(f, NGX_MCP_END_WRITE);
        }
    }

    if (f->ending) {
        ngx_mcp_flow_decide(f, f->why);
    }

    f->stopped = 1;
    ngx_mcp_relay_finish(r, f->read);
}


/* The first reason is the right one. */

static void
ngx_mcp_flow_decide(ngx_mcp_flow_t *f, ngx_mcp_end_t reason)
{
    if (!f->decided) {
        f->decided = 1;
        f->reason = reason;
    }
}


static void
ngx_mcp_flow_cleanup(void *data)
{
    ngx_mcp_flow_t *f = data;

    ngx_mcp_tally_t  *tally;

    if (f->event.timer_set) {
        ngx_del_timer(&f->event);
    }

    if (f->event.posted) {
        ngx_delete_posted_event(&f->event);
    }

    ngx_queue_remove(&f->queue);

    ngx_mcp_flow_decide(f, f->request->connection->error ? NGX_MCP_END_CLIENT
                                                         : NGX_MCP_END_CUT);

    tally = f->tally;

    tally->open--;
    tally->end[f->reason]++;
    tally->age_ms += ngx_current_msec - f->start;
    tally->changed = 1;

    if (f->notify) {
        ngx_mcp_tally_tell(tally);
    }

    ngx_free(f);
}
