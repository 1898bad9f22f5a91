#!/usr/bin/perl

# A real server, the official server-everything: its answers to keepalives, and
# a session of it through nginx.  The many others: make sdk.

use lib 't/lib';
use MCP::Test;
use MCP::SdkTest qw(answers life skip_unless);

skip_unless('everything');

answers('everything');
life('everything');

finish();
