#!/usr/bin/perl

# A session's requests reach the server that issued it, whatever the
# balancer would have chosen, in every worker.

use lib 't/lib';
use MCP::Test;

my @fakes = fakes(3);
my $servers = join ' ', map { "server %%fake$_%%;" } 1 .. 3;
my %kind = (
    rr => '', least => 'least_conn;',
    rr_zone => 'zone rr_zone 128k;',
    least_zone => 'zone least_zone 128k; least_conn;');

my $upstreams = join "\n", map { "upstream $_ { $servers $kind{$_} "
    . 'mcp_keepalive zone=mcp:1m; keepalive 8; }' } sort keys %kind;

# One creates the zone, the others use it.
my $seen = 0;
$upstreams =~ s/zone=mcp:1m/$seen++ ? 'zone=mcp' : 'zone=mcp:1m'/ge;

my $locations = join "\n", map { "location /$_ { proxy_pass http://$_;"
    . ' proxy_http_version 1.1; proxy_set_header Connection ""; }' }
    sort keys %kind;

my $nginx = nginx(
    fakes => \@fakes, workers => 4, http => $upstreams,
    upstream => 'mcp_pin off; mcp_keepalive zone=mcp;',
    server => $locations);

my %clients;

for my $kind (sort keys %kind) {
    my @clients = clients($nginx, 300, uri => "/$kind");
    my @all = each_client(\@clients, [qw(initialize initialized),
                                      ('call') x 5], width => 40);

    is(scalar(grep { $_->status =~ /^20[02]$/ } @all), 300 * 7,
       "$kind: 300 sessions, 5 calls each");
    is(misrouted(), 0, "$kind: none misrouted");
    spread($kind, @all);

    $clients{$kind} = \@clients;
}

my $learned = 0;
$learned += $nginx->upstream($_)->{sessions}{learned} for keys %kind;
is($learned, 1200, 'all were learned');


# ---- a reload ----

$nginx->reload(gone => 1);

for my $kind (sort keys %kind) {
    my @some = @{ $clients{$kind} }[0 .. 99];
    my @all = each_client(\@some, ['call'], width => 40);

    is(scalar(grep { $_->status == 200 } @all), 100,
       "$kind: a call after reload");
}

is(misrouted(), 0, 'after reload: none misrouted');


# ---- a dead worker ----

my @workers = $nginx->workers;

$nginx->kill_worker($workers[0]);
eventually(sub { $nginx->workers == 4
                 && !grep { $_ == $workers[0] } $nginx->workers },
           'a killed worker comes back');

my @again = each_client([@{ $clients{rr} }[0 .. 99]], ['call']);

is(scalar(grep { $_->status == 200 } @again), 100, 'calls after that');
is(misrouted(), 0, 'none misrouted');


# ---- initialize with an old id ----

my $old = $clients{rr}[0];
my $id = $old->session;
my %by;

for (1 .. 12) {
    $old->{session} = $id;
    $by{ $old->initialize->server // '?' }++;
}

cmp_ok(scalar keys %by, '>', 1, 'initialize with an old id is balanced')
    or diag(explain(\%by));


# ---- mcp_pin off, for contrast ----

my $stray = client($nginx);

$stray->open_session;
$stray->call for 1 .. 12;
cmp_ok(misrouted(), '>', 0, 'with mcp_pin off requests go astray');

finish();


sub misrouted {
    my $sum = 0;

    $sum += $_->stats->{misrouted} for @fakes;
    return $sum;
}


# New sessions still go to all servers.

sub spread {
    my ($kind, @all) = @_;

    my %count;

    $count{ $_->server // '?' }++
        for @all[grep { $_ % 7 == 0 } 0 .. $#all];

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is(scalar(grep { ($count{$_} // 0) >= 50 } qw(s1 s2 s3)), 3,
       "$kind: every server got sessions") or diag(explain(\%count));
    return;
}
