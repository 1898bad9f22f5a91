#!/usr/bin/perl

# Workers are killed under load and in the middle of keepalives: sessions
# and pins stay, the others go on.

use lib 't/lib';
use MCP::Test;

my @fakes = fakes(3);
my $nginx = nginx(
    fakes => \@fakes, workers => 4, connections => 2048,
    upstream => 'mcp_keepalive zone=mcp:1m interval=100ms rate=1000'
              . ' timeout=500ms; keepalive 8;');
my @clients = clients($nginx, 40);

each_client(\@clients, [qw(initialize initialized call)]);

my $sessions = $nginx->upstream->{sessions}{active};

is($sessions, 40, '40 sessions');

# Half of the servers' answers take their time, so that keepalives are in
# flight when their worker dies.
$_->rule(when => { keepalive => 1 }, do => { delay => 60 }) for @fakes[0, 1];


# ---- 50 times ----

my ($turn, $killed, $served, $lost) = (0, 0, 0, 0);
my $begin = now_ms();

for (1 .. 50) {
    my @workers = $nginx->workers;
    my $victim = $workers[rand @workers];
    my @load = map { $_->start_call }
               @clients[map { ($turn++) % 40 } 1 .. 6];

    MCP::Exchange::drive(\@load, until => sub { rand() < 0.3 });
    $nginx->kill_worker($victim);
    $killed++ if wait_for(sub {
        MCP::Exchange::drive(\@load, timeout => 0.02);
        my @now = $nginx->workers;
        return @now >= 4 && !grep { $_ == $victim } @now;
    }, 5);

    MCP::Exchange::drive(\@load, timeout => 2);
    $_->status == 200 ? $served++ : $lost++ for @load;
}

is($killed, 50, '50 workers were killed and replaced');
cmp_ok($served, '>', 200, 'most calls were served meanwhile')
    or diag("$served served, $lost lost");


# ---- what stayed ----

is($nginx->upstream->{sessions}{active}, $sessions, 'no session was lost');

my @all = each_client(\@clients, [qw(call call)]);

is(scalar(grep { $_->status == 200 } @all), 80, 'every session works');

my $misrouted = 0;
$misrouted += $_->stats->{misrouted} for @fakes;
is($misrouted, 0, 'none was misrouted');

my $now = now_ms();
my $fresh = sub {
    my %got = map { $_->{session} => 1 } grep { $_->{t} > $now }
              map { $_->keepalives } @fakes;
    return keys %got;
};

eventually(sub { $fresh->() == 40 }, 'all get their keepalives again', 10)
    or diag($fresh->() . ' of 40 do');
is($nginx->peer($_)->{state}, 'connected', "$_->{name} is connected")
    for @fakes;

finish();
