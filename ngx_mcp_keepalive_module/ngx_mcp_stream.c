
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc_listen.h"
#include "mcp/mcp_sse.h"
#include "ngx_mcp_relay.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_stream.h"
#include "ngx_mcp_tally.h"


/* No timer is shorter, in ms. */
#define NGX_MCP_STREAM_TIMER_MIN   100

/* Heartbeats come up to this share of their interval late: a twentieth. */
#define NGX_MCP_STREAM_JITTER      20

/* A stream that answers a call may be silent for at least so long, in ms. */
#define NGX_MCP_STREAM_CALL_MIN    300000

/* A stream to be ended may finish the event it is in, in ms. */
#define NGX_MCP_STREAM_GRACE       500

/* When clients come back, in ms: at once is too soon, and too late is lost. */
#define NGX_MCP_STREAM_RETRY_MIN   1000
#define NGX_MCP_STREAM_RETRY_MAX   30000


/* The streams of one peer, in this worker. */

typedef struct {
    ngx_queue_t                     queue;      /* among the peers */
    ngx_queue_t                     streams;    /* notification streams */
    ngx_mcp_srv_conf_t             *conf;
    ngx_mcp_tally_t                 tally;
    size_t                          len;
    u_char                          name[NGX_MCP_PEER_NAME_MAX];
} ngx_mcp_stream_peer_t;


/*
 * One stream; lives as long as the pool of its request, but outside of it: of
 * that an idle stream has filled a block already, and the next takes 4 KiB.
 */

typedef struct {
    ngx_event_t                     event;  /* timer; and posted to come after
                                             * what nginx does */
    ngx_queue_t                     queue;
    ngx_http_request_t             *request;
    ngx_mcp_stream_peer_t          *peer;
    ngx_mcp_relay_handler_pt        read;   /* nginx's own handlers */
    ngx_http_event_handler_pt       write;
    ngx_atomic_uint_t               number; /* of the upstream connection */
    ngx_msec_t                      start;
    ngx_msec_t                      heard;  /* of the server, last */
    ngx_msec_t                      sent;   /* to the client, last */
    ngx_msec_t                      end;    /* when it is to be ended */
    ngx_msec_t                      retry;
    ngx_msec_t                      heartbeat;
    ngx_msec_t                      timeout;
    ngx_buf_t                       buf;    /* of the heartbeat */
    mcp_sse_t                       sse;
    ngx_mcp_end_t                   reason;     /* how it ended */
    ngx_mcp_end_t                   why;        /* ... is to end */

    unsigned                        notify:1;   /* not the answer to a call */
    unsigned                        listen:1;   /* ... but to a modern POST */
    unsigned                        begun:1;    /* a byte was sent */
    unsigned                        opaque:1;   /* nothing can be put in */
    unsigned                        ending:1;   /* "end" is set */
    unsigned                        stopped:1;  /* no more is read */
    unsigned                        last:1;     /* the end has been sent */
    unsigned                        decided:1;  /* "reason" is set */
} ngx_mcp_stream_t;


static ngx_int_t ngx_mcp_stream_header_filter(ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_stream_is(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
static ngx_int_t ngx_mcp_stream_open(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);
static ngx_uint_t ngx_mcp_stream_listens(ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_stream_opaque(ngx_http_request_t *r,
    ngx_mcp_stream_t *s);
static ngx_mcp_stream_peer_t *ngx_mcp_stream_peer(ngx_mcp_srv_conf_t *conf,
    ngx_str_t *name);
static ngx_int_t ngx_mcp_stream_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static void ngx_mcp_stream_hook(ngx_mcp_stream_t *s);
static void ngx_mcp_stream_scan(ngx_mcp_stream_t *s, ngx_chain_t *in);
static void ngx_mcp_stream_read(ngx_http_request_t *r, ngx_http_upstream_t *u);
static void ngx_mcp_stream_write(ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_stream_timedout(ngx_mcp_stream_t *s);
static void ngx_mcp_stream_event(ngx_event_t *ev);
static void ngx_mcp_stream_turn(ngx_mcp_stream_t *s);
static void ngx_mcp_stream_arm(ngx_mcp_stream_t *s);
static ngx_int_t ngx_mcp_stream_beat(ngx_mcp_stream_t *s);
static ngx_uint_t ngx_mcp_stream_may_end(ngx_mcp_stream_t *s);
static void ngx_mcp_stream_finish(ngx_mcp_stream_t *s);
static ngx_buf_t *ngx_mcp_stream_farewell(ngx_mcp_stream_t *s);
static size_t ngx_mcp_stream_complete(ngx_http_request_t *r, char *buf,
    size_t size);
static void ngx_mcp_stream_schedule(ngx_mcp_stream_t *s, ngx_mcp_end_t why);
static void ngx_mcp_stream_decide(ngx_mcp_stream_t *s, ngx_mcp_end_t reason);
static void ngx_mcp_stream_cleanup(void *data);


static ngx_http_output_header_filter_pt  ngx_mcp_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_mcp_next_body_filter;

static ngx_queue_t   ngx_mcp_stream_peers;
static ngx_uint_t    ngx_mcp_stream_leaving;

static u_char        ngx_mcp_stream_comment[] = ":\n\n";


void
ngx_mcp_stream_init(void)
{
    ngx_mcp_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_mcp_stream_header_filter;

    ngx_mcp_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_mcp_stream_body_filter;
}


static ngx_int_t
ngx_mcp_stream_header_filter(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || !ngx_mcp_stream_is(r, ctx)) {
        return ngx_mcp_next_header_filter(r);
    }

    /* nginx looks at it only when the header has been sent */

    r->upstream->buffering = 0;

    if (r->method != NGX_HTTP_HEAD
        && r->headers_out.status == NGX_HTTP_OK
        && ngx_mcp_stream_open(r, ctx) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_mcp_next_header_filter(r);
}


static ngx_uint_t
ngx_mcp_stream_is(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_table_elt_t      *type;
    ngx_http_upstream_t  *u;

    if (r != r->main || ctx->call || ctx->refused || ctx->replaced
        || ctx->events || r->post_action || !ngx_mcp_relay_open(r))
    {
        return 0;
    }

#if (NGX_HTTP_CACHE)

    if (r->cached) {
        return 0;
    }

#endif

    u = r->upstream;

    /* what is to be kept has to be buffered */

    if (u->cacheable || u->store || u->upgrade) {
        return 0;
    }

    type = u->headers_in.content_type;

    return type != NULL
           && mcp_rpc_media((char *) type->value.data, type->value.len)
              == MCP_MEDIA_SSE;
}


static ngx_int_t
ngx_mcp_stream_open(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_stream_t       *s;
    ngx_pool_cleanup_t     *cln;
    ngx_mcp_loc_conf_t     *mlcf;
    ngx_http_upstream_t    *u;
    ngx_mcp_stream_peer_t  *peer;

    u = r->upstream;

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    peer = ngx_mcp_stream_peer(ctx->conf, u->state ? u->state->peer : NULL);
    if (peer == NULL) {
        return NGX_ERROR;
    }

    s = ngx_calloc(sizeof(ngx_mcp_stream_t), r->connection->log);
    if (s == NULL) {
        return NGX_ERROR;
    }

    cln->data = s;
    cln->handler = ngx_mcp_stream_cleanup;
    ctx->events = s;
    s->peer = peer;

    mlcf = ngx_http_get_module_loc_conf(r, ngx_mcp_keepalive_module);

    s->request = r;
    s->number = u->peer.connection->number;
    s->listen = ngx_mcp_stream_listens(r);
    s->notify = s->listen || r->method == NGX_HTTP_GET;

    s->start = ngx_current_msec;
    s->heard = s->start;
    s->sent = s->start;

    s->timeout = s->notify ? mlcf->stream_timeout
                           : ngx_max(NGX_MCP_STREAM_CALL_MIN,
                                     u->conf->read_timeout);

    s->opaque = ngx_mcp_stream_opaque(r, s);
    s->heartbeat = s->opaque ? 0 : mlcf->heartbeat;

    if (s->notify) {

        /* its length cannot be known */

        ngx_http_clear_content_length(r);
    }

    mcp_sse_init(&s->sse, NULL, 0);

    s->event.handler = ngx_mcp_stream_event;
    s->event.data = r->connection;
    s->event.log = r->connection->log;
    s->event.cancelable = 1;

    ngx_queue_insert_tail(&s->peer->streams, &s->queue);

    s->peer->tally.open++;
    s->peer->tally.opened++;
    s->peer->tally.changed = 1;

    if (s->notify) {
        ngx_mcp_tally_tell(&s->peer->tally);
    }

    if (ngx_mcp_stream_leaving) {
        ngx_mcp_stream_schedule(s, NGX_MCP_END_EXIT);
    }

    return NGX_OK;
}


/* A "subscriptions/listen" of a revision without sessions. */

static ngx_uint_t
ngx_mcp_stream_listens(ngx_http_request_t *r)
{
    ngx_table_elt_t   *h;
    static ngx_str_t   version = ngx_string("mcp-protocol-version");
    static ngx_str_t   method = ngx_string("mcp-method");

    if (r->method != NGX_HTTP_POST) {
        return 0;
    }

    h = ngx_mcp_request_header(&r->headers_in.headers, &version);

    if (h == NULL || h->value.len != sizeof("2026-07-28") - 1
        || ngx_strncmp(h->value.data, "2026-07-28", h->value.len) < 0)
    {
        return 0;
    }

    h = ngx_mcp_request_header(&r->headers_in.headers, &method);

    return h != NULL && h->value.len == sizeof("subscriptions/listen") - 1
           && ngx_strncmp(h->value.data, "subscriptions/listen", h->value.len)
              == 0;
}


/* Its length is known already, or what it says is not. */

static ngx_uint_t
ngx_mcp_stream_opaque(ngx_http_request_t *r, ngx_mcp_stream_t *s)
{
    ngx_table_elt_t  *h;

    if (!s->notify && r->headers_out.content_length_n != -1) {
        return 1;
    }

    h = r->headers_out.content_encoding;

    return h != NULL && h->hash && h->value.len
           && (h->value.len != sizeof("identity") - 1
               || ngx_strncasecmp(h->value.data, (u_char *) "identity",
                                  h->value.len)
                  != 0);
}


static ngx_mcp_stream_peer_t *
ngx_mcp_stream_peer(ngx_mcp_srv_conf_t *conf, ngx_str_t *name)
{
    size_t                  len;
    ngx_str_t               none;
    ngx_queue_t            *q;
    ngx_mcp_stream_peer_t  *peer;

    if (name == NULL) {
        ngx_str_null(&none);
        name = &none;
    }

    len = ngx_min(name->len, NGX_MCP_PEER_NAME_MAX);

    for (q = ngx_queue_head(&ngx_mcp_stream_peers);
         q != ngx_queue_sentinel(&ngx_mcp_stream_peers);
         q = ngx_queue_next(q))
    {
        peer = ngx_queue_data(q, ngx_mcp_stream_peer_t, queue);

        if (peer->conf == conf && peer->len == len
            && ngx_memcmp(peer->name, name->data, len) == 0)
        {
            if (peer->tally.peer == 0) {
                peer->tally.peer = ngx_mcp_peer_add(&conf->policy, name, 0);
            }

            return peer;
        }
    }

    /* as long as the process lives: there are no more of them than peers */

    peer = ngx_pcalloc(ngx_cycle->pool, sizeof(ngx_mcp_stream_peer_t));
    if (peer == NULL) {
        return NULL;
    }

    peer->conf = conf;
    peer->len = len;
    ngx_memcpy(peer->name, name->data, len);

    peer->tally.policy = &conf->policy;
    peer->tally.peer = ngx_mcp_peer_add(&conf->policy, name, 0);

    ngx_queue_init(&peer->streams);
    ngx_queue_insert_tail(&ngx_mcp_stream_peers, &peer->queue);

    return peer;
}


static ngx_int_t
ngx_mcp_stream_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t          rc;
    ngx_mcp_ctx_t     *ctx;
    ngx_mcp_stream_t  *s;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->events == NULL || r != r->main) {
        return ngx_mcp_next_body_filter(r, in);
    }

    s = ctx->events;

    if (s->read == NULL && ngx_mcp_relay_open(r)) {
        ngx_mcp_stream_hook(s);
    }

    ngx_mcp_stream_scan(s, in);

    if (s->last) {
        ngx_mcp_stream_decide(s, NGX_MCP_END_SERVER);

    } else if (!ngx_mcp_relay_open(r)) {

        /* nginx flushes what there is, and closes */

        ngx_mcp_stream_decide(s, NGX_MCP_END_CUT);
    }

    rc = ngx_mcp_next_body_filter(r, in);

    if (rc == NGX_ERROR) {
        ngx_mcp_stream_decide(s, NGX_MCP_END_WRITE);
    }

    return rc;
}


/* nginx has just put its own handlers in place. */

static void
ngx_mcp_stream_hook(ngx_mcp_stream_t *s)
{
    ngx_http_request_t   *r;
    ngx_http_upstream_t  *u;

    r = s->request;
    u = r->upstream;

    s->read = u->read_event_handler;
    s->write = r->write_event_handler;

    u->read_event_handler = ngx_mcp_stream_read;
    r->write_event_handler = ngx_mcp_stream_write;

    ngx_post_event(&s->event, &ngx_posted_events);
}


static void
ngx_mcp_stream_scan(ngx_mcp_stream_t *s, ngx_chain_t *in)
{
    ngx_buf_t            *b;
    const unsigned char  *p;

    for ( /* void */ ; in; in = in->next) {
        b = in->buf;

        if (b->last_buf) {
            s->last = 1;
        }

        if (!ngx_buf_in_memory(b) || b->pos == b->last) {
            continue;
        }

        p = b->pos;
        (void) mcp_sse_feed(&s->sse, &p, b->last);

        s->begun = 1;
        s->sent = ngx_current_msec;
    }
}


/* In place of nginx's handler for the upstream side. */

static void
ngx_mcp_stream_read(ngx_http_request_t *r, ngx_http_upstream_t *u)
{
    ngx_event_t       *rev;
    ngx_mcp_ctx_t     *ctx;
    ngx_mcp_stream_t  *s;

    ctx = ngx_mcp_request_ctx(r);
    s = ctx->events;
    rev = u->peer.connection->read;

    if (rev->timedout) {

        if (ngx_mcp_stream_timedout(s)) {
            return;
        }

    } else {
        s->heard = ngx_current_msec;
    }

    if (s->stopped) {

        if ((ngx_event_flags & NGX_USE_LEVEL_EVENT) && rev->active) {
            (void) ngx_del_event(rev, NGX_READ_EVENT, 0);
        }

        return;
    }

    /* gone with the request, if that ends here */

    ngx_post_event(&s->event, &ngx_posted_events);

    s->read(r, u);
}


/* In place of nginx's handler for the client side. */

static void
ngx_mcp_stream_write(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t     *ctx;
    ngx_mcp_stream_t  *s;

    ctx = ngx_mcp_request_ctx(r);
    s = ctx->events;

    if (r->connection->write->timedout) {
        ngx_mcp_stream_decide(s, NGX_MCP_END_WRITE);

        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "mcp upstream \"%V\" peer \"%*s\": event stream ends, "
                      "the client has read nothing for %M ms",
                      &s->peer->conf->policy.name, s->peer->len,
                      s->peer->name, ngx_current_msec - s->sent);
    }

    if (ngx_mcp_relay_open(r)) {

        if (s->stopped) {
            r->upstream->peer.connection->read->ready = 0;
        }

        ngx_post_event(&s->event, &ngx_posted_events);
    }

    s->write(r);
}


/*
 * The server's time is over; true if that has been dealt with.  Only a
 * notification stream has a proper end, a call has failed.
 */

static ngx_uint_t
ngx_mcp_stream_timedout(ngx_mcp_stream_t *s)
{
    ngx_msec_t           silent;
    ngx_event_t         *rev;
    ngx_http_request_t  *r;

    r = s->request;
    rev = r->upstream->peer.connection->read;

    silent = ngx_current_msec - s->heard;

    if (silent + NGX_TIMER_LAZY_DELAY < s->timeout) {

        /* nginx's own timer, set again since we set ours */

        rev->timedout = 0;
        ngx_add_timer(rev, s->timeout - silent);

        return 1;
    }

    ngx_mcp_stream_decide(s, NGX_MCP_END_TIMEOUT);

    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                  "mcp upstream \"%V\" peer \"%*s\": %s stream ends, "
                  "the server was silent for %M ms",
                  &s->peer->conf->policy.name, s->peer->len, s->peer->name,
                  s->notify ? "notification" : "answer", silent);

    if (!s->notify) {
        return 0;
    }

    rev->timedout = 0;

    s->retry = NGX_MCP_STREAM_RETRY_MIN;
    ngx_mcp_stream_finish(s);

    return 1;
}


static void
ngx_mcp_stream_event(ngx_event_t *ev)
{
    ngx_connection_t    *c;
    ngx_mcp_stream_t    *s;
    ngx_http_request_t  *r;

    s = (ngx_mcp_stream_t *) ((u_char *) ev
                              - offsetof(ngx_mcp_stream_t, event));
    r = s->request;
    c = r->connection;

    ev->timedout = 0;

    if (!ngx_mcp_relay_open(r) || c->error) {
        return;
    }

    ngx_http_set_log_request(c->log, r);

    ngx_mcp_stream_turn(s);

    ngx_http_run_posted_requests(c);
}


/* What is due now; the request may be gone afterwards. */

static void
ngx_mcp_stream_turn(ngx_mcp_stream_t *s)
{
    ngx_msec_t     now, silent;
    ngx_event_t   *rev;

    now = ngx_current_msec;

    if (s->ending && (ngx_msec_int_t) (now - s->end) >= 0) {

        if (ngx_mcp_stream_may_end(s)) {
            ngx_mcp_stream_finish(s);
            return;
        }

    } else if (s->heartbeat
               && (now - s->sent >= s->heartbeat || (s->notify && !s->begun))
               && ngx_mcp_stream_beat(s) != NGX_OK)
    {
        return;
    }

    /* nginx has set its read timer, we set ours */

    rev = s->request->upstream->peer.connection->read;

    if (rev->timer_set) {
        silent = now - s->heard;
        ngx_add_timer(rev, (silent < s->timeout) ? s->timeout - silent : 1);
    }

    ngx_mcp_stream_arm(s);
}


static void
ngx_mcp_stream_arm(ngx_mcp_stream_t *s)
{
    ngx_msec_t      now;
    ngx_msec_int_t  wait, end;

    if (!s->ending && (s->heartbeat == 0 || s->event.timer_set)) {
        return;
    }

    now = ngx_current_msec;
    wait = NGX_MAX_INT32_VALUE;

    if (s->heartbeat) {
        wait = s->sent + s->heartbeat - now;

        if (wait <= 0) {

            /* it was due and could not be sent: in a moment, or not at all */
            wait = s->heartbeat;
        }

        wait += ngx_random() % (s->heartbeat / NGX_MCP_STREAM_JITTER + 1);
    }

    if (s->ending) {
        end = s->end - now;

        if (end <= 0) {
            end = NGX_MCP_STREAM_GRACE;
        }

        wait = ngx_min(wait, end);
    }

    wait = ngx_max(wait, NGX_MCP_STREAM_TIMER_MIN);

    if (s->event.timer_set) {
        ngx_del_timer(&s->event);
    }

    ngx_add_timer(&s->event, (ngx_msec_t) wait);
}


/* Sends a comment, if it can be; NGX_ERROR: the request is gone. */

static ngx_int_t
ngx_mcp_stream_beat(ngx_mcp_stream_t *s)
{
    ngx_buf_t           *b;
    ngx_http_request_t  *r;

    r = s->request;

    if (ngx_mcp_relay_busy(r) || !mcp_sse_at_boundary(&s->sse)) {
        return NGX_OK;
    }

    b = &s->buf;

    ngx_memzero(b, sizeof(ngx_buf_t));

    b->pos = ngx_mcp_stream_comment;
    b->last = ngx_mcp_stream_comment + sizeof(ngx_mcp_stream_comment) - 1;
    b->memory = 1;
    b->flush = 1;

    s->begun = 1;
    s->sent = ngx_current_msec;

    s->peer->tally.heartbeats++;
    s->peer->tally.changed = 1;

    if (ngx_mcp_relay_put(r, b, ngx_mcp_next_body_filter) == NGX_OK) {
        return NGX_OK;
    }

    ngx_mcp_stream_decide(s, NGX_MCP_END_WRITE);

    s->stopped = 1;
    ngx_mcp_relay_finish(r, s->read);

    return NGX_ERROR;
}


/* An event that has begun, and what waits for the client, go first. */

static ngx_uint_t
ngx_mcp_stream_may_end(ngx_mcp_stream_t *s)
{
    if (!ngx_mcp_relay_busy(s->request)) {

        if (s->stopped || mcp_sse_at_boundary(&s->sse)) {
            return 1;
        }

    } else if (s->stopped) {
        return 0;
    }

    if (ngx_current_msec - s->end < NGX_MCP_STREAM_GRACE) {
        return 0;
    }

    s->stopped = 1;

    return !ngx_mcp_relay_busy(s->request);
}


/* The request may be gone afterwards. */

static void
ngx_mcp_stream_finish(ngx_mcp_stream_t *s)
{
    ngx_buf_t           *b;
    ngx_http_request_t  *r;

    r = s->request;

    if (!s->opaque && !ngx_mcp_relay_busy(r) && mcp_sse_at_boundary(&s->sse)) {
        b = ngx_mcp_stream_farewell(s);

        if (b != NULL
            && ngx_mcp_relay_put(r, b, ngx_mcp_next_body_filter) != NGX_OK)
        {
            ngx_mcp_stream_decide(s, NGX_MCP_END_WRITE);
        }
    }

    if (s->ending) {
        ngx_mcp_stream_decide(s, s->why);
    }

    s->stopped = 1;
    ngx_mcp_relay_finish(r, s->read);
}


/* The last words of a stream; NULL: none can be said. */

static ngx_buf_t *
ngx_mcp_stream_farewell(ngx_mcp_stream_t *s)
{
    char                 text[512];
    size_t               len;
    ngx_buf_t           *b;
    ngx_http_request_t  *r;

    r = s->request;

    if (s->listen) {
        len = ngx_mcp_stream_complete(r, text, sizeof(text));

    } else {
        len = ngx_sprintf((u_char *) text, "retry: %M\n\n", s->retry)
              - (u_char *) text;
    }

    if (len == 0) {
        return NULL;
    }

    b = ngx_create_temp_buf(r->pool, len);

    if (b != NULL) {
        b->last = ngx_cpymem(b->last, text, len);
        b->flush = 1;
    }

    return b;
}


/* The result that tells a client that its subscription is over. */

static size_t
ngx_mcp_stream_complete(ngx_http_request_t *r, char *buf, size_t size)
{
    ngx_buf_t                *b;
    ngx_http_request_body_t  *rb;

    rb = r->request_body;

    if (rb == NULL || r->request_body_no_buffering || rb->bufs == NULL
        || rb->bufs->next != NULL || rb->bufs->buf->in_file)
    {
        return 0;
    }

    b = rb->bufs->buf;

    return mcp_rpc_complete(buf, size, b->pos, b->last - b->pos);
}


void
ngx_mcp_stream_mark(ngx_mcp_srv_conf_t *conf, ngx_str_t *name,
    ngx_atomic_uint_t number)
{
    ngx_queue_t            *q;
    ngx_mcp_stream_t       *s;
    ngx_mcp_stream_peer_t  *peer;

    peer = ngx_mcp_stream_peer(conf, name);
    if (peer == NULL) {
        return;
    }

    for (q = ngx_queue_head(&peer->streams);
         q != ngx_queue_sentinel(&peer->streams);
         q = ngx_queue_next(q))
    {
        s = ngx_queue_data(q, ngx_mcp_stream_t, queue);

        if (s->number < number) {
            ngx_mcp_stream_schedule(s, NGX_MCP_END_MARK);
        }
    }
}


void
ngx_mcp_stream_tick(void)
{
    ngx_uint_t              leave;
    ngx_queue_t            *q, *qs;
    ngx_mcp_stream_peer_t  *peer;

    leave = (ngx_exiting || ngx_quit) && !ngx_mcp_stream_leaving;

    for (q = ngx_queue_head(&ngx_mcp_stream_peers);
         q != ngx_queue_sentinel(&ngx_mcp_stream_peers);
         q = ngx_queue_next(q))
    {
        peer = ngx_queue_data(q, ngx_mcp_stream_peer_t, queue);

        ngx_mcp_tally_tell(&peer->tally);

        for (qs = ngx_queue_head(&peer->streams);
             leave && qs != ngx_queue_sentinel(&peer->streams);
             qs = ngx_queue_next(qs))
        {
            ngx_mcp_stream_schedule(ngx_queue_data(qs, ngx_mcp_stream_t,
                                                   queue),
                                    NGX_MCP_END_EXIT);
        }
    }

    if (leave) {
        ngx_mcp_stream_leaving = 1;
    }
}


/*
 * The later a stream ends, the later its client is told to come back: both are
 * the same share of their time, so that reopenings come evenly as well.
 */

static void
ngx_mcp_stream_schedule(ngx_mcp_stream_t *s, ngx_mcp_end_t why)
{
    uint64_t    share;
    ngx_msec_t  drain;

    if (!s->notify || s->ending || s->peer->conf->drain == 0
        || !ngx_mcp_relay_open(s->request)) {
        return;
    }

    /* the last one may need a moment more */

    drain = s->peer->conf->drain;
    drain -= ngx_min(drain / 4, NGX_MCP_STREAM_GRACE);

    share = ngx_random() % 10000;

    s->ending = 1;
    s->why = why;
    s->end = ngx_current_msec + drain * share / 10000;
    s->retry = NGX_MCP_STREAM_RETRY_MIN
               + ngx_min(drain, NGX_MCP_STREAM_RETRY_MAX) * share / 10000;

    ngx_mcp_stream_arm(s);
}


/* The first reason is the right one. */

static void
ngx_mcp_stream_decide(ngx_mcp_stream_t *s, ngx_mcp_end_t reason)
{
    if (!s->decided) {
        s->decided = 1;
        s->reason = reason;
    }
}


static void
ngx_mcp_stream_cleanup(void *data)
{
    ngx_mcp_stream_t *s = data;

    ngx_mcp_tally_t  *tally;

    if (s->event.timer_set) {
        ngx_del_timer(&s->event);
    }

    if (s->event.posted) {
        ngx_delete_posted_event(&s->event);
    }

    ngx_queue_remove(&s->queue);

    ngx_mcp_stream_decide(s, s->request->connection->error
                             ? NGX_MCP_END_CLIENT : NGX_MCP_END_CUT);

    tally = &s->peer->tally;

    tally->open--;
    tally->end[s->reason]++;
    tally->age_ms += ngx_current_msec - s->start;
    tally->changed = 1;

    if (s->notify) {
        ngx_mcp_tally_tell(tally);
    }

    ngx_free(s);
}


void
ngx_mcp_stream_init_process(void)
{
    ngx_queue_init(&ngx_mcp_stream_peers);
}


void
ngx_mcp_stream_exit_process(void)
{
    ngx_queue_t            *q;
    ngx_mcp_stream_peer_t  *peer;

    if (ngx_mcp_stream_peers.next == NULL) {
        return;
    }

    for (q = ngx_queue_head(&ngx_mcp_stream_peers);
         q != ngx_queue_sentinel(&ngx_mcp_stream_peers);
         q = ngx_queue_next(q))
    {
        peer = ngx_queue_data(q, ngx_mcp_stream_peer_t, queue);

        peer->tally.changed |= (peer->tally.open != 0);
        peer->tally.open = 0;

        ngx_mcp_tally_tell(&peer->tally);
    }
}
