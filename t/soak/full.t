#!/usr/bin/perl

# A zone is filled ten times over.

use lib 't/lib';
use MCP::Soak;
use MCP::Test;

my @fakes = fakes(2);
my $nginx = nginx(
    fakes => \@fakes, workers => 2, connections => 2048,
    upstream => 'mcp_keepalive zone=mcp:256k interval=300ms rate=1000;'
              . ' keepalive 8;');
my @busy = clients($nginx, 20);

each_client(\@busy, [qw(initialize initialized call)]);

my @open = streams(@busy);
my ($bad, $opened, $memory) = (0, 0);

is(scalar(grep { $_->status == 200 } @open), 20, '20 have a stream open');

# one after another: in a full zone in which every session is in use, those that
# begin at once take each other's place

for my $turn (1 .. 55) {
    my @new = clients($nginx, 200);
    my @x = each_client(\@new, [qw(initialize initialized)], width => 1);

    $bad += grep { $_->status !~ /^20[02]$/ } @x;
    $opened += 200;
    $memory = memory_kb($nginx) if $turn == 10;
}

my $zone = $nginx->status->{zones}{mcp};

cmp_ok($opened, '>=', 10 * $zone->{sessions}, 'ten times what there is room'
       . " for: $opened opened, $zone->{sessions} held");
is($bad, 0, 'no client was refused');
cmp_ok($zone->{evicted}, '>=', $opened - $zone->{sessions} - 100,
       "the others were evicted: $zone->{evicted}");
cmp_ok($zone->{used}, '<=', 256 * 1024, 'the zone is as large as it is');
cmp_ok(scalar $nginx->log_lines(qr/zone.*(?:full|evict)/i), '<=', 10,
       'the log says so now and then');

$_->abort for @open;
all_well('those with a stream', \@fakes, @busy);
nobody_lingers($nginx, 'after');
no_growth($memory, memory_kb($nginx), 'after');
finish();
