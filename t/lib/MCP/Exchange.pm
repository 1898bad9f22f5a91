package MCP::Exchange;

# One HTTP exchange on a socket, and the loop that drives many at once.

use strict;
use warnings;

use Errno qw(EAGAIN EINPROGRESS EINTR);
use IO::Select ();
use IO::Socket::INET ();
use MCP::HTTP ();
use MCP::Util qw(json_data now_ms slow);
use Socket qw(IPPROTO_TCP SOL_SOCKET SO_LINGER TCP_NODELAY);


# port, bytes; head: 1 for HEAD; fh: an open connection to be used again.

sub new {
    my ($class, %arg) = @_;

    my $self = bless { %arg, out => $arg{bytes}, began => now_ms() }, $class;

    $self->{http} = MCP::HTTP->new(kind => 'response', no_body => $arg{head});
    $self->{reused} = $self->{fh} ? 1 : 0;
    $self->{fh} //= $self->connect_to;

    return $self;
}


sub connect_to {
    my ($self) = @_;

    my $fh = IO::Socket::INET->new(
        PeerAddr => '127.0.0.1', PeerPort => $self->{port}, Blocking => 0);

    if (!$fh) {
        $self->{failed} = "connect: $!";
        return;
    }

    setsockopt $fh, IPPROTO_TCP, TCP_NODELAY, 1;
    return $fh;
}


# ---- what came back ----

sub over { return $_[0]{failed} || $_[0]{http}->done }


sub status { return $_[0]{http}{status} // 0 }


sub body { return $_[0]{http}{body} }


sub header { my ($self, $name) = @_; return $self->{http}->header($name) }


sub headers { return $_[0]{http}{headers} }


sub ms { return ($_[0]{ended} // now_ms()) - $_[0]{began} }


# The JSON-RPC message that answers: the last one of an event stream.

sub json {
    my ($self) = @_;

    my $body = $self->body;

    if (($self->header('Content-Type') // '') =~ m{^text/event-stream}) {
        my @data = $body =~ /^data: (\{.*)$/mg;
        $body = $data[-1] // '';
    }

    return json_data($body);
}


# Which fake server says it answered.

sub server {
    my ($self) = @_;

    my $json = $self->json;

    return unless ref $json eq 'HASH' && ref $json->{result} eq 'HASH';
    return $json->{result}{server};
}


# Status, or why there is none: for messages of failed tests.

sub text { return $_[0]{failed} || ($_[0]->status . ' ' . $_[0]->body) }


# ---- the loop ----

# Drives exchanges until each is over, the condition holds or timeout
# (seconds) has passed.  A pool's refill may return further exchanges as
# others end.  True when all are over.

sub drive {
    my ($list, %arg) = @_;

    my $end = now_ms() + ($arg{timeout} // 10) * 1000 * slow();

    while (1) {
        my @open = grep { !$_->over } @$list;

        if ($arg{refill}) {
            @$list = (@open, $arg{refill}->(scalar @open));
            @open = grep { !$_->over } @$list;
            next if @$list > @open;
        }

        return 1 if !@open || ($arg{until} && $arg{until}->());
        last if now_ms() > $end;

        turn(\@open, 0.05);
    }

    return 0;
}


sub turn {
    my ($open, $seconds) = @_;

    my ($in, $out) = (IO::Select->new, IO::Select->new);
    my %by;

    for my $x (@$open) {
        $by{fileno $x->{fh}} = $x;
        $in->add($x->{fh});
        $out->add($x->{fh}) if length $x->{out};
    }

    my ($readable, $writable) = IO::Select->select($in, $out, undef, $seconds);

    $by{fileno $_}->put for @{ $writable // [] };

    for my $fh (grep { defined fileno $_ } @{ $readable // [] }) {
        $by{fileno $fh}->get;
    }

    return;
}


sub put {
    my ($self) = @_;

    local $SIG{PIPE} = 'IGNORE';

    my $sent = syswrite $self->{fh}, $self->{out};

    if (!defined $sent) {
        return if $! == EAGAIN || $! == EINTR || $! == EINPROGRESS;
        return $self->lost("write: $!");
    }

    substr $self->{out}, 0, $sent, '';
    return;
}


sub get {
    my ($self) = @_;

    my $got = sysread $self->{fh}, my ($bytes), 65_536;

    if (!defined $got) {
        return if $! == EAGAIN || $! == EINTR;
        return $self->lost("read: $!");
    }

    if ($got == 0) {
        $self->{http}->eof;
        return $self->lost('closed') unless $self->{http}->done;
    }
    else {
        $self->{first} //= now_ms();
        $self->{http}->feed($bytes);
    }

    $self->end if $self->{http}->done;
    return;
}


# Closes a connection that has no further use, as nginx may linger on it.

sub end {
    my ($self) = @_;

    my $kept = $self->{http}{framing} // '';

    $self->{ended} = now_ms();
    delete $self->{fh}
        if $kept eq 'close'
           || ($self->header('Connection') // '') =~ /close/i;
    return;
}


# A connection that died before the first byte of an answer may simply have
# been closed as idle: once more on a fresh one.

sub lost {
    my ($self, $why) = @_;

    if ($self->{reused} && !$self->{http}{bytes}) {
        $self->{reused} = 0;
        $self->{out} = $self->{bytes};
        $self->{fh} = $self->connect_to;
        return;
    }

    $self->{failed} = $why;
    $self->{ended} = now_ms();
    return;
}


# Gives the connection back when it may be used again.

sub take_fh {
    my ($self) = @_;

    return if $self->{failed} || !$self->{http}->done;
    return delete $self->{fh};
}


sub abort {
    my ($self, %how) = @_;

    my $fh = delete $self->{fh} or return;

    setsockopt $fh, SOL_SOCKET, SO_LINGER, pack 'ii', 1, 0 if $how{reset};
    close $fh;
    $self->{failed} //= 'aborted';
    return;
}


1;
