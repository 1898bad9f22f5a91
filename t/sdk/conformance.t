#!/usr/bin/perl

# The conformance suite finds the same through nginx as without it.

use lib 't/lib';
use MCP::Test;
use MCP::Sdk ();
use MCP::SdkClient ();
use MCP::SdkTest qw(skip_unless);

my @names = ('everything', 'v1 sessions', 'v2 dual');

skip_unless(@names);
plan(skip_all => MCP::SdkClient::missing()) if MCP::SdkClient::missing();

for my $name (@names) {
    my $server = MCP::Sdk->new($name)->start;
    my $nginx = nginx(
        servers => [$server->addr],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms; keepalive 4;');
    my @direct = MCP::SdkClient::conform('http://' . $server->addr . '/mcp');
    my @front = MCP::SdkClient::conform('http://127.0.0.1:' . $nginx->port
                                        . '/mcp');
    my $passed = grep { /\xe2\x9c\x93/ } @direct;

    cmp_ok(scalar @direct, '>=', 20, "$name: the suite runs");
    is_deeply(\@front, \@direct, "$name: the same list through nginx");
    diag("$name: $passed of " . @direct . ' passed, direct and through nginx');
    $nginx->stop;
    $server->kill;
}

finish();
