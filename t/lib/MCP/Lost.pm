package MCP::Lost;

# The answer that tells a client its session is lost, and answers that have
# to be the same as those of nginx without the module.

use strict;
use warnings;

use Exporter 'import';
use JSON::PP ();
use MCP::Util ();
use Test::More ();

our @EXPORT = qw(LOST_BODY answer_of http_text is_lost is_same rpc_error
                 shown);

use constant LOST_BODY => '{"jsonrpc":"2.0","id":null,"error":'
                          . '{"code":-32001,"message":"Session not found"}}';


# The module's own 404, whole and once; more: [[header, value], ...] that
# have to be in it.

sub is_lost {
    my ($x, $name, @more) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my @type = $x->header('Content-Type');
    my @length = $x->header('Content-Length');
    my @faults;

    push @faults, 'status ' . $x->status if $x->status != 404;
    push @faults, "type @type" if "@type" ne 'application/json';
    push @faults, "length @length" if "@length" ne length LOST_BODY;
    push @faults, 'chunked' if defined $x->header('Transfer-Encoding');
    push @faults, 'body ' . substr $x->body, 0, 200 if $x->body ne LOST_BODY;
    push @faults, $x->{failed} if $x->{failed};

    for my $want (@more) {
        my @have = $x->header($want->[0]);
        push @faults, "$want->[0]: @have" if "@have" ne $want->[1];
    }

    return Test::More::ok(!@faults, "$name: our 404")
           || Test::More::diag(join "\n", @faults);
}


# What of an answer must not change: all but the date.

sub answer_of {
    my ($x) = @_;

    return { status => $x->status, reason => $x->{http}{reason},
             body => $x->body, framing => $x->{http}{framing},
             failed => $x->{failed},
             headers => [map { "$_->[0]: $_->[1]" }
                         grep { $_->[0] ne 'Date' } @{ $x->headers }] };
}


sub is_same {
    my ($x, $stock, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my ($got, $want) = map { JSON::PP->new->canonical->latin1->pretty
                             ->allow_nonref->encode(answer_of($_)) }
                       $x, $stock;

    return Test::More::ok($got eq $want, "$name: as without the module")
           || Test::More::diag(map { "$_\n" } map { substr $_, 0, 1500 }
                               "got $got", "want $want");
}


# ---- answers for the fake server ----

# A JSON-RPC error with an id of its own (null when it is left out).

sub rpc_error {
    my ($status, $code, $message, $id) = @_;

    return { status => $status, type => 'application/json',
             body => MCP::Util::json_text(
                 { jsonrpc => '2.0', id => $id,
                   error => { code => $code, message => $message } }) };
}


# A whole response as text; headers: [[name, value], ...].

sub http_text {
    my ($status, $headers, $body, $framing) = @_;

    my $text = "HTTP/1.1 $status\r\n"
             . join('', map { "$_->[0]: $_->[1]\r\n" } @$headers);

    $framing //= 'length';

    return $text . "Content-Length: " . length($body) . "\r\n\r\n$body"
        if $framing eq 'length';
    return "$text\r\n$body" if $framing ne 'chunked';

    my $chunks = '';

    while ($body =~ /\G(.{1,1000})/gs) {
        $chunks .= sprintf "%x\r\n%s\r\n", length $1, $1;
    }

    return "${text}Transfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n";
}


# ---- what a keepalive was told ----

# Waits for one of the verdicts to be counted in an upstream, with none but
# "ok" beside it; returns what the status said then.  A status that was read
# for another upstream is good enough, as counters do not go back.

my %read;

sub shown {
    my ($nginx, $upstream, $name, @right) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my (%counted, $said);
    my $status = $read{$nginx->port} // $nginx->status;
    my $seen = MCP::Util::wait_for(sub {
        $status //= $nginx->status;
        $read{$nginx->port} = $status;
        $said = $status->{upstreams}{$upstream};
        undef $status;

        my $peer = $said->{peers}[0] // {};

        %counted = %{ $peer->{keepalives} // {} };
        delete @counted{qw(sent bytes)};
        $counted{$_} || delete $counted{$_} for keys %counted;

        return grep { $counted{$_} } @right;
    }, 6);

    delete @counted{'ok', @right};

    Test::More::ok($seen && !%counted, "$name: keepalive: @right")
        or Test::More::diag(Test::More::explain($said->{peers}));

    return $said;
}


1;
