package MCP::HTTP;

# An incremental parser of one HTTP/1.x message, request or response.

use strict;
use warnings;


# kind: request or response; no_body: a response to HEAD.

sub new {
    my ($class, %arg) = @_;

    return bless { kind => 'request', buf => '', state => 'head', body => '',
                   headers => [], bytes => 0, %arg }, $class;
}


# Returns true once the message is complete; what came after it is in
# {buf}.

sub feed {
    my ($self, $bytes) = @_;

    $self->{buf} .= $bytes;
    $self->{bytes} += length $bytes;

    $self->read_head if $self->{state} eq 'head';
    $self->read_body if $self->{state} eq 'body';

    return $self->done;
}


# The other side has closed: ends a body that has no other end.

sub eof {
    my ($self) = @_;

    return if $self->done;

    if ($self->{state} eq 'body' && $self->{framing} eq 'close') {
        $self->{state} = 'done';
        return;
    }

    $self->{truncated} = 1;
    return;
}


sub done { return $_[0]{state} eq 'done' }


sub has_head { return $_[0]{state} ne 'head' }


# The first value of a header, or in list context all of them.

sub header {
    my ($self, $name) = @_;

    my @found = map { $_->[1] }
                grep { lc $_->[0] eq lc $name } @{ $self->{headers} };

    return wantarray ? @found : $found[0];
}


sub read_head {
    my ($self) = @_;

    $self->{buf} =~ s/^(?:\r?\n)+//;

    my $end = index $self->{buf}, "\r\n\r\n";
    return if $end < 0;

    my ($start, @lines) = split /\r\n/, substr($self->{buf}, 0, $end), -1;

    substr $self->{buf}, 0, $end + 4, '';

    $self->read_start($start);

    for my $line (@lines) {
        my ($name, $value) = split /:[ \t]*/, $line, 2;
        push @{ $self->{headers} }, [$name, $value // ''];
    }

    $self->choose_framing;
    return;
}


sub read_start {
    my ($self, $line) = @_;

    if ($self->{kind} eq 'request') {
        @$self{qw(method uri version)} = split / /, $line, 3;
        $self->{version} = ($self->{version} // '') =~ s{^HTTP/}{}r;
        return;
    }

    my ($version, $status, $reason) = split / /, $line, 3;

    $self->{version} = $version =~ s{^HTTP/}{}r;
    $self->{status} = $status;
    $self->{reason} = $reason;
    return;
}


sub choose_framing {
    my ($self) = @_;

    my $length = $self->header('Content-Length');
    my $coding = $self->header('Transfer-Encoding') // '';

    if ($self->without_body) {
        $self->{state} = 'done';
        return;
    }

    $self->{state} = 'body';
    $self->{framing} = $coding =~ /chunked/i ? 'chunked'
                     : ($length // '') =~ /^\d{1,15}$/ ? 'length'
                     : $self->{kind} eq 'request' ? 'none' : 'close';
    $self->{left} = $length;
    return;
}


sub without_body {
    my ($self) = @_;

    return 0 if $self->{kind} eq 'request';
    return $self->{no_body} || $self->{status} =~ /^(?:1\d\d|204|304)$/;
}


sub read_body {
    my ($self) = @_;

    my $framing = $self->{framing};

    return $self->read_chunks if $framing eq 'chunked';

    if ($framing eq 'close') {
        $self->{body} .= $self->{buf};
        $self->{buf} = '';
        return;
    }

    if ($framing eq 'length') {
        my $part = substr $self->{buf}, 0, $self->{left}, '';

        $self->{body} .= $part;
        $self->{left} -= length $part;
        return if $self->{left} > 0;
    }

    $self->{state} = 'done';
    return;
}


sub read_chunks {
    my ($self) = @_;

    while ($self->{buf} =~ /^([0-9a-fA-F]+)[^\r\n]*\r\n/) {
        my ($size, $head) = (hex $1, $+[0]);

        if ($size == 0) {
            return unless $self->{buf}
                          =~ /^0+[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n/;

            substr $self->{buf}, 0, $+[0], '';
            $self->{state} = 'done';
            return;
        }

        return if length $self->{buf} < $head + $size + 2;

        $self->{body} .= substr $self->{buf}, $head, $size;
        substr $self->{buf}, 0, $head + $size + 2, '';
    }

    return;
}


1;
