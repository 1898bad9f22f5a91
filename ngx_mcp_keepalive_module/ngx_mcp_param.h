
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The "name=value" parameters of the directives.
 */


#ifndef _NGX_MCP_PARAM_H_INCLUDED_
#define _NGX_MCP_PARAM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_conf.h"


/* One "name=value" parameter; "set" returns what is wrong with a value. */

typedef struct ngx_mcp_param_s  ngx_mcp_param_t;

struct ngx_mcp_param_s {
    ngx_str_t       name;
    const char   *(*set)(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf,
                         ngx_str_t *value, const ngx_mcp_param_t *param);
    size_t          offset;     /* of the field in the configuration */
    ngx_int_t       min;        /* of a time, in ms */
    ngx_uint_t      off;        /* a time may be "off" */
};


extern const ngx_mcp_param_t  ngx_mcp_keepalive_params[];
extern const ngx_mcp_param_t  ngx_mcp_reconnect_params[];
extern const ngx_mcp_param_t  ngx_mcp_pin_params[];
extern const ngx_mcp_param_t  ngx_mcp_revive_params[];


/*
 * Takes the arguments of a directive from number "first" on.  An unknown, a
 * doubled or a wrong one is logged with the directive's name: NGX_CONF_ERROR.
 */
char *ngx_mcp_param_parse(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf,
    const ngx_mcp_param_t *params, ngx_uint_t first);


#endif /* _NGX_MCP_PARAM_H_INCLUDED_ */
