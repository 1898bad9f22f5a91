#!/usr/bin/perl

# A reload every second for two minutes, under load and with streams open.

use lib 't/lib';
use MCP::Load;
use MCP::Process qw(members);
use MCP::Soak;
use MCP::Test;

my $seconds = $ENV{MCP_SECONDS} // 120;
my @fakes = fakes(3);
my $nginx = nginx(
    fakes => \@fakes, workers => 2, connections => 2048,
    main => 'worker_shutdown_timeout 3s;',
    upstream => 'mcp_keepalive zone=mcp:2m interval=1s rate=500;'
              . ' keepalive 8;');
my @clients = clients($nginx, 40);

each_client(\@clients, [qw(initialize initialized call)]);

my $load = MCP::Load->new($nginx, clients => 8, pause => 10);
my ($memory, $master, $most, $cut, $streams) = (0, 0, 0, 0, 0);

for my $n (1 .. $seconds) {
    my $began = now_ms();
    my @open = streams(@clients[map { int rand @clients } 1 .. 2]);

    $streams += @open;
    $nginx->reload;

    MCP::Exchange::drive(\@open, timeout => 5);

    # a proper end is one that is told
    $cut += grep { $_->{failed} || !$_->over } @open;

    my $now = members($nginx->{pid});

    $most = $now if $now > $most;
    ($memory, $master) = (memory_kb($nginx), master_kb()) if $n == 20;
    pause_ms(1000 - (now_ms() - $began)) if now_ms() - $began < 1000;
}

my %n = tally($load->stop);

diag(join ', ', map { "$_: $n{$_}" } sort keys %n);
diag("$streams streams, $cut cut; at most $most processes at once");
is($cut, 0, 'every stream was ended properly');
is(scalar(grep { !/^(?:200|202)$/ } keys %n), 0, 'no call was lost')
    or diag(explain(\%n));
nobody_lingers($nginx, 'after');
all_well('after', \@fakes, @clients);
asked_again('after', \@fakes, @clients);
no_growth($memory, memory_kb($nginx), 'workers') if $memory;
no_growth($master, master_kb(), 'the master') if $master;
is($nginx->upstream->{sessions}{lost} // 0, 0, 'no session was lost');
finish();


sub master_kb {
    return MCP::Util::slurp("/proc/$nginx->{pid}/status")
           =~ /^RssAnon:\s+(\d+)/m ? $1 : 0;
}
