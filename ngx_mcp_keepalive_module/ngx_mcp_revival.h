
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What is kept of a session so that it can be started again on the server's
 * side, and the lease by which one worker of all does so.  Its client goes on
 * with the id it has; the server's is another from then on.
 */


#ifndef _NGX_MCP_REVIVAL_H_INCLUDED_
#define _NGX_MCP_REVIVAL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "mcp/mcp_start.h"
#include "ngx_mcp_record.h"


/* One request's view of a revival, and the lease if it is the one to do it. */

typedef struct {
    uint32_t                    life;       /* revivals when it began to wait */
    uint32_t                    failed;     /* ... that failed */
    uint64_t                    until;      /* names the lease */
    ngx_str_t                   params;     /* good until the next lease */
    size_t                      version_len;
    u_char                      version[NGX_MCP_VERSION_MAX];
} ngx_mcp_revival_t;


/*
 * Keeps how the session began: the params of its "initialize" and the answer.
 * Makes room by evicting others.  Takes the lock.
 */
void ngx_mcp_revival_keep(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_str_t *params, mcp_start_answer_t *answer);

/*
 * May the session be revived for "owner", or was it since "pin" was taken?
 * Notes in "rev" from where on.  Takes the lock.
 */
ngx_uint_t ngx_mcp_revival_possible(ngx_mcp_policy_t *policy,
    ngx_mcp_session_pin_t *pin, u_char *owner, ngx_mcp_revival_t *rev);

/*
 * What a waiting request is to do.  NGX_OK: start it, it is leased for "hold"
 * ms; NGX_AGAIN: another one does, or "hold" is 0, ask again; NGX_DONE: the
 * session lives; NGX_DECLINED: it failed since, or may not be tried any more.
 * Takes the lock.
 */
ngx_int_t ngx_mcp_revival_lease(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref, ngx_mcp_revival_t *rev, ngx_msec_t hold);

/*
 * Ends a lease.  done: the session lives on "peer" under the server's "id";
 * returns how many were revived there since that was told last, 0: not to be
 * told now.  fail: it could not be started ("counted"), or not be tried.  Both
 * take the lock.
 */
ngx_uint_t ngx_mcp_revival_done(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref, ngx_mcp_revival_t *rev, ngx_str_t *id,
    ngx_str_t *peer);
void ngx_mcp_revival_fail(ngx_mcp_policy_t *policy, ngx_mcp_session_ref_t *ref,
    ngx_mcp_revival_t *rev, ngx_uint_t counted);

/*
 * The id the server knows a revived session by, to "buf" of NGX_MCP_ID_MAX
 * bytes; returns its length, 0: the client's own.  Takes the lock.
 */
size_t ngx_mcp_revival_alias(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref, u_char *buf);

/*
 * A revived session's notification stream is asked for.  NGX_OK: the first in
 * this life, events from before do not count; NGX_DONE: ... and its client is
 * to be told that the tools may be others; NGX_DECLINED: not the first.  Takes
 * the lock.
 */
ngx_int_t ngx_mcp_revival_stream(ngx_mcp_policy_t *policy,
    ngx_mcp_session_ref_t *ref, ngx_uint_t opened);


/*
 * Lock held: how often the session was revived; frees what is kept of it; it
 * has proven itself.
 */
uint32_t ngx_mcp_revival_life(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s);
void ngx_mcp_revival_free(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s);
void ngx_mcp_revival_proof(ngx_mcp_zone_t *zone, ngx_mcp_session_slot_t *s);


#endif /* _NGX_MCP_REVIVAL_H_INCLUDED_ */
