
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"
#include "mcp_hash.h"


#define SPACE  0x0706050403020100ULL


int
main(void)
{
    unsigned        i, j, same;
    uint64_t        base, got[128];
    unsigned char   key[MCP_HASH_KEY_LEN], text[64], *edge;

    for (i = 0; i < MCP_HASH_KEY_LEN; i++) {
        key[i] = i;
    }

    for (i = 0; i < sizeof(text); i++) {
        text[i] = 8 + i;
    }

    /* the vectors of its authors, for the bytes 00 01 02 ... */

    ok(mcp_hash(key, SPACE, text, 0) == 0x93f5f5799a932462ULL, "8 bytes");
    ok(mcp_hash(key, SPACE, text, 1) == 0x9e0082df0ba9e4b0ULL, "9 bytes");
    ok(mcp_hash(key, SPACE, text, 7) == 0xa129ca6149be45e5ULL, "15 bytes");
    ok(mcp_hash(key, SPACE, text, 8) == 0x3f2acc7f57c29bdbULL, "16 bytes");

    /* nothing past the end is read; each length is another hash */

    for (i = 0; i < 64; i++) {
        edge = tap_edge(text, i);
        got[i] = mcp_hash(key, SPACE, edge, i);
        got[64 + i] = mcp_hash(key, SPACE + 1, edge, i);
    }

    same = 0;

    for (i = 0; i < 128; i++) {
        for (j = 0; j < i; j++) {
            same += (got[i] == got[j]);
        }
    }

    is_int(same, 0, "lengths and spaces differ");

    /* every bit of text and key counts */

    base = mcp_hash(key, SPACE, text, 36);
    same = 0;

    for (i = 0; i < 36 * 8; i++) {
        text[i / 8] ^= 1 << (i % 8);
        same += (mcp_hash(key, SPACE, text, 36) == base);
        text[i / 8] ^= 1 << (i % 8);
    }

    for (i = 0; i < MCP_HASH_KEY_LEN * 8; i++) {
        key[i / 8] ^= 1 << (i % 8);
        same += (mcp_hash(key, SPACE, text, 36) == base);
        key[i / 8] ^= 1 << (i % 8);
    }

    is_int(same, 0, "each bit counts");

    return tap_done();
}
