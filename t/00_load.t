#!/usr/bin/perl

# The module loads, says what its zone holds, and does nothing where no
# directive asks for it.

use lib 't/lib';
use MCP::Test;

my $fake = fake();


# ---- loaded, unused ----

my ($passed, $said) = MCP::Nginx->config_test(fakes => [$fake], status => 0);

ok($passed, 'nginx -t with the module loaded') or diag($said);
unlike($said, qr/\[\w+\].*mcp/, 'which has nothing to say');

my $plain = nginx(fakes => [$fake], level => 'debug');
my $c = client($plain);

$c->open_session(1);
is($c->call->server, 's1', 'requests pass');
is_deeply($plain->status->{upstreams}, {}, 'status: no upstreams');
is_deeply($plain->status->{zones}, {}, 'status: no zones');
is(scalar($plain->log_lines(qr/\[(?:notice|warn|error)\].*mcp_/)), 0,
   'no word in the log');

$plain->stop;


# ---- with a zone ----

($passed, $said) = MCP::Nginx->config_test(
    fakes => [$fake], upstream => 'mcp_keepalive zone=mcp:1m;');

ok($passed, 'nginx -t with mcp_keepalive') or diag($said);

my $nginx = nginx(fakes => [$fake], workers => 2,
                  upstream => 'mcp_keepalive zone=mcp:1m;');

my @notice = $nginx->log_lines(qr/\[notice\].*\bmcp\b.*\bsessions?\b/);

is(scalar @notice, 1, 'one notice about the zone');
like($notice[0] // '', qr/"mcp".*\b\d{3,}\b/, 'names it and a number');

my $zone = $nginx->status->{zones}{mcp};

is($zone->{size}, 1_048_576, 'size of the zone');
cmp_ok($zone->{capacity}, '>=', 4000, 'capacity');
like($notice[0] // '', qr/\b$zone->{capacity}\b/,
     'the notice has the capacity of the status');

finish();
