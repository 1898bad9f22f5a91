
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The session table: learn, adopt, find, touch, forget, expire, evict, and the
 * leases by which one worker of all keeps a session alive or busy.
 *
 * Every call takes the zone's lock and hands out copies.  A session is named by
 * a reference; one that is gone is simply not found any more.
 */


#ifndef _NGX_MCP_SESSION_H_INCLUDED_
#define _NGX_MCP_SESSION_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_peer.h"
#include "ngx_mcp_zone.h"


#define NGX_MCP_ID_MAX          4096
#define NGX_MCP_ENDPOINT_MAX    8192
#define NGX_MCP_HEADERS_MAX     8192
#define NGX_MCP_OWNER_LEN       16
#define NGX_MCP_VERSION_MAX     10      /* a date */

/* A probe's lease outlives its timeout by this, in ms. */
#define NGX_MCP_PROBE_SLACK     5000

#define NGX_MCP_SESSION_FRESH   0       /* not ready for keepalives */
#define NGX_MCP_SESSION_READY   1
#define NGX_MCP_SESSION_LOST    2

/* Why a session gets no keepalives. */

#define NGX_MCP_STOP_LOST       0x01    /* a keepalive was told it is lost */
#define NGX_MCP_STOP_AUTH       0x02    /* until other credentials succeed */
#define NGX_MCP_STOP_MISROUTE   0x04
#define NGX_MCP_STOP_BROKEN     0x08    /* three broken replies in a row */
#define NGX_MCP_STOP_DELETE     0x10    /* the client is leaving */

#define NGX_MCP_BROKEN_MAX      3       /* broken replies that stop */

#define NGX_MCP_USE_REQUEST     0       /* a lease for a request in flight */
#define NGX_MCP_USE_STREAM      1       /* ... for an open stream */


/* slot 0: no session */

typedef struct {
    uint32_t                    slot;
    uint32_t                    serial;
} ngx_mcp_session_ref_t;


/* What a request finds: where its session lives. */

typedef struct {
    ngx_mcp_session_ref_t       ref;
    ngx_uint_t                  state;
    ngx_uint_t                  gone;       /* the peer is not configured any
                                             * more */
    uint32_t                    epoch;      /* of the peer, now */
    uint32_t                    issued;     /* ... when it issued the session
                                             * */
    ngx_uint_t                  revival;    /* there is a record for one */
    uint32_t                    life;       /* revivals so far */
    ngx_str_t                   alias;      /* the server's id, if another;
                                             * good until the next call */
    uint32_t                    slot;       /* the peer's */
    uint64_t                    held;       /* this request's lease, until */
    uint64_t                    before;     /* another's, then */
    size_t                      peer_len;
    u_char                      peer[NGX_MCP_PEER_NAME_MAX];
} ngx_mcp_session_pin_t;


/* What a client's successful request says of its session. */

typedef struct {
    ngx_str_t                   endpoint;   /* see ngx_mcp_endpoint.h; empty:
                                             * not known */
    ngx_str_t                   headers;    /* remembered ones as "name NUL
                                             * value NUL" ... */
    ngx_str_t                   version;    /* MCP-Protocol-Version */
    ngx_str_t                   peer;       /* that answered */
    ngx_msec_t                  start;      /* when the request began */
    uint32_t                    slot;       /* the peer's, if it is known */
    uint32_t                    epoch;      /* ... then */
    u_char                      owner[NGX_MCP_OWNER_LEN];
                                            /* digest, zeroes: none */
    unsigned                    credentials:1;
                                            /* Authorization, not remembered */
    unsigned                    proof:1;    /* JSON or an event stream */
    unsigned                    repin:1;    /* the peer that answered counts */
    unsigned                    current:1;  /* "epoch" is not known: as now */
    uint32_t                    life;       /* of the session, then */
    ngx_mcp_session_ref_t       ref;        /* of the session learned */
} ngx_mcp_client_t;


/* A keepalive to be sent.  The texts are good until the next lease is taken. */

typedef struct {
    ngx_mcp_policy_t           *policy;
    ngx_mcp_session_ref_t       ref;        /* slot 0: a TCP connect only, if
                                             * it is not modern */
    uint64_t                    until;      /* names this lease */
    uint64_t                    call;       /* names the place at the peer,
                                             * 0: none */
    uint64_t                    start;
    uint32_t                    peer;
    uint32_t                    epoch;
    ngx_uint_t                  method;     /* NGX_MCP_METHOD_TOOLS or _PING */
    ngx_str_t                   peer_name;
    ngx_str_t                   id;
    ngx_str_t                   version;
    ngx_str_t                   endpoint;
    ngx_str_t                   headers;
    unsigned                    attempt:1;
    unsigned                    modern:1;   /* of a peer without sessions */
} ngx_mcp_lease_t;


/* What the search for due sessions met. */

typedef struct {
    uint64_t                    wake;       /* when to look again */
    uint64_t                    from;       /* where one peer's search goes on,
                                             * 0: from the start */
    ngx_mcp_policy_t           *credentials;
                                            /* first session of this upstream
                                             * skipped for want of them */
    ngx_mcp_policy_t           *behind;     /* rate too low for the peer */
    size_t                      peer_len;
    u_char                      peer_name[NGX_MCP_PEER_NAME_MAX];
} ngx_mcp_due_t;


/* How a lease is given back. */

typedef struct {
    ngx_uint_t                  stop;       /* NGX_MCP_STOP_*, 0: go on */
    ngx_msec_t                  delay;      /* ms to the next one at least */
    ngx_msec_t                  attempt_delay;
                                            /* ... attempt, if it never ran */
    unsigned                    proof:1;    /* the session was answered */
    unsigned                    skipped:1;  /* for want of connections */
    unsigned                    unused:1;   /* it never ran: still due */
    unsigned                    broken:1;   /* counts to STOP_BROKEN */
    unsigned                    suspect:1;  /* a second one stops */
    unsigned                    renamed:1;  /* the lease's version is one that
                                             * the server asked for */
} ngx_mcp_release_t;


/*
 * Requests in flight and open streams hold their session by a lease that is
 * only a time, renewed while they last, so that nothing is left of a worker
 * that dies.  A request gives it back if no other has taken one since; what is
 * left otherwise is shorter than the time to the next keepalive.
 */

/*
 * A request with session "id" begins: finds it and takes a request lease for
 * "hold" ms (0: none).  NGX_DECLINED: the id is not known.
 */
ngx_int_t ngx_mcp_session_begin(ngx_mcp_policy_t *policy, ngx_str_t *id,
    ngx_msec_t hold, ngx_mcp_session_pin_t *pin);

/* A request with the lease pin->held ends. */
void ngx_mcp_session_end(ngx_mcp_policy_t *policy, ngx_mcp_session_pin_t *pin);

/* A notification stream asked for at "start" opens: takes a stream lease. */
void ngx_mcp_session_stream(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref, ngx_msec_t start, ngx_msec_t hold);

/* Renews a lease of kind "use" for "hold" ms. */
void ngx_mcp_session_renew(ngx_mcp_policy_t *policy,
    ngx_mcp_session_pin_t *pin, ngx_uint_t use, ngx_msec_t hold);

/*
 * Evicts up to NGX_MCP_LOCK_NODES sessions, to make room for records of another
 * kind.  NGX_DECLINED: there is none to evict.
 */
ngx_int_t ngx_mcp_session_make_room(ngx_mcp_zone_t *zone);

/*
 * After a new configuration: looks at the next slots and gives their sessions
 * the times of the new policies.  NGX_AGAIN: there are more; NGX_DONE.
 */
ngx_int_t ngx_mcp_session_revisit(ngx_mcp_zone_t *zone);

/*
 * A peer issued "id" (adopted: it confirmed an id we had not heard of).  Makes
 * the session, evicting others if need be; NGX_ERROR: no room, goes untracked.
 */
ngx_int_t ngx_mcp_session_learn(ngx_mcp_policy_t *policy, ngx_str_t *id,
    ngx_mcp_client_t *client, ngx_uint_t adopted);

/* A client's POST on the session was answered 2xx. */
void ngx_mcp_session_success(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref, ngx_mcp_client_t *client);

/*
 * The session ends by its client's DELETE or was replaced, if "owner" is its
 * owner; with "lost" it is not forgotten but lost.  What is said of a life
 * before, as "pin" found it, changes nothing.  NGX_DECLINED: it is another's.
 */
ngx_int_t ngx_mcp_session_forget(ngx_mcp_policy_t *policy,
    ngx_mcp_session_pin_t *pin, u_char *owner, ngx_uint_t lost);

/* The session's peer is no more, says the balancer: it is lost. */
void ngx_mcp_session_strand(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref);

/*
 * True if the session is lost and "owner" its owner: the request is to be
 * answered by us.
 */
ngx_uint_t ngx_mcp_session_refuse(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref, u_char *owner);

/* Stops the session's keepalives for "stop", if "owner" is its owner. */
void ngx_mcp_session_stop(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    u_char *owner, ngx_uint_t stop);

/* A request whose id is not valid, or that found no room, passed through. */
void ngx_mcp_session_untracked(ngx_mcp_policy_t *policy);

/*
 * Leases the next due session; forgets those that expired.  "peer" (0: none)
 * has a place free again: of those put off for want of one, its own come at
 * once. NGX_OK: "lease" is filled; NGX_AGAIN: NGX_MCP_LOCK_NODES sessions were
 * looked at, call again; NGX_DONE: nothing is due before due->wake.
 */
ngx_int_t ngx_mcp_session_lease(ngx_mcp_zone_t *zone, uint32_t peer,
    ngx_mcp_lease_t *lease, ngx_mcp_due_t *due);

/*
 * Leases the attempt on the next degraded or parked peer of the upstream that
 * may be tried: on its most recently used session, else as clients without
 * sessions ask it, else lease->ref.slot is 0.  Or a keepalive to one that is to
 * be asked at once, or whose modern keepalive is due.
 * NGX_AGAIN: NGX_MCP_LOCK_NODES were looked at, call again; NGX_DONE: none may;
 * due->wake is lowered to the time of the next.
 */
ngx_int_t ngx_mcp_session_lease_attempt(ngx_mcp_policy_t *policy,
    ngx_mcp_lease_t *lease, ngx_mcp_due_t *due);

/*
 * Renews a lease, and the place and the attempt that go with it, for another
 * "timeout" ms.  NGX_DECLINED: it is not ours any more; NGX_BUSY: a request of
 * the client is in flight.
 */
ngx_int_t ngx_mcp_session_extend(ngx_mcp_lease_t *lease, ngx_msec_t timeout);

/*
 * Gives a lease back.  What "rel" says of the session does not count if its
 * client had a success since the lease began: that is the better witness.  An
 * attempt that never ran is due again after the delay.
 */
void ngx_mcp_session_release(ngx_mcp_lease_t *lease, ngx_mcp_release_t *rel);

/* Brings the zone in order after its lock's holder died; lock held. */
ngx_uint_t ngx_mcp_session_rebuild(ngx_mcp_zone_t *zone);


#endif /* _NGX_MCP_SESSION_H_INCLUDED_ */
