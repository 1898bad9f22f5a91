
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc.h"
#include "ngx_mcp_evidence.h"
#include "ngx_mcp_view.h"


static ngx_uint_t ngx_mcp_evidence_current(ngx_mcp_ctx_t *ctx);
static void ngx_mcp_evidence_listen(ngx_http_request_t *r,
    ngx_mcp_contact_t *contact);
static void ngx_mcp_evidence_deaf(ngx_mcp_contact_t *contact);
static void ngx_mcp_evidence_wait(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
static void ngx_mcp_evidence_silent(ngx_event_t *ev);
static ngx_int_t ngx_mcp_evidence_unreached(ngx_mcp_ctx_t *ctx,
    ngx_peer_connection_t *pc);
static ngx_uint_t ngx_mcp_evidence_cut(ngx_http_request_t *r,
    ngx_peer_connection_t *pc);
static void ngx_mcp_evidence_event(ngx_mcp_ctx_t *ctx, mcp_event_t event,
    const char *reason, ngx_int_t refused);


void
ngx_mcp_evidence_begin(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_peer_connection_t *pc, ngx_uint_t pooled)
{
    ngx_mcp_contact_t    *contact;
    ngx_mcp_peer_view_t  *peer;

    contact = &ctx->contact;

    peer = ngx_mcp_view_find(ngx_mcp_view(&ctx->conf->policy), pc->name);

    /* one that is met for the first time may have been resolved just now */

    if (peer && peer->gone && ngx_mcp_evidence_current(ctx)) {
        ngx_mcp_peer_absent(&ctx->conf->policy, peer->slot, 0);
    }

    if (peer) {
        contact->peer = peer->slot;
        contact->epoch = peer->epoch;

    } else {
        contact->peer = ngx_mcp_peer_add(&ctx->conf->policy, pc->name, 0,
                                         &contact->epoch);
    }

    contact->pooled = pooled;
    contact->begun = 1;
    contact->attempt = (peer && (peer->state == MCP_PEER_DEGRADED
                                 || peer->state == MCP_PEER_PARKED));

    /* parallel subrequests would tangle the chain of logs */

    if (r == r->main && !pooled) {
        ngx_mcp_evidence_listen(r, contact);
    }

    if (ctx->prompt) {
        ngx_mcp_evidence_wait(r, ctx);
    }
}


/* Without memory for it the reason of a failure is not known. */

static void
ngx_mcp_evidence_listen(ngx_http_request_t *r, ngx_mcp_contact_t *contact)
{
    ngx_mcp_ear_t       *ear;
    ngx_http_log_ctx_t  *log_ctx;

    ear = contact->ear;

    if (ear == NULL) {
        ear = ngx_alloc(sizeof(ngx_mcp_ear_t), r->connection->log);
        if (ear == NULL) {
            return;
        }

        contact->ear = ear;
    }

    ear->head = r->connection->log;
    log_ctx = ear->head->data;

    ngx_mcp_capture_beside(&ear->capture, &ear->log, ear->head,
                           (void **) &log_ctx->current_request, r);
}


/* Unless the log was given to others meanwhile, who then have ours. */

static void
ngx_mcp_evidence_deaf(ngx_mcp_contact_t *contact)
{
    ngx_mcp_ear_t  *ear;

    ear = contact->ear;

    if (ear == NULL || ear->head == NULL
        || ear->head->wdata != &ear->capture)
    {
        return;
    }

    ngx_mcp_capture_end(&ear->capture, &ear->log, ear->head);

    ngx_free(ear);
    contact->ear = NULL;
}


/* Is this worker's list of peers the one in force? */

static ngx_uint_t
ngx_mcp_evidence_current(ngx_mcp_ctx_t *ctx)
{
    ngx_mcp_zone_t  *zone;

    zone = ctx->conf->policy.zone;

    return zone->generation == zone->sh->generation;
}


void
ngx_mcp_evidence_answer(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    /* a stream may go on for days */

    ngx_mcp_evidence_deaf(&ctx->contact);

    if (ctx->contact.attempt) {
        ctx->contact.attempt = 0;
        ngx_mcp_evidence_event(ctx, MCP_EVENT_REACH,
                               "a client's request was answered", 0);
    }
}


ngx_int_t
ngx_mcp_evidence_end(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_peer_connection_t *pc, ngx_uint_t state)
{
    ngx_mcp_ear_t      *ear;
    ngx_mcp_contact_t  *contact;

    contact = &ctx->contact;

    if (!contact->begun) {
        return NGX_OK;
    }

    contact->begun = 0;

    ear = contact->ear;

    if (ear && ear->head) {
        ngx_mcp_capture_end(&ear->capture, &ear->log, ear->head);
        ear->head = NULL;
    }

    if (ctx->silent && ctx->silent->timer_set) {
        ngx_del_timer(ctx->silent);
    }

    if (ngx_terminate || ngx_exiting) {
        return NGX_OK;
    }

    /* nginx leaves the flag of the try before if connect() fails at once */

    if (r->upstream->request_sent && pc->connection) {

        if (contact->attempt) {
            ngx_mcp_evidence_event(ctx, MCP_EVENT_REACH,
                                   "connect() succeeded", 0);

        } else if (ngx_mcp_evidence_cut(r, pc)) {
            ngx_mcp_evidence_event(ctx, MCP_EVENT_STREAM_CUT,
                                   "an event stream was cut", 0);
        }

        return NGX_OK;
    }

    if (!(state & NGX_PEER_FAILED) || contact->pooled) {
        return NGX_OK;
    }

    return ngx_mcp_evidence_unreached(ctx, pc);
}


/* No tool is behind such a request: it is answered soon, or all is not well. */

static void
ngx_mcp_evidence_wait(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx)
{
    ngx_event_t  *ev;

    ev = ctx->silent;

    if (ev == NULL) {
        ev = ngx_pcalloc(r->pool, sizeof(ngx_event_t));
        if (ev == NULL) {
            return;
        }

        ev->handler = ngx_mcp_evidence_silent;
        ev->data = r;
        ev->log = r->connection->log;
        ev->cancelable = 1;

        ctx->silent = ev;
    }

    ngx_add_timer(ev, ctx->conf->policy.timeout);
}


static void
ngx_mcp_evidence_silent(ngx_event_t *ev)
{
    ngx_mcp_ctx_t       *ctx;
    ngx_http_request_t  *r;

    r = ev->data;
    ctx = ngx_mcp_request_ctx(r);

    if (!r->upstream->request_sent || r->upstream->headers_in.status_n
        || ngx_mcp_peer_proven(&ctx->conf->policy, ctx->contact.peer,
                               ctx->start))
    {
        return;
    }

    ngx_mcp_evidence_event(ctx, MCP_EVENT_FAILURE,
                           "a client's request was not answered in time", 0);
}


static ngx_int_t
ngx_mcp_evidence_unreached(ngx_mcp_ctx_t *ctx, ngx_peer_connection_t *pc)
{
    const char        *reason;
    ngx_int_t          refused;
    ngx_mcp_ear_t     *ear;
    ngx_connection_t  *c;

    c = pc->connection;
    ear = ctx->contact.ear;
    reason = "";
    refused = 0;

    if (ear) {

        if (ngx_mcp_capture_local(&ear->capture)) {
            return NGX_DECLINED;
        }

        reason = ear->capture.text;
        refused = ngx_mcp_capture_refused(&ear->capture);
    }

    if (reason[0] == '\0' && c != NULL
        && (c->write->timedout || c->read->timedout))
    {
        reason = "connect() timed out (110: Connection timed out)";

    } else if (reason[0] == '\0') {

        /* of a subrequest, whose log is not listened to */

        reason = "connect() failed";
        refused = NGX_DECLINED;
    }

    ngx_mcp_evidence_event(ctx, MCP_EVENT_FAILURE, reason, refused);

    return (refused == 1) ? NGX_ABORT : NGX_BUSY;
}


/* Did the peer end an event stream without its end? */

static ngx_uint_t
ngx_mcp_evidence_cut(ngx_http_request_t *r, ngx_peer_connection_t *pc)
{
    off_t                 length;
    ngx_connection_t     *c;
    ngx_http_upstream_t  *u;

    c = pc->connection;
    u = r->upstream;

    if (c == NULL || u->headers_in.status_n != NGX_HTTP_OK
        || !(c->read->eof || c->read->error)
        || ngx_mcp_header_media(u) != MCP_MEDIA_SSE)
    {
        return 0;
    }

    length = (u->buffering && u->pipe) ? u->pipe->length : u->length;

    return length > 0 || (length == -1 && c->read->error);
}


static void
ngx_mcp_evidence_event(ngx_mcp_ctx_t *ctx, mcp_event_t event,
    const char *reason, ngx_int_t refused)
{
    if (ctx->contact.peer) {
        ngx_mcp_peer_event(&ctx->conf->policy, ctx->contact.peer, event,
                           ctx->contact.epoch, reason, refused);

        /* this worker acts on it at once */

        (void) ngx_mcp_view(&ctx->conf->policy);
    }
}
