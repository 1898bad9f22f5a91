package MCP::FakeSessions;

# The MCP side of the fake server: which sessions exist and what the plain
# answer to a request is, before a behaviour bends it.

use strict;
use warnings;

use MCP::Util 'now_ms';


# Settings, changed with set():
#   ids       texts the next sessions get, in order
#   length    length of generated ids (36)
#   doubled   1: two session headers in the answer to initialize
#   none      1: issues no session
#   stateless 1: takes every session id
#   lifetime  ms of idleness after which a session is gone, 0: never
#   version   the protocol version it answers with (the one asked for)
#   unknown   {status, code, message} for a session it does not know
#   tokens    ms: a keepalive with a token that its client replaced that long ago
#             ends the session
#   modern    versions without sessions it speaks, beside the others

sub new {
    my ($class, %arg) = @_;

    return bless { %arg, seen => {}, serial => 0, ids => [], length => 36,
                   lifetime => 0,
                   unknown => { status => 404, code => -32001,
                                message => 'Session not found' } }, $class;
}


sub set {
    my ($self, %set) = @_;

    @$self{keys %set} = values %set;
    return;
}


sub count { return scalar keys %{ $_[0]{seen} } }


sub known {
    my ($self, $id) = @_;

    return 0 unless defined $id && exists $self->{seen}{$id};

    if ($self->{lifetime} && now_ms() - $self->{seen}{$id} > $self->{lifetime})
    {
        delete $self->{seen}{$id};
        return 0;
    }

    return 1;
}


sub forget {
    my ($self, $id) = @_;

    defined $id ? delete $self->{seen}{$id} : ($self->{seen} = {});
    return;
}


sub answer {
    my ($self, $request, $do) = @_;

    my $answer = $self->choose($request, $do);

    return { status => 200, sessions => [], name => $self->{name}, %$answer };
}


sub choose {
    my ($self, $request, $do) = @_;

    my $rpc = $request->{rpc};
    my $session = $request->{session};

    my $modern = $self->modern($request);

    return $modern if $modern;
    return $self->initialize($rpc) if ($rpc->{method} // '') eq 'initialize';

    if (!defined $session) {
        return failed($rpc, 400, -32000, 'Bad Request: Server not initialized')
            unless $self->{stateless};
    }
    elsif (!$self->known($session) && !$self->{stateless}) {
        return failed($rpc, @{ $self->{unknown} }{qw(status code message)});
    }

    return failed($rpc, 401, -32000, 'Token revoked; the session has ended')
        if $self->{tokens} && $self->revoked($request);

    $self->{seen}{$session} = now_ms() if $self->known($session);

    return $self->stream($session)
        if $request->{method} eq 'GET' && ($do->{status} // 200) < 300;
    return $self->delete_session($session, $do)
        if $request->{method} eq 'DELETE';

    my $echo = [defined $session ? $session : ()];

    return { status => 202, sessions => $echo } unless defined $rpc->{id};
    return { message => $self->result($rpc), sessions => $echo };
}


# A number at the end of a token tells which is newer.

sub revoked {
    my ($self, $request) = @_;

    my $session = $request->{session} // return 0;
    my ($n) = ($request->header('Authorization') // '') =~ /(\d+)$/;
    my $newest = $self->{newest}{$session} //= [$n, 0];

    if (!$request->{keepalive}) {
        $self->{newest}{$session} = [$n, now_ms()] if $n > $newest->[0];
        return 0;
    }

    return 0 if $n >= $newest->[0]
                || now_ms() - $newest->[1] <= $self->{tokens};

    delete $self->{seen}{$session};
    return 1;
}


# A request of a version without sessions; its headers must tell what its body
# does.

sub modern {
    my ($self, $request) = @_;

    my $version = $request->header('MCP-Protocol-Version') // '';
    my $rpc = $request->{rpc};
    my $meta = ($rpc->{params} // {})->{_meta} // {};
    my %meta = map { $_ => $meta->{"io.modelcontextprotocol/$_"} }
               qw(protocolVersion clientCapabilities);

    return if !$self->{modern} || $version lt '2026-07-28'
              || ($rpc->{method} // '') eq 'initialize';
    return { status => 405 } if $request->{method} ne 'POST';

    return failed($rpc, 400, -32022, "Unsupported protocol version: $version",
                  { supported => $self->{modern}, requested => $version })
        unless grep { $_ eq $version } @{ $self->{modern} };
    return failed($rpc, 400, -32602, 'Invalid params: no _meta')
        unless $meta{clientCapabilities};
    return failed($rpc, 400, -32020, 'The headers and the body disagree')
        if ($request->header('Mcp-Method') // '') ne $rpc->{method}
           || $meta{protocolVersion} ne $version;
    return failed($rpc, 404, -32601, 'Method not found')
        if $rpc->{method} !~ m{^(?:tools/list|tools/call|server/discover)$};

    return { message => $self->result($rpc) };
}


sub initialize {
    my ($self, $rpc) = @_;

    my $version = $self->{version}
                  // ($rpc->{params} // {})->{protocolVersion} // '2025-06-18';
    my $message = {
        jsonrpc => '2.0', id => $rpc->{id},
        result => { protocolVersion => $version, server => $self->{name},
                    capabilities => { tools => { listChanged => \1 } },
                    serverInfo => { name => 'fake', version => '1' } } };

    return { message => $message } if $self->{none};

    my $id = $self->new_id;

    $self->{seen}{$id} = now_ms();

    return { message => $message,
             sessions => $self->{doubled} ? [$id, "$id-2"] : [$id] };
}


sub new_id {
    my ($self) = @_;

    return shift @{ $self->{ids} } if @{ $self->{ids} };

    my $id = sprintf '%s-%x-%d-', $self->{name}, $$, ++$self->{serial};

    $id .= sprintf '%08x', rand 0xffffffff while length $id < $self->{length};

    return substr $id, -$self->{length};
}


sub result {
    my ($self, $rpc) = @_;

    my %result = (server => $self->{name});
    my $method = $rpc->{method} // '';

    if ($method eq 'tools/list') {
        $result{tools} = [{ name => 'echo',
                            inputSchema => { type => 'object' } }];
    }
    elsif ($method eq 'tools/call') {
        $result{content} = [{ type => 'text', text => $self->{name} }];
    }

    return { jsonrpc => '2.0', id => $rpc->{id}, result => \%result };
}


sub failed {
    my ($rpc, $status, $code, $text, $data) = @_;

    return { status => $status,
             message => { jsonrpc => '2.0', id => undef,
                          error => { code => $code, message => $text,
                                     $data ? (data => $data) : () } } };
}


sub stream {
    my ($self, $session) = @_;

    return { do => { stay_open => 1, body => '',
                     type => 'text/event-stream' },
             sessions => [$session] };
}


sub delete_session {
    my ($self, $session, $do) = @_;

    delete $self->{seen}{$session}
        if ($do->{status} // 200) < 300 && !$do->{keep};

    return { status => 200 };
}


1;
