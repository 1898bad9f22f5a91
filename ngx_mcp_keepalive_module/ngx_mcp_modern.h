
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Peers of the revisions without sessions (2026-07-28 and later): where and how
 * the last client's request succeeded at a peer, and the keepalive that is made
 * of it.  One record a peer.
 */


#ifndef _NGX_MCP_MODERN_H_INCLUDED_
#define _NGX_MCP_MODERN_H_INCLUDED_


#include "ngx_mcp_record.h"


/*
 * A client's POST of such a revision was answered by peer "slot" as MCP does:
 * proof, and the keepalive is made after it.  Takes the lock.  Without room in
 * the zone only the proof counts.
 */
void ngx_mcp_modern_success(ngx_mcp_policy_t *policy, uint32_t slot,
    ngx_mcp_client_t *client);


/* All below: lock held. */

/*
 * When the peer's next keepalive is due, in ms; (uint64_t) -1: never.  Forgets
 * what no client has used for long.
 */
uint64_t ngx_mcp_modern_due(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, uint64_t now);

/* True if the peer can be asked now, were it due. */
ngx_uint_t ngx_mcp_modern_usable(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_slot_t *peer, uint64_t now);

/*
 * Leases the keepalive of a peer that is usable: fills in what "lease" does not
 * hold yet, with "texts" for its texts.
 */
void ngx_mcp_modern_take(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_lease_t *lease, ngx_mcp_lease_texts_t *texts);

/* Counts once that the keepalive had to wait, for want of what "count" says. */
void ngx_mcp_modern_defer(ngx_mcp_policy_t *policy, ngx_mcp_peer_slot_t *peer,
    ngx_mcp_count_t count);

/*
 * As ngx_mcp_session_extend() and ngx_mcp_session_release(), for their part of
 * a modern lease; "until" is when it ends.
 */
ngx_int_t ngx_mcp_modern_extend(ngx_mcp_lease_t *lease, uint64_t until);
void ngx_mcp_modern_release(ngx_mcp_lease_t *lease, ngx_mcp_release_t *rel);

/* Forgets the record of a peer, if there is one, and wipes its texts. */
void ngx_mcp_modern_forget(ngx_mcp_zone_t *zone, ngx_mcp_peer_slot_t *peer);

/* After a new configuration: forgets slot "index" if its upstream is gone. */
void ngx_mcp_modern_revisit(ngx_mcp_zone_t *zone, uint32_t index);


#endif /* _NGX_MCP_MODERN_H_INCLUDED_ */
