#!/usr/bin/perl

# A peer is marked: its notification streams end, spread over drain; those of
# other peers stay, and so do running calls.
#
# MCP_STREAMS: how many notification streams (200).  MCP_LONG=1: 1,000, a drain
# of 5 s, calls of 10 s.

use lib 't/lib';
use MCP::Test;

my $long = $ENV{MCP_LONG} ? 1 : 0;
my $streams = $ENV{MCP_STREAMS}
              // ($long ? 1000 : $ENV{MCP_VALGRIND} ? 40 : 200);
my $drain = $long ? 5000 : 2000;
my $call_ms = $long ? 10_000 : 4500;
my ($marked, $other) = my @fakes = fakes(2);
my $nginx = nginx(
    fakes => \@fakes, workers => 2, connections => 4096,
    upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
              . " mcp_reconnect drain=${drain}ms backoff=10s;",
    location => 'mcp_heartbeat 300ms;');
my @clients = clients($nginx, 2 * $streams);
my %server;

my @steps = qw(initialize initialized call);
my @done = each_client(\@clients, \@steps);

push @{ $server{ $done[$_ * @steps]->header('X-Fake') } }, $clients[$_]
    for 0 .. $#clients;

my ($mine, $others) = map { $server{ $_->{name} } // [] } @fakes;

cmp_ok(scalar @$mine, '>', $streams / 2, 'sessions on the peer to be marked');
cmp_ok(scalar @$others, '>', 0, 'and on another');

my $head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
           . "Transfer-Encoding: chunked\r\n\r\n";
my $event = "data: {\"done\":1}\n\n";

$marked->rule(when => { rpc => 'tools/call' }, do => {
    raw => [$head, [$call_ms], sprintf("%x\r\n%s\r\n0\r\n\r\n", length $event,
                                   $event)] });

my @mine = map { $_->start_get } @$mine;
my @others = map { $_->start_get } @$others[0 .. 9];
my @calls = map { $_->start_call } @$mine[0 .. 4];
my @all = (@mine, @others, @calls);

MCP::Exchange::drive(\@all, timeout => 20, until => sub {
    return !grep { !$_->{http}->has_head } @all;
});

my $from = now_ms();

$marked->refuse;
eventually(sub { $nginx->peer($marked)->{state} eq 'degraded' }, 'marked');
MCP::Exchange::drive([@mine, @calls], timeout => 20);

my @bad = grep { $_->{failed}
                 || $_->body !~ /^(?::\n\n)+retry: \d+\n\n$/ } @mine;

is(scalar @bad, 0, 'every client gets a retry and a proper end')
    or diag(map { ($_->{failed} // '') . ' ' . $_->body . "\n" }
                @bad[0 .. ($#bad < 3 ? $#bad : 3)]);

my @back = sort { $a <=> $b }
           map { $_->body =~ /retry: (\d+)/ ? $_->{ended} + $1 : 0 } @mine;
my $time = $back[-1] - $back[0] + 1;
my $part = $long ? 1000 : $time / 5;
my $share = @back * $part / $time;
my @count = (0) x (1 + ($time - 1) / $part);

$count[($_ - $back[0]) / $part]++ for @back;

my ($most) = sort { $b <=> $a } @count;

cmp_ok($most, '<=', 1.5 * $share + 3 * sqrt $share, 'reopenings are spread')
    or diag("@count");
diag("reopenings of @{[ scalar @back ]}, each second: @count") if $long;

my @broken = grep { $_->{failed} || $_->body =~ s/:\n\n//gr ne $event } @calls;

is(scalar @broken, 0, 'running calls are complete');
is(scalar(grep { $_->over } @others), 0, 'streams of the other peer stay');
eventually(sub { $nginx->upstream->{streams}{closed_by_mark} == @mine },
           'counted');
$_->abort for @others;

finish();
