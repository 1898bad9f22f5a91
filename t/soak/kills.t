#!/usr/bin/perl

# 200 workers are killed at random moments under load.  t/51_torn.t with
# MCP_LONG=1 is the same within the lock.

use lib 't/lib';
use MCP::Load;
use MCP::Soak;
use MCP::Test;

my @fakes = fakes(3);
my $nginx = nginx(
    fakes => \@fakes, workers => 4, connections => 2048,
    upstream => 'mcp_keepalive zone=mcp:2m interval=200ms rate=2000'
              . ' timeout=500ms; keepalive 8;');
my @clients = clients($nginx, 60);

each_client(\@clients, [qw(initialize initialized call)]);
pause_ms(1000);

my $load = MCP::Load->new($nginx, clients => 16, pause => 2);
my $epochs = epochs();
my ($before, $killed) = (memory_kb($nginx), 0);

for (1 .. 200) {
    my @workers = $nginx->workers;
    my $victim = $workers[rand @workers];

    pause_ms(rand 60);
    $nginx->kill_worker($victim);
    $killed++ if wait_for(sub {
        my @now = $nginx->workers;
        return @now >= 4 && !grep { $_ == $victim } @now;
    }, 10, 5);
}

my %n = tally($load->stop);

is($killed, 200, '200 workers were killed and replaced');
cmp_ok($n{200} // 0, '>=', 1000, 'there was load');
diag(join ', ', map { "$_: $n{$_}" } sort keys %n);
is(scalar(grep { !/^(?:0|200|202)$/ } keys %n), 0,
   'no answer but good ones, where there was one') or diag(explain(\%n));

nobody_lingers($nginx, 'after');
all_well('after', \@fakes, @clients);
asked_again('after', \@fakes, @clients);
is(epochs(), $epochs, 'no server was marked');
no_growth($before, memory_kb($nginx), 'after');
finish();


sub epochs {
    my $sum = 0;

    $sum += $_->{epoch} for @{ $nginx->upstream->{peers} };
    return $sum;
}
