package MCP::Client;

# An MCP client over raw sockets.  Each request method has two forms:
# call(...) waits for the answer, start_call(...) returns the MCP::Exchange
# at once, to be driven with others.

use strict;
use warnings;

use Exporter 'import';
use MCP::Exchange ();
use MCP::Secrets ();
use MCP::Util qw(json_text);

our @EXPORT_OK = qw(each_client);


# port (or nginx => MCP::Nginx); uri, host, headers [[name, value]],
# version, session; keepalive: 1 keeps its connection.

sub new {
    my ($class, %arg) = @_;

    $arg{port} //= $arg{nginx}->port if $arg{nginx};

    return bless { uri => '/mcp', host => 'tools.example', headers => [],
                   version => '2025-06-18', id => 0, %arg }, $class;
}


sub session { return $_[0]{session} }


# ---- plain HTTP ----

# Starts a request; headers given here come after the client's own.

sub start {
    my ($self, $method, $body, @headers) = @_;

    my $bytes = "$method $self->{uri} HTTP/1.1\r\nHost: $self->{host}\r\n";

    push @headers, ['Connection', 'close'] unless $self->{keepalive};
    push @headers, ['Content-Length', length $body] if defined $body;

    MCP::Secrets::note(@{ $self->{headers} }, @headers);
    $bytes .= "$_->[0]: $_->[1]\r\n" for @{ $self->{headers} }, @headers;

    return MCP::Exchange->new(
        port => $self->{port}, bytes => "$bytes\r\n" . ($body // ''),
        head => $method eq 'HEAD', fh => delete $self->{fh});
}


sub request { my $self = shift; return $self->wait($self->start(@_)) }


# Bytes as they are, on a connection of their own.

sub raw {
    my ($self, $bytes) = @_;

    return $self->wait(
        MCP::Exchange->new(port => $self->{port}, bytes => $bytes));
}


sub wait {
    my ($self, $x, $timeout) = @_;

    MCP::Exchange::drive([$x], timeout => $timeout);
    $self->settle($x);

    return $x;
}


# Takes from an answer what the client has to remember.

sub settle {
    my ($self, $x) = @_;

    if ($self->{starting} && $self->{starting} == $x) {
        delete $self->{starting};
        $self->{session} = $x->header('Mcp-Session-Id')
            if $x->status =~ /^2/;
    }

    return unless $self->{keepalive};

    my $fh = $x->take_fh;
    $self->{fh} = $fh if $fh;
    return;
}


# ---- MCP ----

sub mcp_headers {
    my ($self) = @_;

    my @headers = (['Content-Type', 'application/json'],
                   ['Accept', 'application/json, text/event-stream']);

    push @headers, ['Mcp-Session-Id', $self->{session}]
        if defined $self->{session};
    push @headers, ['MCP-Protocol-Version', $self->{version}]
        if defined $self->{session} && defined $self->{version};

    return @headers;
}


sub start_rpc {
    my ($self, $method, $params, @headers) = @_;

    my %message = (jsonrpc => '2.0', method => $method,
                   $params ? (params => $params) : ());

    $message{id} = ++$self->{id} unless $method =~ m{^notifications/};

    return $self->start('POST', json_text(\%message), $self->mcp_headers,
                        @headers);
}


sub rpc { my $self = shift; return $self->wait($self->start_rpc(@_)) }


sub start_initialize {
    my ($self, @headers) = @_;

    my $x = $self->start_rpc('initialize', {
        protocolVersion => $self->{version} // '2025-03-26',
        capabilities => {},
        clientInfo => { name => 'test', version => '1' } }, @headers);

    return $self->{starting} = $x;
}


sub start_initialized {
    my ($self) = @_;

    return $self->start_rpc('notifications/initialized');
}


sub start_call {
    my ($self, $tool, @headers) = @_;

    return $self->start_rpc('tools/call',
        { name => $tool // 'echo', arguments => {} }, @headers);
}


sub start_list {
    my ($self, @headers) = @_;

    return $self->start_rpc('tools/list', undef, @headers);
}


sub start_get {
    my ($self, @headers) = @_;

    return $self->start('GET', undef, ['Accept', 'text/event-stream'],
                        grep({ $_->[0] =~ /^mcp/i } $self->mcp_headers),
                        @headers);
}


sub start_delete {
    my ($self) = @_;

    return $self->start('DELETE', undef,
                        grep { $_->[0] =~ /^mcp/i } $self->mcp_headers);
}


sub initialize {
    my ($self, @headers) = @_;

    return $self->wait($self->start_initialize(@headers));
}


sub initialized { return $_[0]->wait($_[0]->start_initialized) }

sub call { my $self = shift; return $self->wait($self->start_call(@_)) }

sub list { my $self = shift; return $self->wait($self->start_list(@_)) }

sub delete_session { return $_[0]->wait($_[0]->start_delete) }


# ---- 2026-07-28, without sessions ----

# version => of the headers and of the body, method, name => of Mcp-Name

sub start_modern {
    my ($self, $method, %arg) = @_;

    my $version = $arg{version} // '2026-07-28';
    my $meta = { map { ("io.modelcontextprotocol/$_->[0]" => $_->[1]) }
                 [protocolVersion => $version], [clientCapabilities => {}],
                 [clientInfo => { name => 'test', version => '1' }] };
    my $body = json_text({ jsonrpc => '2.0', id => ++$self->{id},
                           method => $method,
                           params => { _meta => $meta,
                                       %{ $arg{params} // {} } } });

    return $self->start('POST', $body,
        ['Content-Type', 'application/json'],
        ['Accept', 'application/json, text/event-stream'],
        ['MCP-Protocol-Version', $version], ['Mcp-Method', $method],
        defined $arg{name} ? ['Mcp-Name', $arg{name}] : (),
        @{ $arg{headers} // [] });
}


sub modern { my $self = shift; return $self->wait($self->start_modern(@_)) }


# Opens the notification stream and waits for its head; the exchange stays
# open until it is aborted.

sub get {
    my ($self, @headers) = @_;

    my $x = $self->start_get(@headers);

    MCP::Exchange::drive([$x], until => sub { $x->{http}->has_head });
    return $x;
}


# A session in use: initialize, initialized, as many calls as asked for.

sub open_session {
    my ($self, $calls) = @_;

    my $x = $self->initialize;
    return $x unless defined $self->{session};

    $x = $self->initialized;
    $x = $self->call for 1 .. $calls // 0;

    return $x;
}


# ---- many at once ----

# Every client takes the same steps, at most width of them at a time:
#     each_client([...], [qw(initialize initialized call)], width => 50)
# Returns all exchanges, those of one client in a row.

sub each_client {
    my ($clients, $steps, %arg) = @_;

    my @waiting = @$clients;
    my $width = $arg{width} // 50;
    my (@walks, @list);

    my $refill = sub {
        my ($open) = @_;
        my @new;

        for my $walk (@walks) {
            my $x = advance($walk, $steps);
            push @new, $x if $x;
        }

        while (@waiting && $open + @new < $width) {
            my $walk = { client => shift @waiting, done => [] };
            push @walks, $walk;
            push @new, advance($walk, $steps);
        }

        return @new;
    };

    MCP::Exchange::drive(\@list, refill => $refill,
                         timeout => $arg{timeout} // 20);

    my %walk = map { $_->{client} => $_ } @walks;
    return map { @{ $walk{$_}{done} } } grep { $walk{$_} } @$clients;
}


sub advance {
    my ($walk, $steps) = @_;

    my $client = $walk->{client};
    my $x = $walk->{now};

    return if $x && !$x->over || $walk->{end};

    $client->settle($x) if $x;

    my $step = $steps->[scalar @{ $walk->{done} }];

    if (!defined $step) {
        $walk->{end} = 1;
        return;
    }

    my ($name, @args) = ref $step ? @$step : $step;
    my $start = "start_$name";

    $walk->{now} = $client->$start(@args);
    push @{ $walk->{done} }, $walk->{now};

    return $walk->{now};
}


1;
