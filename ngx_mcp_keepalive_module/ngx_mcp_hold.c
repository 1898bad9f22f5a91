
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_farewell.h"
#include "ngx_mcp_hold.h"
#include "ngx_mcp_tally.h"


/* No timer is shorter, in ms. */
#define NGX_MCP_HOLD_TIMER_MIN   100

/* Heartbeats come up to this share of their interval late: a twentieth. */
#define NGX_MCP_HOLD_JITTER      20

/* From the end of a stream until its client is back, in ms. */
#define NGX_MCP_HOLD_BACK        (NGX_MCP_FAREWELL_RETRY_MIN + 500)


typedef struct {
    ngx_event_t                     event;  /* not cancelable: a worker that
                                             * leaves waits for the end */
    ngx_queue_t                     queue;
    ngx_http_request_t             *request;
    ngx_mcp_srv_conf_t             *conf;
    ngx_mcp_tally_t                *tally;
    ngx_msec_t                      heartbeat;  /* 0: none */
    ngx_msec_t                      sent;   /* last */
    ngx_msec_t                      end;
    ngx_msec_t                      retry;
    ngx_buf_t                       buf;    /* of the heartbeat */
    unsigned                        taken:1;    /* from nginx's hands */
    unsigned                        upstream:1; /* those of the proxy */
    unsigned                        keepalive:1;
                                            /* of the client, before */
    unsigned                        ending:1;   /* "end" is not the limit */
} ngx_mcp_hold_t;


static ngx_mcp_hold_t *ngx_mcp_hold_create(ngx_http_request_t *r,
    ngx_mcp_srv_conf_t *conf, ngx_str_t *peer);
static ngx_int_t ngx_mcp_hold_header(ngx_http_request_t *r);
static void ngx_mcp_hold_event(ngx_event_t *ev);
static void ngx_mcp_hold_take(ngx_mcp_hold_t *h);
static ngx_int_t ngx_mcp_hold_beat(ngx_mcp_hold_t *h);
static void ngx_mcp_hold_arm(ngx_mcp_hold_t *h);
static ngx_int_t ngx_mcp_hold_finish(ngx_mcp_hold_t *h);
static void ngx_mcp_hold_write(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_hold_wait(ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_hold_connected(ngx_mcp_tally_t *tally);
static void ngx_mcp_hold_leave(ngx_mcp_hold_t *h);
static void ngx_mcp_hold_release(ngx_mcp_hold_t *h);
static void ngx_mcp_hold_cleanup(void *data);


static ngx_queue_t  ngx_mcp_holds;

static u_char       ngx_mcp_hold_comment[] = ":\n\n";


ngx_int_t
ngx_mcp_hold_start(ngx_http_request_t *r, ngx_mcp_srv_conf_t *conf,
    ngx_str_t *peer)
{
    ngx_int_t                  rc;
    ngx_mcp_hold_t            *h;
    ngx_mcp_loc_conf_t        *mlcf;
    ngx_http_upstream_t       *u;
    ngx_http_core_loc_conf_t  *clcf;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_mcp_keepalive_module);
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (mlcf->stream_hold == 0 || r->method != NGX_HTTP_GET || r != r->main
        || r->header_sent || clcf->post_action.data != NULL
        || ngx_exiting || ngx_quit)
    {
        return NGX_DECLINED;
    }

#if (NGX_HTTP_CACHE)

    /* it may have an answer, if a stale one */

    if (r->cache) {
        return NGX_DECLINED;
    }

#endif

    h = ngx_mcp_hold_create(r, conf, peer);
    if (h == NULL) {
        return NGX_ERROR;
    }

    u = r->upstream;

    /*
     * a proxy that gives up after its header was sent flushes that, and lets
     * the request go
     */

    h->upstream = (u != NULL && u->cleanup != NULL);

    if (h->upstream) {
        u->header_sent = 1;
    }

    rc = ngx_mcp_hold_header(r);

    /* a filter may have found that only its end can end the answer */

    h->keepalive = r->keepalive;

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return NGX_ERROR;
    }

    h->heartbeat = mlcf->heartbeat;
    h->end = ngx_current_msec + mlcf->stream_hold;

    if (h->upstream) {
        r->main->count++;
    }

    h->tally->held++;
    h->tally->changed = 1;

    ngx_mcp_tally_tell(h->tally);

    ngx_post_event(&h->event, &ngx_posted_events);

    return NGX_DONE;
}


static ngx_mcp_hold_t *
ngx_mcp_hold_create(ngx_http_request_t *r, ngx_mcp_srv_conf_t *conf,
    ngx_str_t *peer)
{
    ngx_mcp_hold_t      *h;
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_mcp_hold_t));
    if (cln == NULL) {
        return NULL;
    }

    h = cln->data;
    ngx_memzero(h, sizeof(ngx_mcp_hold_t));

    h->tally = ngx_mcp_tally_get(&conf->policy, peer);
    if (h->tally == NULL) {
        return NULL;
    }

    cln->handler = ngx_mcp_hold_cleanup;

    h->request = r;
    h->conf = conf;

    h->event.handler = ngx_mcp_hold_event;
    h->event.data = r->connection;
    h->event.log = r->connection->log;

    ngx_queue_insert_tail(&ngx_mcp_holds, &h->queue);

    return h;
}


static ngx_int_t
ngx_mcp_hold_header(ngx_http_request_t *r)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->hash = 1;
    ngx_str_set(&h->key, "Cache-Control");
    ngx_str_set(&h->value, "no-cache");

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = -1;

    ngx_str_set(&r->headers_out.content_type, "text/event-stream");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    return ngx_http_send_header(r);
}


static void
ngx_mcp_hold_event(ngx_event_t *ev)
{
    ngx_int_t            rc;
    ngx_mcp_hold_t      *h;
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    h = (ngx_mcp_hold_t *) ((u_char *) ev - offsetof(ngx_mcp_hold_t, event));
    r = h->request;
    c = r->connection;

    ev->timedout = 0;

    ngx_http_set_log_request(c->log, r);

    if (!h->taken) {
        ngx_mcp_hold_take(h);
    }

    rc = NGX_AGAIN;

    if (r->buffered || c->buffered) {

        /* the client has to read first */

    } else if ((ngx_msec_int_t) (ngx_current_msec - h->end) >= 0) {
        rc = ngx_mcp_hold_finish(h);

    } else if (h->sent == 0
               || (h->heartbeat && ngx_current_msec - h->sent >= h->heartbeat))
    {
        rc = ngx_mcp_hold_beat(h);
    }

    if (rc == NGX_AGAIN) {
        ngx_mcp_hold_arm(h);

    } else {
        ngx_http_finalize_request(r, rc);
    }

    ngx_http_run_posted_requests(c);
}


/* nginx has let the request go. */

static void
ngx_mcp_hold_take(ngx_mcp_hold_t *h)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = h->request;
    c = r->connection;

    if (h->upstream && !r->done) {

        /* it would have done so when all is sent */

        r->main->count--;
    }

    h->taken = 1;

    r->done = 0;
    r->keepalive = h->keepalive;
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_mcp_hold_write;

    /* the client may have left meanwhile */

    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);
    }
}


/* NGX_AGAIN: it goes on. */

static ngx_int_t
ngx_mcp_hold_beat(ngx_mcp_hold_t *h)
{
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = &h->buf;

    ngx_memzero(b, sizeof(ngx_buf_t));

    b->pos = ngx_mcp_hold_comment;
    b->last = ngx_mcp_hold_comment + sizeof(ngx_mcp_hold_comment) - 1;
    b->memory = 1;
    b->flush = 1;

    out.buf = b;
    out.next = NULL;

    h->sent = ngx_current_msec;

    h->tally->heartbeats++;
    h->tally->changed = 1;

    if (ngx_http_output_filter(h->request, &out) == NGX_ERROR) {
        return NGX_ERROR;
    }

    return ngx_mcp_hold_wait(h->request);
}


static void
ngx_mcp_hold_arm(ngx_mcp_hold_t *h)
{
    ngx_msec_int_t  wait, next;

    wait = h->end - ngx_current_msec;

    if (h->heartbeat) {
        next = h->sent + h->heartbeat - ngx_current_msec
               + ngx_random() % (h->heartbeat / NGX_MCP_HOLD_JITTER + 1);

        wait = ngx_min(wait, next);
    }

    wait = ngx_max(wait, NGX_MCP_HOLD_TIMER_MIN);

    if (h->event.timer_set) {
        ngx_del_timer(&h->event);
    }

    ngx_add_timer(&h->event, (ngx_msec_t) wait);
}


/* The last words; returns what the request is to be finalized with. */

static ngx_int_t
ngx_mcp_hold_finish(ngx_mcp_hold_t *h)
{
    ngx_buf_t    *b;
    ngx_chain_t   out;

    if (!h->ending) {
        ngx_mcp_hold_leave(h);
    }

    b = ngx_mcp_farewell_retry(h->request, h->retry);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last_buf = 1;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(h->request, &out);
}


/* The client can be written to again. */

static void
ngx_mcp_hold_write(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    if (c->write->timedout) {
        c->timedout = 1;
        ngx_connection_error(c, NGX_ETIMEDOUT, "client timed out");
        ngx_http_finalize_request(r, NGX_HTTP_REQUEST_TIME_OUT);
        return;
    }

    if ((r->buffered || c->buffered)
        && ngx_http_output_filter(r, NULL) == NGX_ERROR)
    {
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    if (ngx_mcp_hold_wait(r) == NGX_ERROR) {
        ngx_http_finalize_request(r, NGX_ERROR);
    }
}


/* Waits for the client, if it has to read first; NGX_AGAIN, NGX_ERROR. */

static ngx_int_t
ngx_mcp_hold_wait(ngx_http_request_t *r)
{
    ngx_event_t               *wev;
    ngx_http_core_loc_conf_t  *clcf;

    wev = r->connection->write;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (ngx_handle_write_event(wev, clcf->send_lowat) != NGX_OK) {
        return NGX_ERROR;
    }

    if (r->connection->buffered && wev->active && !wev->ready) {
        ngx_add_timer(wev, clcf->send_timeout);

    } else if (wev->timer_set) {
        ngx_del_timer(wev);
    }

    return NGX_AGAIN;
}


void
ngx_mcp_hold_tick(void)
{
    ngx_uint_t        leave;
    ngx_queue_t      *q;
    ngx_mcp_hold_t   *h;
    ngx_mcp_tally_t  *tally;

    leave = ngx_exiting || ngx_quit;

    for (tally = ngx_mcp_tally_next(NULL);
         tally;
         tally = ngx_mcp_tally_next(tally))
    {
        if (tally->held == 0 || (!leave && !ngx_mcp_hold_connected(tally))) {
            continue;
        }

        for (q = ngx_queue_head(&ngx_mcp_holds);
             q != ngx_queue_sentinel(&ngx_mcp_holds);
             q = ngx_queue_next(q))
        {
            h = ngx_queue_data(q, ngx_mcp_hold_t, queue);

            if (h->tally == tally && h->taken && !h->ending) {
                if (leave) {
                    ngx_mcp_hold_leave(h);

                } else {
                    ngx_mcp_hold_release(h);
                }

                ngx_mcp_hold_arm(h);
            }
        }
    }
}


static ngx_uint_t
ngx_mcp_hold_connected(ngx_mcp_tally_t *tally)
{
    ngx_mcp_peer_copy_t  peer;

    peer.slot = 0;

    while (ngx_mcp_peer_next(tally->policy, peer.slot, &peer) == NGX_OK) {
        if (peer.slot == tally->peer) {
            return peer.health.state == MCP_PEER_CONNECTED;
        }
    }

    /* it is not there any more */

    return 1;
}


/* The worker leaves, or time is over: clients come back over "drain". */

static void
ngx_mcp_hold_leave(ngx_mcp_hold_t *h)
{
    h->ending = 1;
    h->end = ngx_current_msec;

    (void) ngx_mcp_farewell_share(h->conf->drain, &h->retry);
}


/* The server is back: within "drain" the clients are to be back as well. */

static void
ngx_mcp_hold_release(ngx_mcp_hold_t *h)
{
    ngx_msec_t  drain, spread;

    drain = h->conf->drain;
    spread = drain / 2;

    if (drain > 2 * NGX_MCP_HOLD_BACK) {
        spread = drain - NGX_MCP_HOLD_BACK;
    }

    h->ending = 1;
    h->end = ngx_current_msec + ngx_mcp_farewell_share(spread, &h->retry);
    h->retry = NGX_MCP_FAREWELL_RETRY_MIN;
}


static void
ngx_mcp_hold_cleanup(void *data)
{
    ngx_mcp_hold_t *h = data;

    if (h->event.timer_set) {
        ngx_del_timer(&h->event);
    }

    if (h->event.posted) {
        ngx_delete_posted_event(&h->event);
    }

    ngx_queue_remove(&h->queue);

    if (h->end) {
        h->tally->held--;
        h->tally->changed = 1;

        ngx_mcp_tally_tell(h->tally);
    }
}


void
ngx_mcp_hold_init_process(void)
{
    ngx_queue_init(&ngx_mcp_holds);
}
