#!/usr/bin/perl

# Streams take up all connections of the workers, again and again: keepalives
# are skipped and counted, no server pays for it, and afterwards all is well.
# (Descriptors and ports: t/78_shortage.t.)

use lib 't/lib';
use MCP::Soak;
use MCP::Test;

my @fakes = fakes(2);
my $nginx = nginx(
    fakes => \@fakes, workers => 1, connections => 128,
    allow => [qr/\[alert\].* worker_connections are not enough/],
    upstream => 'mcp_keepalive zone=mcp:1m interval=200ms timeout=500ms;'
              . ' keepalive 4;');
my @clients = clients($nginx, 90);

each_client(\@clients, [qw(initialize initialized call)], width => 8);
pause_ms(1000);

my $memory = memory_kb($nginx);

for my $turn (1 .. 20) {
    my @x = map { $_->start_get } @clients;

    MCP::Exchange::drive(\@x, timeout => 1.5);
    $_->abort for @x;
    wait_for(sub { $nginx->connections < 10 }, 5);
    $memory = memory_kb($nginx) if $turn == 5;
}

my $status = $nginx->upstream;

cmp_ok($status->{skipped}{connections}, '>', 0,
       "keepalives were skipped: $status->{skipped}{connections}");
is(join(' ', map { "$_->{state} $_->{epoch} $_->{charges}" }
              @{ $status->{peers} }), 'connected 0 0 connected 0 0',
   'no server was marked');
is($status->{streams}{open} // 0, 0, 'no stream is left');
all_well('after', \@fakes, @clients[0 .. 29]);
asked_again('after', \@fakes, @clients[0 .. 29]);
no_growth($memory, memory_kb($nginx), 'after');
finish();
