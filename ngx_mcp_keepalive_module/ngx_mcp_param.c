
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_param.h"
#include "ngx_mcp_peer.h"
#include "ngx_mcp_session.h"


/* No timer is shorter, in ms. */
#define NGX_MCP_TIME_MIN  100


static const ngx_mcp_param_t *ngx_mcp_param_find(
    const ngx_mcp_param_t *params, ngx_str_t *arg, ngx_str_t *value);
static const char *ngx_mcp_param_zone(ngx_conf_t *cf,
    ngx_mcp_srv_conf_t *conf, ngx_str_t *value, const ngx_mcp_param_t *param);
static const char *ngx_mcp_param_msec(ngx_conf_t *cf,
    ngx_mcp_srv_conf_t *conf, ngx_str_t *value, const ngx_mcp_param_t *param);
static const char *ngx_mcp_param_method(ngx_conf_t *cf,
    ngx_mcp_srv_conf_t *conf, ngx_str_t *value, const ngx_mcp_param_t *param);
static const char *ngx_mcp_param_number(ngx_conf_t *cf,
    ngx_mcp_srv_conf_t *conf, ngx_str_t *value, const ngx_mcp_param_t *param);
static const char *ngx_mcp_param_jitter(ngx_conf_t *cf,
    ngx_mcp_srv_conf_t *conf, ngx_str_t *value, const ngx_mcp_param_t *param);
static const char *ngx_mcp_param_failover(ngx_conf_t *cf,
    ngx_mcp_srv_conf_t *conf, ngx_str_t *value, const ngx_mcp_param_t *param);


#define ngx_mcp_policy(field)  offsetof(ngx_mcp_srv_conf_t, policy.field)


const ngx_mcp_param_t  ngx_mcp_keepalive_params[] = {
    { ngx_string("zone="), ngx_mcp_param_zone, 0, 0, 0 },
    { ngx_string("interval="), ngx_mcp_param_msec,
      ngx_mcp_policy(interval), NGX_MCP_TIME_MIN, 1 },
    { ngx_string("timeout="), ngx_mcp_param_msec,
      ngx_mcp_policy(timeout), NGX_MCP_TIME_MIN, 0 },
    { ngx_string("method="), ngx_mcp_param_method, 0, 0, 0 },
    { ngx_string("failures="), ngx_mcp_param_number,
      ngx_mcp_policy(health.failures), 0, 0 },
    { ngx_string("max_idle="), ngx_mcp_param_msec,
      ngx_mcp_policy(max_idle), 0, 0 },
    { ngx_string("jitter="), ngx_mcp_param_jitter, 0, 0, 0 },
    { ngx_string("rate="), ngx_mcp_param_number, ngx_mcp_policy(rate), 0, 0 },
    { ngx_null_string, NULL, 0, 0, 0 }
};

const ngx_mcp_param_t  ngx_mcp_reconnect_params[] = {
    { ngx_string("budget="), ngx_mcp_param_number,
      ngx_mcp_policy(health.budget), 0, 0 },
    { ngx_string("initial="), ngx_mcp_param_number,
      ngx_mcp_policy(health.initial), 0, 0 },
    { ngx_string("backoff="), ngx_mcp_param_msec,
      ngx_mcp_policy(health.backoff_ms), NGX_MCP_TIME_MIN, 0 },
    { ngx_string("backoff_max="), ngx_mcp_param_msec,
      ngx_mcp_policy(health.backoff_max_ms), NGX_MCP_TIME_MIN, 0 },
    { ngx_string("park="), ngx_mcp_param_msec,
      ngx_mcp_policy(health.park_ms), NGX_MCP_TIME_MIN, 0 },
    { ngx_string("park_max="), ngx_mcp_param_msec,
      ngx_mcp_policy(health.park_max_ms), NGX_MCP_TIME_MIN, 0 },
    { ngx_string("drain="), ngx_mcp_param_msec,
      offsetof(ngx_mcp_srv_conf_t, drain), NGX_MCP_TIME_MIN, 1 },
    { ngx_null_string, NULL, 0, 0, 0 }
};

const ngx_mcp_param_t  ngx_mcp_pin_params[] = {
    { ngx_string("failover="), ngx_mcp_param_failover, 0, 0, 0 },
    { ngx_null_string, NULL, 0, 0, 0 }
};


const ngx_mcp_param_t  ngx_mcp_revive_params[] = {
    { ngx_string("limit="), ngx_mcp_param_number,
      offsetof(ngx_mcp_srv_conf_t, revive_limit), 0, 0 },
    { ngx_null_string, NULL, 0, 0, 0 }
};


char *
ngx_mcp_param_parse(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf,
    const ngx_mcp_param_t *params, ngx_uint_t first)
{
    uint64_t                seen, bit;
    ngx_str_t              *arg, *directive, value, name;
    ngx_uint_t              i;
    const char             *wrong;
    const ngx_mcp_param_t  *param;

    seen = 0;
    arg = cf->args->elts;
    directive = &arg[0];

    for (i = first; i < cf->args->nelts; i++) {

        param = ngx_mcp_param_find(params, &arg[i], &value);

        if (param == NULL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\" in \"%V\" directive",
                               &arg[i], directive);
            return NGX_CONF_ERROR;
        }

        name.data = param->name.data;
        name.len = param->name.len - 1;

        bit = (uint64_t) 1 << (param - params);

        if (seen & bit) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate parameter \"%V\" in \"%V\" directive",
                               &name, directive);
            return NGX_CONF_ERROR;
        }

        seen |= bit;

        wrong = param->set(cf, conf, &value, param);

        if (wrong) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" of parameter \"%V\" "
                               "in \"%V\" directive, %s",
                               &value, &name, directive, wrong);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static const ngx_mcp_param_t *
ngx_mcp_param_find(const ngx_mcp_param_t *params, ngx_str_t *arg,
    ngx_str_t *value)
{
    const ngx_mcp_param_t  *p;

    for (p = params; p->set; p++) {

        if (arg->len >= p->name.len
            && ngx_strncmp(arg->data, p->name.data, p->name.len) == 0)
        {
            value->data = arg->data + p->name.len;
            value->len = arg->len - p->name.len;
            return p;
        }
    }

    return NULL;
}


static const char *
ngx_mcp_param_zone(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf, ngx_str_t *value,
    const ngx_mcp_param_t *param)
{
    u_char                *p;
    ssize_t                size;
    ngx_str_t              name, s;
    ngx_uint_t             i;
    ngx_mcp_zone_t        *zone, **zones;
    ngx_mcp_main_conf_t   *mcf;

    size = 0;
    name = *value;

    p = (u_char *) ngx_strlchr(value->data, value->data + value->len, ':');

    if (p) {
        name.len = p - value->data;

        s.data = p + 1;
        s.len = value->data + value->len - s.data;

        size = ngx_parse_size(&s);

        if (size == NGX_ERROR) {
            return "the size must be a number of bytes, with \"k\" or \"m\"";
        }

        if (size < NGX_MCP_ZONE_MIN) {
            return "the size must be at least 64k";
        }
    }

    if (name.len == 0) {
        return "it must be a name, or a name and a size as \"name:1m\"";
    }

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_mcp_keepalive_module);

    zone = ngx_mcp_zone_add(cf, &name, size, &ngx_mcp_keepalive_module,
                            ngx_mcp_session_rebuild);
    if (zone == NULL) {
        return "the zone cannot be added";
    }

    conf->policy.zone = zone;
    zones = mcf->zones.elts;

    for (i = 0; i < mcf->zones.nelts; i++) {
        if (zones[i] == zone) {
            return NULL;
        }
    }

    zones = ngx_array_push(&mcf->zones);
    if (zones == NULL) {
        return "there is no memory";
    }

    *zones = zone;

    return NULL;
}


static const char *
ngx_mcp_param_msec(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf, ngx_str_t *value,
    const ngx_mcp_param_t *param)
{
    ngx_int_t    ms;
    ngx_msec_t  *field;

    field = (ngx_msec_t *) ((char *) conf + param->offset);

    if (param->off && value->len == 3
        && ngx_strncmp(value->data, "off", 3) == 0)
    {
        *field = 0;
        return NULL;
    }

    ms = ngx_parse_time(value, 0);

    if (ms == NGX_ERROR || ms < param->min) {
        return param->off ? "it must be \"off\" or a time of at least 100ms"
               : param->min ? "it must be a time of at least 100ms"
               : "it must be a time, 0 for no limit";
    }

    *field = ms;

    return NULL;
}


char *
ngx_mcp_param_time(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_int_t    ms;
    ngx_str_t   *value;
    ngx_msec_t  *field;

    field = (ngx_msec_t *) ((char *) conf + cmd->offset);

    if (*field != NGX_CONF_UNSET_MSEC) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cmd->post && ngx_strcmp(value[1].data, "off") == 0) {
        *field = 0;
        return NGX_CONF_OK;
    }

    ms = ngx_parse_time(&value[1], 0);

    if (ms == NGX_ERROR || ms < NGX_MCP_TIME_MIN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it must "
                           "be %sa time of at least 100ms", &value[1],
                           &cmd->name, cmd->post ? "\"off\" or " : "");
        return NGX_CONF_ERROR;
    }

    *field = ms;

    return NGX_CONF_OK;
}


static const char *
ngx_mcp_param_method(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf, ngx_str_t *value,
    const ngx_mcp_param_t *param)
{
    if (ngx_strcmp(value->data, "tools/list") == 0) {
        conf->policy.method = NGX_MCP_METHOD_TOOLS;

    } else if (ngx_strcmp(value->data, "ping") == 0) {
        conf->policy.method = NGX_MCP_METHOD_PING;

    } else if (ngx_strcmp(value->data, "auto") == 0) {
        conf->policy.method = NGX_MCP_METHOD_AUTO;

    } else {
        return "it must be \"tools/list\", \"ping\" or \"auto\"";
    }

    return NULL;
}


static const char *
ngx_mcp_param_number(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf, ngx_str_t *value,
    const ngx_mcp_param_t *param)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data, value->len);

    if (n == NGX_ERROR || n < 1 || n > 1000000) {
        return "it must be a number from 1 to 1000000";
    }

    *(uint32_t *) ((char *) conf + param->offset) = n;

    return NULL;
}


static const char *
ngx_mcp_param_jitter(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf, ngx_str_t *value,
    const ngx_mcp_param_t *param)
{
    ngx_int_t  n;

    if (value->len < 2 || value->data[value->len - 1] != '%') {
        return "it must be a share as \"20%\"";
    }

    n = ngx_atoi(value->data, value->len - 1);

    if (n == NGX_ERROR || n > 90) {
        return "it must be from \"0%\" to \"90%\"";
    }

    conf->policy.health.jitter = n;

    return NULL;
}


static const char *
ngx_mcp_param_failover(ngx_conf_t *cf, ngx_mcp_srv_conf_t *conf,
    ngx_str_t *value, const ngx_mcp_param_t *param)
{
    if (ngx_strcmp(value->data, "refused") == 0) {
        conf->failover = NGX_MCP_FAILOVER_REFUSED;

    } else if (ngx_strcmp(value->data, "parked") == 0) {
        conf->failover = NGX_MCP_FAILOVER_PARKED;

    } else {
        return "it must be \"refused\" or \"parked\"";
    }

    return NULL;
}
