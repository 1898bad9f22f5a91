
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_classify.h"
#include "mcp/mcp_rpc.h"
#include "ngx_mcp_call.h"
#include "ngx_mcp_connect.h"
#include "ngx_mcp_message.h"
#include "ngx_mcp_probe.h"
#include "ngx_mcp_rr.h"


/* No timer is shorter, in ms. */
#define NGX_MCP_TIMEOUT_MIN   100

/* A connect is either quick or of no use, in ms. */
#define NGX_MCP_CONNECT_TIMEOUT  1000

/* Attempts that could not run for want of something of ours, in ms. */
#define NGX_MCP_LOCAL_DELAY   1000


typedef struct {
    ngx_pool_t                 *pool;
    ngx_mcp_lease_t             lease;
    ngx_mcp_srv_conf_t         *conf;
    ngx_mcp_probe_next_pt       next;
    ngx_mcp_endpoint_t          endpoint;
    ngx_array_t                 headers;    /* of ngx_keyval_t */
    ngx_mcp_call_t              call;
    ngx_mcp_connect_t           connect;
    mcp_rpc_reader_t           *reader;
    ngx_msec_t                  asked;      /* when it was sent, last */
    size_t                      bytes;      /* of the answer's body */
    mcp_verdict_t               verdict;
    char                        reason[MCP_REASON_MAX];
    char                        id[MCP_RPC_ID_MAX];
    char                        version[MCP_MODERN_VERSION_MAX];
                                            /* wanted by the server, or empty */
    u_char                      body[NGX_MCP_MESSAGE_MAX];
    ngx_msec_t                  local_delay;
                                            /* to an attempt that can run */
    unsigned                    retried:1;  /* on a new connection */
    unsigned                    confirmed:1;
    unsigned                    renamed:1;  /* the version is the server's */
    unsigned                    ignored:1;  /* "ping" was, so far */
    unsigned                    refused:1;  /* the connection */
} ngx_mcp_probe_t;


static ngx_mcp_probe_t *ngx_mcp_probe_create(ngx_mcp_lease_t *lease);
static ngx_int_t ngx_mcp_probe_ask(ngx_mcp_probe_t *p, ngx_msec_t timeout);
static void ngx_mcp_probe_connect(ngx_mcp_probe_t *p);
static ngx_int_t ngx_mcp_probe_dial(ngx_mcp_probe_t *p,
    ngx_mcp_connect_done_pt done);
static void ngx_mcp_probe_connected(ngx_mcp_connect_t *connect);
static ngx_int_t ngx_mcp_probe_body(ngx_mcp_call_t *call, u_char *data,
    size_t len);
static void ngx_mcp_probe_answered(ngx_mcp_call_t *call);
static ngx_int_t ngx_mcp_probe_why(ngx_mcp_probe_t *p);
static void ngx_mcp_probe_known(ngx_mcp_connect_t *connect);
static void ngx_mcp_probe_judge(ngx_mcp_probe_t *p);
static void ngx_mcp_probe_facts(ngx_mcp_probe_t *p, mcp_facts_t *f);
static ngx_int_t ngx_mcp_probe_again(ngx_mcp_probe_t *p);
static ngx_int_t ngx_mcp_probe_rename(ngx_mcp_probe_t *p);
static void ngx_mcp_probe_local(ngx_mcp_probe_t *p, const char *reason);
static void ngx_mcp_probe_leave(ngx_mcp_probe_t *p);
static void ngx_mcp_probe_end(ngx_mcp_probe_t *p);
static void ngx_mcp_probe_peer(ngx_mcp_probe_t *p);
static void ngx_mcp_probe_session(ngx_mcp_probe_t *p, ngx_mcp_release_t *rel);
static void ngx_mcp_probe_close(ngx_mcp_probe_t *p, ngx_mcp_release_t *rel);


void
ngx_mcp_probe_start(ngx_mcp_lease_t *lease, ngx_mcp_probe_next_pt next)
{
    ngx_int_t           rc;
    ngx_mcp_probe_t    *p;
    ngx_mcp_release_t   rel;

    ngx_memzero(&rel, sizeof(ngx_mcp_release_t));

    p = ngx_mcp_probe_create(lease);

    if (p == NULL || ngx_mcp_call_short()) {
        rel.skipped = 1;
        rel.unused = 1;
        rel.delay = NGX_MCP_LOCAL_DELAY;
        rel.attempt_delay = NGX_MCP_LOCAL_DELAY;

        if (p != NULL) {
            ngx_mcp_probe_close(p, &rel);

        } else {
            ngx_mcp_session_release(lease, &rel);
        }

        return;
    }

    p->next = next;

    if (lease->ref.slot == 0 && !lease->modern) {
        ngx_mcp_probe_connect(p);
        return;
    }

    rc = ngx_mcp_probe_ask(p, lease->policy->timeout);

    if (rc == NGX_OK) {
        return;
    }

    if (rc == NGX_DECLINED) {
        ngx_mcp_probe_local(p, "the endpoint is not configured any more");
        return;
    }

    ngx_mcp_probe_local(p, "no memory or no connection for a keepalive");
}


static ngx_mcp_probe_t *
ngx_mcp_probe_create(ngx_mcp_lease_t *lease)
{
    ngx_pool_t       *pool;
    ngx_mcp_probe_t  *p;

    pool = ngx_create_pool(4096, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    p = ngx_pcalloc(pool, sizeof(ngx_mcp_probe_t));
    if (p == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    p->pool = pool;
    p->lease = *lease;
    p->local_delay = NGX_MCP_LOCAL_DELAY;

    /* the policy is the first member of its upstream's configuration */
    p->conf = (ngx_mcp_srv_conf_t *) lease->policy;

    if (ngx_mcp_message_keep(pool, &p->lease) != NGX_OK
        || ngx_mcp_message_headers(pool, p->conf, &p->lease, &p->headers)
           != NGX_OK)
    {
        ngx_destroy_pool(pool);
        return NULL;
    }

    return p;
}


/* As ngx_mcp_call_start(). */

static ngx_int_t
ngx_mcp_probe_ask(ngx_mcp_probe_t *p, ngx_msec_t timeout)
{
    ngx_mcp_call_t  *call;

    call = &p->call;
    ngx_memzero(call, sizeof(ngx_mcp_call_t));

    mcp_rpc_reader_destroy(p->reader);
    p->reader = NULL;

    if (ngx_mcp_endpoint_parse(&p->lease.endpoint, &p->endpoint) != NGX_OK) {
        return NGX_DECLINED;
    }

    call->stub.body.data = p->body;
    call->stub.body.len = ngx_mcp_message_body(&p->lease, p->id, p->body);
    if (call->stub.body.len == 0) {
        return NGX_ERROR;
    }

    call->conf = p->conf;
    call->stub.endpoint = &p->endpoint;
    call->peer = p->lease.peer_name;
    call->stub.headers = &p->headers;
    call->timeout = timeout;
    call->fresh = p->retried || p->confirmed;
    call->body_handler = ngx_mcp_probe_body;
    call->done_handler = ngx_mcp_probe_answered;
    call->data = p;

    p->asked = ngx_current_msec;

    return ngx_mcp_call_start(call);
}


static void
ngx_mcp_probe_connect(ngx_mcp_probe_t *p)
{
    if (ngx_mcp_probe_dial(p, ngx_mcp_probe_connected) != NGX_OK) {
        p->local_delay = p->lease.policy->health.park_ms;
        ngx_mcp_probe_local(p, "the peer is down or not configured any more");
    }
}


static ngx_int_t
ngx_mcp_probe_dial(ngx_mcp_probe_t *p, ngx_mcp_connect_done_pt done)
{
    ngx_mcp_connect_t  *connect;

    connect = &p->connect;

    ngx_memzero(connect, sizeof(ngx_mcp_connect_t));

    connect->name = p->lease.peer_name;
    connect->data = p;
    connect->done_handler = done;
    connect->timeout = ngx_min(p->lease.policy->timeout,
                               NGX_MCP_CONNECT_TIMEOUT);

    connect->socklen = ngx_mcp_rr_address(p->conf->upstream, &connect->name,
                                          &connect->sa);
    if (connect->socklen == 0) {
        return NGX_DECLINED;
    }

    ngx_mcp_connect_start(connect);

    return NGX_OK;
}


static void
ngx_mcp_probe_connected(ngx_mcp_connect_t *connect)
{
    uint32_t                peer;
    ngx_mcp_probe_t        *p;
    ngx_mcp_policy_t       *policy;
    ngx_mcp_release_t       rel;
    ngx_mcp_probe_next_pt   next;

    p = connect->data;
    next = p->next;
    peer = p->lease.peer;
    policy = p->lease.policy;

    ngx_memzero(&rel, sizeof(ngx_mcp_release_t));

    if (connect->cancelled) {
        ngx_mcp_probe_leave(p);
        return;
    }

    if (connect->local) {
        ngx_mcp_probe_local(p, connect->capture.text);
        return;
    }

    if (connect->capture.text[0] == '\0') {
        ngx_mcp_peer_event(p->lease.policy, p->lease.peer, MCP_EVENT_REACH,
                           p->lease.epoch, "connect() succeeded", 0);

    } else {
        ngx_mcp_peer_event(p->lease.policy, p->lease.peer,
                           MCP_EVENT_ATTEMPT_FAILED, p->lease.epoch,
                           connect->capture.text,
                           ngx_mcp_capture_refused(&connect->capture));
    }

    ngx_mcp_probe_close(p, &rel);
    next(policy, peer);
}


static ngx_int_t
ngx_mcp_probe_body(ngx_mcp_call_t *call, u_char *data, size_t len)
{
    ngx_mcp_probe_t  *p;

    p = call->data;
    p->bytes += len;

    if (p->reader == NULL) {
        p->reader = mcp_rpc_reader_create(call->media, p->id, call->length);
    }

    if (p->reader != NULL && !call->encoded
        && mcp_rpc_reader_feed(p->reader, data, len) == MCP_RPC_DONE)
    {
        return NGX_DONE;
    }

    return NGX_OK;
}


static void
ngx_mcp_probe_answered(ngx_mcp_call_t *call)
{
    ngx_int_t         rc;
    ngx_msec_t        timeout;
    ngx_mcp_probe_t  *p;

    p = call->data;

    if (call->cancelled) {
        ngx_mcp_probe_leave(p);
        return;
    }

    ngx_mcp_probe_judge(p);

    rc = ngx_mcp_probe_again(p);

    if (rc != NGX_DECLINED) {

        /* what was a pooled connection's fault is not counted */

        if (rc == NGX_OK) {
            ngx_mcp_peer_count(p->lease.policy, p->lease.peer, MCP_VERDICT_N,
                               p->bytes, 0);
        }

        p->bytes = 0;

        timeout = (p->verdict == MCP_VERDICT_TIMEOUT)
                  ? ngx_max(p->lease.policy->timeout / 3, NGX_MCP_TIMEOUT_MIN)
                  : p->lease.policy->timeout;

        if (ngx_mcp_session_extend(&p->lease, timeout) != NGX_OK) {
            ngx_mcp_probe_local(p, "the session is gone, or in use");
            return;
        }

        if (ngx_mcp_probe_ask(p, timeout) != NGX_OK) {
            ngx_mcp_probe_local(p, "no memory or no connection");
        }

        return;
    }

    if (p->verdict == MCP_VERDICT_PEER_DOWN && call->outcome.done
        && call->outcome.stage != MCP_STAGE_CONNECT && !call->header
        && ngx_mcp_probe_why(p) == NGX_OK)
    {
        return;
    }

    ngx_mcp_probe_end(p);
}


/*
 * A connection that was cut says nothing of why.  Is the peer still there at
 * all? NGX_DECLINED: cannot be asked.
 */

static ngx_int_t
ngx_mcp_probe_why(ngx_mcp_probe_t *p)
{
    if (ngx_mcp_probe_dial(p, ngx_mcp_probe_known) != NGX_OK) {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static void
ngx_mcp_probe_known(ngx_mcp_connect_t *connect)
{
    ngx_mcp_probe_t  *p;

    p = connect->data;

    if (!connect->cancelled && !connect->local
        && connect->capture.text[0] != '\0')
    {
        ngx_cpystrn((u_char *) p->reason, (u_char *) connect->capture.text,
                    MCP_REASON_MAX);
        p->refused = ngx_mcp_capture_refused(&connect->capture);
    }

    ngx_mcp_probe_end(p);
}


static void
ngx_mcp_probe_judge(ngx_mcp_probe_t *p)
{
    mcp_facts_t       facts;
    mcp_rpc_answer_t  answer;

    ngx_memzero(&facts, sizeof(mcp_facts_t));
    ngx_memzero(&answer, sizeof(mcp_rpc_answer_t));

    answer.empty = 1;

    if (p->reader != NULL) {
        mcp_rpc_reader_finish(p->reader, &answer);

        facts.head_len = MCP_RPC_HEAD_MAX;
        facts.head = mcp_rpc_reader_head(p->reader, &facts.head_len);
    }

    facts.answer = &answer;

    ngx_mcp_probe_facts(p, &facts);

    p->verdict = mcp_classify(&facts, p->reason);
    p->refused = (p->verdict == MCP_VERDICT_PEER_DOWN
                  && ngx_mcp_capture_refused(&p->call.capture));

    ngx_mcp_message_scrub(&p->lease, &p->endpoint.uri, p->reason);

    ngx_memcpy(p->version, answer.version, MCP_MODERN_VERSION_MAX);
}


static void
ngx_mcp_probe_facts(ngx_mcp_probe_t *p, mcp_facts_t *f)
{
    ngx_mcp_call_t     *call;
    ngx_mcp_outcome_t  *o;

    call = &p->call;
    o = &call->outcome;

    f->session = !p->lease.modern;
    f->ready = !p->lease.modern;
    f->phrases = p->conf->lost_texts;
    f->ping = (p->lease.method == NGX_MCP_METHOD_PING);
    f->pooled = o->pooled;
    f->encoded = call->encoded;
    f->retry_after = (call->retry_after >= 0);
    f->status = call->status;
    f->error = call->capture.text[0] ? call->capture.text : NULL;

    f->media = call->media;

    if (!o->contacted || !o->done || call->redirected) {

        /* whoever answered, it was not the peer; the text may name a URI */

        f->stage = MCP_STAGE_LOCAL;
        f->error = NULL;
        return;
    }

    if (call->header && (call->complete || call->answered)) {
        f->stage = MCP_STAGE_DONE;
        return;
    }

    f->stage = o->stage;
    f->timedout = call->timedout || o->timedout;

    if (f->stage == MCP_STAGE_CONNECT
        && ngx_mcp_capture_local(&call->capture))
    {
        f->stage = MCP_STAGE_LOCAL;
    }
}


/*
 * A second opinion on a new connection.  NGX_DONE: the pooled one was dead
 * before the first byte came, which is nobody's fault; NGX_OK: the answer is
 * doubted; NGX_DECLINED: none is wanted.
 */

static ngx_int_t
ngx_mcp_probe_again(ngx_mcp_probe_t *p)
{
    ngx_mcp_call_t  *call;

    call = &p->call;

    if (p->verdict == MCP_VERDICT_PEER_DOWN && !p->retried
        && call->outcome.pooled && !call->header)
    {
        p->retried = 1;
        return NGX_DONE;
    }

    if (p->version[0] != '\0' && p->lease.modern && !p->renamed) {
        return ngx_mcp_probe_rename(p);
    }

    if (p->confirmed) {
        return NGX_DECLINED;
    }

    switch (p->verdict) {

    case MCP_VERDICT_TIMEOUT:
        if (p->lease.attempt && p->lease.method != NGX_MCP_METHOD_PING) {
            return NGX_DECLINED;
        }

        if (p->lease.method == NGX_MCP_METHOD_PING) {

            /* it may be only "ping" that is ignored */

            p->ignored = 1;
            p->lease.method = NGX_MCP_METHOD_TOOLS;
        }

        break;

    case MCP_VERDICT_SESSION_LOST:
    case MCP_VERDICT_SESSION_SUSPECT:
        break;

    default:
        return NGX_DECLINED;
    }

    p->confirmed = 1;

    return NGX_OK;
}


/* The server names another version.  NGX_DECLINED: it is not another one. */

static ngx_int_t
ngx_mcp_probe_rename(ngx_mcp_probe_t *p)
{
    ngx_str_t  *version;

    version = &p->lease.version;

    if (ngx_strcmp(version->data, p->version) == 0) {
        return NGX_DECLINED;
    }

    version->len = ngx_strlen(p->version);
    version->data = ngx_pnalloc(p->pool, version->len + 1);

    if (version->data == NULL) {
        version->len = 0;
        return NGX_DECLINED;
    }

    (void) ngx_cpystrn(version->data, (u_char *) p->version, version->len + 1);

    p->renamed = 1;

    return ngx_mcp_message_headers(p->pool, p->conf, &p->lease, &p->headers)
           == NGX_OK ? NGX_OK : NGX_DECLINED;
}


/* Nothing was learnt of the peer, for a reason on our side. */

static void
ngx_mcp_probe_local(ngx_mcp_probe_t *p, const char *reason)
{
    ngx_mcp_release_t  rel;

    ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                  "mcp upstream \"%V\" peer \"%V\": no keepalive: %s",
                  &p->lease.policy->name, &p->lease.peer_name, reason);

    ngx_mcp_peer_count(p->lease.policy, p->lease.peer, MCP_VERDICT_LOCAL,
                       p->bytes, 0);

    ngx_memzero(&rel, sizeof(ngx_mcp_release_t));

    rel.unused = p->lease.attempt;
    rel.attempt_delay = p->local_delay;

    ngx_mcp_probe_close(p, &rel);
}


/* This worker exits: another one takes over at once. */

static void
ngx_mcp_probe_leave(ngx_mcp_probe_t *p)
{
    ngx_mcp_release_t  rel;

    ngx_mcp_peer_count(p->lease.policy, p->lease.peer, MCP_VERDICT_LOCAL,
                       p->bytes, 0);

    ngx_memzero(&rel, sizeof(ngx_mcp_release_t));
    rel.unused = 1;

    ngx_mcp_probe_close(p, &rel);
}


static void
ngx_mcp_probe_end(ngx_mcp_probe_t *p)
{
    uint32_t                peer;
    ngx_mcp_policy_t       *policy;
    ngx_mcp_release_t       rel;
    ngx_mcp_probe_next_pt   next;

    next = p->next;
    peer = p->lease.peer;
    policy = p->lease.policy;

    ngx_memzero(&rel, sizeof(ngx_mcp_release_t));

    if (p->verdict == MCP_VERDICT_LOCAL) {
        ngx_mcp_probe_local(p, p->reason);
        return;
    }

    ngx_mcp_peer_count(p->lease.policy, p->lease.peer, p->verdict, p->bytes,
                       ngx_current_msec - p->asked);

    ngx_mcp_probe_peer(p);
    ngx_mcp_probe_session(p, &rel);
    ngx_mcp_probe_close(p, &rel);

    next(policy, peer);
}


/* What the verdict means to the peer. */

static void
ngx_mcp_probe_peer(ngx_mcp_probe_t *p)
{
    mcp_event_t       event;
    ngx_mcp_lease_t  *lease;

    lease = &p->lease;

    if (lease->attempt) {
        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "mcp upstream \"%V\" peer \"%V\": attempt: %s: %s",
                      &lease->policy->name, &lease->peer_name,
                      mcp_verdict_name(p->verdict), p->reason);
    }

    switch (mcp_verdict_effect(p->verdict)) {

    case MCP_EFFECT_PROOF:
        event = MCP_EVENT_PROOF;
        break;

    case MCP_EFFECT_REACH:
        if (!lease->attempt) {
            return;
        }

        event = MCP_EVENT_REACH;
        break;

    case MCP_EFFECT_FAILURE:
        if (p->verdict == MCP_VERDICT_TIMEOUT && !lease->attempt
            && ngx_mcp_peer_proven(lease->policy, lease->peer, lease->start))
        {
            return;
        }

        event = lease->attempt ? MCP_EVENT_ATTEMPT_FAILED : MCP_EVENT_FAILURE;
        break;

    default: /* MCP_EFFECT_NOTHING */
        return;
    }

    ngx_mcp_peer_event(lease->policy, lease->peer, event, lease->epoch,
                       p->reason, p->refused);
}


/* What it means to the session. */

static void
ngx_mcp_probe_session(ngx_mcp_probe_t *p, ngx_mcp_release_t *rel)
{
    ngx_mcp_lease_t  *lease;

    lease = &p->lease;

    rel->renamed = (p->renamed
                    && mcp_verdict_effect(p->verdict) == MCP_EFFECT_PROOF);

    switch (p->verdict) {

    case MCP_VERDICT_OK:
        rel->proof = 1;

        if (p->ignored) {
            ngx_mcp_peer_latch(lease->policy, lease->peer,
                               NGX_MCP_METHOD_PING);
        }

        break;

    case MCP_VERDICT_UNSUPPORTED:

        /* a modern peer has no other method to be asked by */

        if (!lease->modern) {
            ngx_mcp_peer_latch(lease->policy, lease->peer, lease->method);
        }

        break;

    case MCP_VERDICT_SESSION_LOST:
        rel->stop = NGX_MCP_STOP_LOST;
        break;

    case MCP_VERDICT_SESSION_SUSPECT:
        rel->suspect = 1;
        break;

    case MCP_VERDICT_AUTH:
        rel->stop = NGX_MCP_STOP_AUTH;
        break;

    case MCP_VERDICT_LIMITED:
        if (p->call.retry_after > 0) {
            rel->delay = ngx_min(p->call.retry_after, 86400) * 1000;
        }

        break;

    case MCP_VERDICT_MISROUTE:
        rel->stop = NGX_MCP_STOP_MISROUTE;

        if (ngx_mcp_peer_warn(lease->policy, lease->peer,
                              NGX_MCP_WARNED_MISROUTE))
        {
            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "mcp upstream \"%V\" peer \"%V\" does not take "
                          "keepalives where its %s: %s",
                          &lease->policy->name, &lease->peer_name,
                          lease->modern ? "clients succeed" : "sessions live",
                          p->reason);
        }

        break;

    case MCP_VERDICT_BROKEN_REPLY:
        rel->broken = 1;
        break;

    default:
        break;
    }
}


static void
ngx_mcp_probe_close(ngx_mcp_probe_t *p, ngx_mcp_release_t *rel)
{
    ngx_mcp_session_release(&p->lease, rel);

    mcp_rpc_reader_destroy(p->reader);

    if (p->lease.headers.len) {
        ngx_explicit_memzero(p->lease.headers.data, p->lease.headers.len);
    }

    ngx_destroy_pool(p->pool);
}
