package MCP::Peers;

# What tests of marked peers share: sessions at every peer, states, the lines
# of the log, the answer when no peer is left.

use strict;
use warnings;

use Exporter 'import';
use MCP::Client ();
use MCP::Util qw(json_text now_ms wait_for);
use Test::More ();

our @EXPORT = qw(all_closed conns_of hold_off in_state is_unavailable mcp_lines
                 new_since old_conns place proven state_is tag tagged);


# ---- sessions ----

# Opens sessions, each with a call, until every fake has at least n; returns
# (name of the fake => [its clients], ...).

sub place {
    my ($nginx, $n, $fakes, %client) = @_;

    my %at;

    for (1 .. 10) {
        my @new = map { MCP::Client->new(nginx => $nginx, %client) }
                  1 .. $n * @$fakes;
        my @all = MCP::Client::each_client(\@new,
            [qw(initialize initialized call)]);

        push @{ $at{ $all[3 * $_ + 2]->server // '?' } }, $new[$_]
            for 0 .. $#new;

        last unless grep { @{ $at{ $_->{name} } // [] } < $n } @$fakes;
    }

    return %at;
}


# ---- states ----

sub in_state {
    my ($nginx, $fake, $state, $upstream) = @_;

    return ($nginx->peer($fake, $upstream)->{state} // '') eq $state;
}


# A test: the peer comes to a state in its time (seconds).

sub state_is {
    my ($nginx, $fake, $state, $name, $timeout, $upstream) = @_;

    my $ok = wait_for(sub { in_state($nginx, $fake, $state, $upstream) },
                      $timeout // 5);

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return Test::More::ok($ok, "$name: $state")
           || Test::More::diag(Test::More::explain(
                  $nginx->peer($fake, $upstream)));
}


# Lines about a fake's peer (of all without one), as "A -> B: reason" with the
# level in front: "[warn] connected -> degraded: ..."; now and then the same
# peer stands in several upstreams.

sub mcp_lines {
    my ($nginx, $fake, $upstream) = @_;

    my $name = quotemeta($upstream // 'tools');
    my $addr = $fake ? quotemeta $fake->addr : '[^"]*';

    return map { /(\[\w+\]).*?mcp upstream "$name" peer "$addr": (.* -> .*)/
                 ? "$1 $2" : () }
           $nginx->log_lines(qr/mcp upstream "/);
}


# A peer that has been proven, at rest: tells nothing but by its state.

sub proven {
    my ($nginx, @fakes) = @_;

    return wait_for(sub {
        return !grep { !in_state($nginx, $_, 'connected') } @fakes;
    });
}


# ---- connections, as the fake has seen them ----

# { number => { open, close (times), by, requests => [events] } }

sub conns_of {
    my ($fake) = @_;

    my %conn;

    for my $event ($fake->events) {
        next unless $event->{gen} == $fake->{gen};

        my $conn = $conn{ $event->{conn} } //= { requests => [] };

        $conn->{open} = $event->{t} if $event->{ev} eq 'open';
        @$conn{qw(close by)} = @$event{qw(t by)} if $event->{ev} eq 'close';
        push @{ $conn->{requests} }, $event if $event->{ev} eq 'request';
    }

    return %conn;
}


# Numbers of those that are open now.

sub old_conns {
    my ($fake) = @_;

    my %conn = conns_of($fake);

    return grep { !$conn{$_}{close} } keys %conn;
}


sub all_closed {
    my ($fake, @numbers) = @_;

    my %conn = conns_of($fake);

    return !grep { !$conn{$_}{close} } @numbers;
}


# Requests since a time that came on one of these connections.

sub new_since {
    my ($fake, $from, @numbers) = @_;

    my %old = map { $_ => 1 } @numbers;

    return grep { $_->{t} > $from && $old{ $_->{conn} } } $fake->requests;
}


# ---- requests told apart by a header ----

sub tag { return ['X-Tag', $_[0]] }


sub tagged {
    my ($fake, $tag) = @_;

    return grep { grep { $_ eq $tag } MCP::Fake::values_of($_, 'X-Tag') }
           $fake->requests;
}


# ---- answers ----

# The module's own 503; a test; more: [[header, value], ...] that have to be
# in it.

sub is_unavailable {
    my ($x, $name, @more) = @_;

    my @faults;
    my @type = $x->header('Content-Type');
    my @after = $x->header('Retry-After');

    push @faults, 'status ' . $x->status if $x->status != 503;
    push @faults, "type @type" if "@type" ne 'application/json';
    push @faults, "retry after @after" if "@after" !~ /^[1-9]\d*$/;
    push @faults, $x->{failed} if $x->{failed};
    push @faults, 'body ' . substr $x->body, 0, 200
        if !$x->{head} && $x->body !~ /^\{"jsonrpc":"2\.0","id":null,"error":
                            \{"code":-32000,"message":"[^"]+"\}\}$/x;

    for my $want (@more) {
        my @have = $x->header($want->[0]);
        push @faults, "$want->[0]: @have" if "@have" ne $want->[1];
    }

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return Test::More::ok(!@faults, "$name: our 503")
           || Test::More::diag(join "\n", @faults);
}


# Streams are answered at once, not held, where the module can hold them.

sub hold_off {
    my ($ok) = MCP::Nginx->config_test(
        servers => ['127.0.0.1:1'], http => 'mcp_stream_hold off;',
        upstream => 'mcp_keepalive zone=mcp:1m;');

    return $ok ? 'mcp_stream_hold off;' : '';
}


1;
