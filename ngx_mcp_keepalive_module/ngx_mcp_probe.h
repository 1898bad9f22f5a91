
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The prober: asks one leased session or peer, judges the answer, and does to
 * both what the verdict says.
 */


#ifndef _NGX_MCP_PROBE_H_INCLUDED_
#define _NGX_MCP_PROBE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_session.h"


/* Something that waited for the end of a probe at "peer" may go on. */
typedef void (*ngx_mcp_probe_next_pt)(ngx_mcp_policy_t *policy, uint32_t peer);


/*
 * Asks what the lease is for; the lease is given back in any case.  "next" is
 * called after an end that was the peer's, never from within this call.
 */
void ngx_mcp_probe_start(ngx_mcp_lease_t *lease, ngx_mcp_probe_next_pt next);


#endif /* _NGX_MCP_PROBE_H_INCLUDED_ */
