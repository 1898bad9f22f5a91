#!/usr/bin/perl

# What nginx itself runs out of is no fault of a peer: descriptors, local
# ports, an address that is not its own.

use lib 't/lib';
use IO::Socket::INET ();
use MCP::Peers;
use MCP::Test;

# Ports are taken away from a network namespace, so this file moves into one
# of its own where it can.

my $range = '/proc/sys/net/ipv4/ip_local_port_range';

if (!$ENV{MCP_OWN_NETNS} && $> == 0
    && system('unshare -n ip link set lo up >/dev/null 2>&1') == 0)
{
    local $ENV{MCP_OWN_NETNS} = 1;
    exec 'unshare', '-n', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh',
         $^X, '-It/lib', $0;
}

descriptors();
own_address();

SKIP: {
    skip 'no network namespace of our own', 1
        unless $ENV{MCP_OWN_NETNS} && -w $range;
    local_ports();
    ok(1, 'without local ports');
}

finish();


# An nginx with one worker and clients that keep their connections, the page
# of its status among them.

sub start {
    my (@fakes) = @_;

    my $nginx = nginx(
        fakes => [@fakes], connections => 256,
        allow => [qr/\[alert\].* socket\(\) failed \(24: /],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms timeout=500ms;'
                  . ' mcp_reconnect backoff=200ms;');

    # nothing is pooled: each request needs a connection

    $_->rule(do => { end => 1 }) for @fakes;

    my %at = place($nginx, 3, \@fakes, keepalive => 1);
    my @clients = map { @$_ } values %at;
    my $page = client($nginx, port => $nginx->{ports}{status},
                      uri => '/status', keepalive => 1);

    ok(proven($nginx, @fakes), 'proven');
    is($page->request('GET')->status, 200, 'status over a kept connection');

    my $peers = sub {
        my $status = $page->request('GET')->json;
        return @{ $status->{upstreams}{tools}{peers} // [] };
    };

    return ($nginx, $peers, @clients);
}


# During a shortage: clients fail, keepalives are "local", nobody is marked;
# after it all is well.

sub hardship {
    my ($name, $peers, $begin, $end, @clients) = @_;

    my $local = sub {
        my $sum = 0;
        $sum += $_->{keepalives}{local} // 0 for $peers->();
        return $sum;
    };

    my $before = $local->();

    $begin->();

    my @x = map { $_->call } @clients;
    my $counted = wait_for(sub { $local->() >= $before + 4 }, 5);
    my @seen = $peers->();

    $end->();

    cmp_ok(scalar(grep { $_->status =~ /^50\d$/ } @x), '>=', scalar @clients,
           "$name: clients were hit") or diag(map { $_->text . "\n" } @x);
    ok($counted, "$name: keepalives are counted as local")
        or diag(explain(\@seen));
    is(scalar @seen, 2, "$name: two peers");
    is("$_->{state} $_->{epoch} $_->{charges}", 'connected 0 0',
       "$name: $_->{name} is not marked") for @seen;

    my $well = wait_for(sub {
        return !grep { $_->call->status != 200 } @clients;
    }, 4, 100);

    ok($well, "$name: all is well after it");
    is(join(' ', map { $_->{state} } $peers->()), 'connected connected',
       "$name: and connected");
    return;
}


sub no_marks {
    my ($name, $nginx) = @_;

    is(scalar(grep { /degraded|parked/ } mcp_lines($nginx)), 0,
       "$name: no line of a mark") or diag(mcp_lines($nginx));
    return;
}


# ---- descriptors ----

sub descriptors {
    if (system('prlimit --version >/dev/null 2>&1')) {
        diag('no prlimit, no shortage of descriptors');
        return;
    }

    my @fakes = fakes(2);
    my ($nginx, $peers, @clients) = start(@fakes);
    my ($worker) = $nginx->workers;
    my $limit = sub {
        my ($n) = @_;

        system("prlimit --pid $worker --nofile=$n:") == 0
            or die "prlimit failed\n";
    };

    # so few that none can be opened, whatever is closed

    hardship('descriptors', $peers, sub { $limit->(1) },
             sub { $limit->(1024) }, @clients);
    no_marks('descriptors', $nginx);

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# ---- an address to bind to that is taken, or nobody's ----

sub own_address {
    my @fakes = fakes(2);
    my ($nginx, $peers, @clients) = start(@fakes);
    my $taken = IO::Socket::INET->new(LocalAddr => '127.0.0.9', Listen => 1);
    my $proxy = 'proxy_pass http://tools; proxy_http_version 1.1;'
              . ' proxy_set_header Connection "";';

    for my $bind ('127.0.0.9:' . $taken->sockport, '192.0.2.1') {
        my $now = sub {
            my ($text) = @_;

            $nginx->reload(gone => 1, parts => { proxy => "$proxy $text" });

            # the old connections went with the old worker
            delete $_->{fh} for @clients;
            return;
        };

        hardship("bind $bind", sub { @{ $nginx->upstream->{peers} } },
                 sub { $now->("proxy_bind $bind;") }, sub { $now->('') },
                 @clients);
    }

    no_marks('bind', $nginx);
    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# ---- local ports: the one that may be used is taken ----

sub local_ports {
    my @fakes = fakes(2);
    my ($nginx, $peers, @clients) = start(@fakes);
    my $wide = MCP::Util::slurp($range);
    my $taken = IO::Socket::INET->new(LocalAddr => '0.0.0.0',
                                      LocalPort => 45_000, Proto => 'tcp')
        or die "port 45000: $!\n";
    my $set = sub {
        my ($text) = @_;

        open my $fh, '>', $range or die "$range: $!\n";
        print {$fh} $text;
        close $fh or die "$range: $!\n";
        return;
    };

    $_->call for @clients;      # whose connections are kept
    $peers->();

    hardship('local ports', $peers, sub { $set->('45000 45000') },
             sub { $set->($wide) }, @clients);
    is(scalar(grep { /connect\(\) .*failed \(99: / } $nginx->log_lines) > 0, 1,
       'local ports: it was that');
    no_marks('local ports', $nginx);

    $nginx->stop;
    $_->kill for @fakes;
    return;
}
