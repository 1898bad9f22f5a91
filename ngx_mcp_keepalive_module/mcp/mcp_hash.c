
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "mcp_hash.h"


#define hash_turn(x, n)  (((x) << (n)) | ((x) >> (64 - (n))))


static uint64_t mcp_hash_word(const unsigned char *p);
static void mcp_hash_block(uint64_t *v, uint64_t word);
static void mcp_hash_rounds(uint64_t *v, unsigned n);


uint64_t
mcp_hash(const unsigned char *key, uint64_t space, const void *data,
    size_t len)
{
    size_t                n;
    uint64_t              k0, k1, word, v[4];
    const unsigned char  *p;

    p = data;

    k0 = mcp_hash_word(key);
    k1 = mcp_hash_word(key + 8);

    v[0] = k0 ^ 0x736f6d6570736575ULL;
    v[1] = k1 ^ 0x646f72616e646f6dULL;
    v[2] = k0 ^ 0x6c7967656e657261ULL;
    v[3] = k1 ^ 0x7465646279746573ULL;

    mcp_hash_block(v, space);

    for (n = len; n >= 8; n -= 8) {
        mcp_hash_block(v, mcp_hash_word(p));
        p += 8;
    }

    word = (uint64_t) (len + 8) << 56;

    while (n != 0) {
        n--;
        word |= (uint64_t) p[n] << (8 * n);
    }

    mcp_hash_block(v, word);

    v[2] ^= 0xff;
    mcp_hash_rounds(v, 4);

    return v[0] ^ v[1] ^ v[2] ^ v[3];
}


static uint64_t
mcp_hash_word(const unsigned char *p)
{
    return (uint64_t) p[0] | (uint64_t) p[1] << 8 | (uint64_t) p[2] << 16
           | (uint64_t) p[3] << 24 | (uint64_t) p[4] << 32
           | (uint64_t) p[5] << 40 | (uint64_t) p[6] << 48
           | (uint64_t) p[7] << 56;
}


static void
mcp_hash_block(uint64_t *v, uint64_t word)
{
    v[3] ^= word;
    mcp_hash_rounds(v, 2);
    v[0] ^= word;
}


static void
mcp_hash_rounds(uint64_t *v, unsigned n)
{
    for ( /* void */ ; n != 0; n--) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = hash_turn(v[1], 13) ^ v[0];
        v[3] = hash_turn(v[3], 16) ^ v[2];
        v[0] = hash_turn(v[0], 32);

        v[2] += v[1];
        v[0] += v[3];
        v[1] = hash_turn(v[1], 17) ^ v[2];
        v[3] = hash_turn(v[3], 21) ^ v[0];
        v[2] = hash_turn(v[2], 32);
    }
}
